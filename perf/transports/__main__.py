"""Telegrad's transports beside their peers on this machine, interleaved.

    python3 perf/transports --build build/release

In each of `--repeats` rounds every contestant runs once, the two ends on a
core each. Writes a table as Markdown and JSON.
"""
import argparse
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "side_by_side"))

import contestants  # noqa: E402
from results import (announce, default_out,  # noqa: E402
                     write)

SIZES = (8, 4096, 65536, 2**20, 2**23)
ALLREDUCE_SIZES = (4096, 2**20)
UNITS = {"latency": "us", "bandwidth": "GB/s", "allreduce": "us"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/release",
                        help="folder of the build with telegrad-perf")
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--what", default="latency,bandwidth,allreduce",
                        help="of these")
    parser.add_argument("--over", default="tcp,shm", help="of these")
    parser.add_argument("--sizes", help="bytes, instead of the usual ones")
    parser.add_argument("--only", help="contestants whose names contain one "
                        "of these words, separated by commas")
    parser.add_argument("--out",
                        help="file without its ending: .jsonl; by "
                        "default in perf/results, named after what is "
                        "measured, the date and the commit")
    options = parser.parse_args()
    for what in options.what.split(","):
        if what not in UNITS:
            parser.error(f"--what {what}: one of {', '.join(UNITS)}")
    for over in options.over.split(","):
        if over not in ("tcp", "shm"):
            parser.error(f"--over {over}: tcp or shm")
    options.out = options.out or default_out(
        ["transports", *options.what.split(","), "over",
         *options.over.split(",")])
    return options


def sizes_of(options, what):
    if options.sizes:
        return [int(size) for size in options.sizes.split(",")]
    return list(ALLREDUCE_SIZES if what == "allreduce" else SIZES)


def measure(options, taking_part):
    """{(what, over, size, name): values of all rounds}, and what failed."""
    values, errors = {}, {}
    for number in range(options.repeats):
        for what in options.what.split(","):
            for over in options.over.split(","):
                for each in taking_part:
                    if not each.takes(what, over) or \
                            (what, over, each.name) in errors:
                        continue
                    sizes = sizes_of(options, what)
                    try:
                        found = each.measure(what, over, sizes)
                    except contestants.Failed as error:
                        errors[what, over, each.name] = str(error)
                        print(f"{each.name}: {error}", file=sys.stderr)
                        continue
                    for size in sizes:
                        values.setdefault((what, over, size, each.name),
                                          []).append(found[size])
        print(f"round {number + 1} of {options.repeats}, load "
              f"{os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return values, errors


def table_rows(values, taking_part):
    """One row for each contestant and size; peers with ours / theirs."""
    beside = {each.name: each.beside for each in taking_part}
    order = {each.name: i for i, each in enumerate(taking_part)}
    summary = {}
    for key, found in values.items():
        best = max(found) if key[0] == "bandwidth" else min(found)
        summary[key] = (best, statistics.median(found))
    rows = []
    for key in sorted(summary, key=lambda k: (list(UNITS).index(k[0]),
                                              k[1] != "tcp", k[2],
                                              order[k[3]])):
        what, over, size, name = key
        best, median = summary[key]
        row = {"what": what, "over": over, "size_bytes": size, "name": name,
               "unit": UNITS[what], "best": best, "median": median,
               "values": values[key]}
        ours = summary.get((what, over, size, beside[name].get(over)))
        if ours:
            row["beside"] = beside[name][over]
            row["best_ratio"] = ours[0] / best
            row["median_ratio"] = ours[1] / median
        rows.append(row)
    return rows


def size_text(size):
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def markdown(options, rows, errors):
    lines = [
        "# Transports beside their peers", "",
        f"{options.repeats} rounds, two ranks on one machine with "
        f"{os.cpu_count()} cores; {time.strftime('%Y-%m-%d')}. Latency is half "
        "a round trip, bandwidth that of a window of "
        f"{contestants.WINDOW} messages; a round's value is the median of its "
        "iterations (fi_pingpong, ucx_perftest's bandwidth: the mean). "
        "Messages carry no checksums but Telegrad's where the name says so "
        "(--resend: CRC-32C of header and payload, by both ends). A ratio "
        "is Telegrad's figure / the peer's: good where small for times, large "
        "for GB/s.", "",
        "| what | over | size | contestant | unit | best | median | beside | "
        "ratio of best | ratio of medians |", "|---|" + "---|" * 9]
    for row in rows:
        cells = [row["what"], row["over"], size_text(row["size_bytes"]),
                 row["name"], row["unit"], f"{row['best']:.4g}",
                 f"{row['median']:.4g}"]
        if "beside" in row:
            cells += [row["beside"], f"{row['best_ratio']:.2g}",
                      f"{row['median_ratio']:.2g}"]
        else:
            cells += ["", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [""] * bool(errors)
    lines += [f"- failed: {name}, {what} over {over}: {error}"
              for (what, over, name), error in errors.items()]
    return "\n".join(lines) + "\n"


def main():
    options = parse()
    words = options.only.lower().split(",") if options.only else [""]
    taking_part = contestants.all_of(options.build, words)
    if not taking_part:
        sys.exit("nobody takes part")
    values, errors = measure(options, taking_part)
    rows = table_rows(values, taking_part)
    text = markdown(options, rows, errors)
    print(text)
    write(options, rows + [{"what": what, "over": over, "name": name,
                            "error": error}
                           for (what, over, name), error in errors.items()])
    announce(options.out)
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
