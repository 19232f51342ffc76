"""What messages between two hosts of a lab cost, and frames of its stores."""
import json
import os
import statistics
import subprocess
import tempfile

import contestants
from start import Run, Setup, free_port, have_a_core, run_once

MANY = 64  # tensors
TINY = 256  # elements of one


def measure(lab, telegrad_perf, what, *flags):
    """Rows of telegrad-perf between hosts 0 and 1."""
    words = [telegrad_perf, what, "--transport", "tcp", "--json", *flags,
             "--ranks", "2", "--rendezvous", f"{lab.address(0)}:{free_port()}"]
    start = [lab.command(host, [*words, "--rank", str(host), "--bind",
                                lab.address(host)]) for host in range(2)]
    other = subprocess.Popen(start[1], stdout=subprocess.DEVNULL)
    try:
        done = subprocess.run(start[0], text=True, capture_output=True,
                              check=True)
    finally:
        other.kill()
        other.wait()
    return [json.loads(line) for line in done.stdout.splitlines()]


def tiny_seconds(lab, build, count):
    """Of pushing and pulling `count` tiny tensors, a server on each host: all
    hosts share this machine, and so frames cost more the more there are."""
    hosts = len(lab.hosts)
    contestant = contestants.Telegrad(f"{count} tiny tensors", "pushpull",
                                      warmup=20)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as profile:
        profile.write("name,shape,elements\n")
        profile.writelines(f"t{i},{TINY},{TINY}\n" for i in range(count))
        profile.flush()
        seconds, _ = run_once(contestant, lab, Setup(hosts, hosts, apart=False),
                              Run(build, profile.name, iterations=200,
                                  cores=have_a_core(hosts)))
    return statistics.median(seconds)


def figures(lab, build, cores):
    """{field of the calibration: value} of the lab's link, which is not
    shaped, and its rate in bytes/s. `cores`: that each host has."""
    perf = os.path.join(build, "perf", "telegrad-perf")
    small, large = measure(lab, perf, "bandwidth", "--size", "8,2M")
    latency, = measure(lab, perf, "latency", "--size", "8")
    # CPU time is that of both ends: a message is sent once and received once.
    message_s = 1e-9 * small["cpu_ns_per_byte"] * small["size_bytes"] / 2
    byte_s = 1e-9 * large["cpu_ns_per_byte"] / 2
    # Each tensor more takes a host's core four frames more: a push sent and
    # received, an answer sent and received. A single one waits for two.
    one, many = (tiny_seconds(lab, build, count) for count in (1, MANY))
    wait_s = (many - one) / (MANY - 1) / 4
    frame_s = max(message_s, cores * wait_s)
    latency_s = 1e-6 * latency["p50_us"]
    return {"latency_s": latency_s,
            "message_cpu_s": message_s,
            "cpu_s_per_byte": byte_s,
            "frame_latency_s": max(latency_s, one / 2 - 2 * wait_s),
            "frame_cpu_s": frame_s}, 1e9 * large["algbw_GBps"]
