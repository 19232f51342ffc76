"""The table of a side-by-side run, as Markdown and JSON."""
import math
import os
import statistics
import time

from results import announce, commit, write

BITS_PER_S = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
BYTES = {"kb": 2**10, "mb": 2**20, "gb": 2**30}


def rate_of(text):
    """Bytes per second of tc's "1gbit"; None for none."""
    for unit, bits in BITS_PER_S.items():
        if text.endswith(unit):
            return float(text[:-len(unit)]) * bits / 8
    return None


def burst_of(text):
    """Bytes of tc's "256kb"."""
    for unit, number in BYTES.items():
        if text.endswith(unit):
            return float(text[:-len(unit)]) * number
    return float(text)


def summary(result, num_elems, rate, burst):
    """Least and median seconds, bytes on the wire, and what they say.

    rate: bytes/s of a link, None where it is not shaped; burst: bytes that it
    takes at once after a pause. Times below what the link allows mean that the
    hosts did not begin together; they are left out and counted.
    """
    if result["error"] or not result["seconds"]:
        return None
    sent = statistics.median(result["sent_bytes"])
    # What each link must carry in turn: of sums, alike in both directions on
    # all hosts.
    each = sent / result["senders"]
    link_s = max(0, each - burst) / rate if rate else math.nan
    # What the shaper lets pass beyond its rate; counters have start-up in them.
    seconds = [time for time in result["seconds"] if not time < 0.99 * link_s]
    if not seconds:
        return None
    return {"min_s": min(seconds), "median_s": statistics.median(seconds),
            "sent_bytes": sent, "bits_per_element": 8 * each / num_elems,
            "rejected": len(result["seconds"]) - len(seconds),
            "link_s": link_s}


def why_not(result):
    """The last line of what it said, as a cell of the table."""
    nothing = ("all times below what the link allows" if result.get("seconds")
               else "no iteration")
    said = [line for line in (result["error"] or "").splitlines()
            if any(each.isalnum() for each in line)] or [nothing]
    return "not measured: " + said[-1].strip()[:160].replace("|", "/")


def several(options):
    """What is more than one between two hosts."""
    words = [(options.rails, "devices per host"),
             (options.paths, "hashed paths per link"),
             (options.connections, "connections of Telegrad to a peer")]
    return "".join(f"{number} {what}, " for number, what in words if number > 1)


def write_table(options, shapes, setup, results):
    num_elems = sum(math.prod(shape) for shape in shapes)
    rate = rate_of(options.rate)
    if rate is not None:
        rate *= options.rails * options.paths
    burst = burst_of(options.burst) * options.rails * options.paths
    rows = {name: summary(result, num_elems, rate, burst)
            for name, result in results.items()}
    gloo = rows.get("gloo allreduce")
    where = "on hosts of their own" if setup.apart else "beside the workers"
    lines = [
        f"# {options.profile}, {setup.workers} workers, {options.rate}", "",
        f"{num_elems:,} elements, {setup.servers} servers {where}, links "
        f"{options.rate} with burst {options.burst} both ways, "
        f"{several(options)}"
        f"{options.repeats} rounds of {options.iterations} iterations, "
        f"{'a core per host, ' if options.cores else ''}{os.cpu_count()} "
        f"cores; {time.strftime('%Y-%m-%d')}, commit {commit()}.", "",
        "| contestant | min s | median s | bits/element sent per host | "
        "its bytes less a burst at the link's rate, s | times gloo (min) |",
        "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        if row is None:
            lines.append(f"| {name} | {why_not(results[name])} | | | | |")
            continue
        times = f"{gloo['min_s'] / row['min_s']:.2f}" if gloo else ""
        link = "" if math.isnan(row["link_s"]) else f"{row['link_s']:.4g}"
        lines.append(f"| {name} | {row['min_s']:.4g} | {row['median_s']:.4g} |"
                     f" {row['bits_per_element']:.2f} | {link} | {times} |")
        row["link_s"] = None if math.isnan(row["link_s"]) else row["link_s"]
    rejected = {name: row["rejected"] for name, row in rows.items()
                if row and row["rejected"]}
    if rejected:
        lines += ["", "Left out, as the hosts did not begin together (less "
                  "than the link allows): " +
                  ", ".join(f"{number} of {name}"
                            for name, number in rejected.items()) + "."]
    if any(result["senders"] == 1 for result in results.values()):
        lines += ["", "One way: no sum, as many bytes from one host to another "
                  "in messages of 1 MiB, 64 of them at once. There and back: "
                  "in messages of 8 MiB, one after the other, every other in "
                  "the other direction; the shaper's burst is a credit of each "
                  "of them."]
    text = "\n".join(lines) + "\n"
    print(text)
    write(options, [{"name": name, **(row or {}), "raw": results[name]}
                    for name, row in rows.items()])
    announce(options.out)
