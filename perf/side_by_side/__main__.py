"""Telegrad beside its peers on emulated links, interleaved, in one run.

    python3 perf/side_by_side --build build/release [--rate 1gbit] [--workers 2]

Makes network namespaces joined by a bridge (root), and in each of `--repeats`
rounds runs every contestant once. Writes a table as Markdown and JSON.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import contestants
from lab import Lab
from table import write_table

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77
LIMIT_S = 300  # of one contestant in one round


class Setup:
    """Who is where: workers on hosts 0.., servers beside them or apart."""

    def __init__(self, workers, servers, apart):
        self.workers, self.servers, self.apart = workers, servers, apart
        self.num_hosts = workers + (servers if apart else 0)

    def server_hosts(self):
        first = self.workers if self.apart else 0
        return [first + i % max(1, self.num_hosts - first)
                for i in range(self.servers)]


class Run:
    """What a contestant is started with."""

    def __init__(self, options, profile, sizes):
        self.profile, self.sizes = profile, sizes
        self.iterations = options.iterations
        self.telegrad_perf = os.path.abspath(
            os.path.join(options.build, "perf", "telegrad-perf"))
        self.mxnet_python = options.mxnet_python
        self.cores = options.cores
        self.port = 0

    def warmup(self, starts_late=False):
        return 3 if starts_late else 1

    def bound(self, host, words):
        """The words on the host's core, if each has one."""
        if not self.cores:
            return words
        return ["taskset", "-c", str(host % os.cpu_count()), *words]


def shapes_of(profile):
    """The shapes in a gradient profile: name,shape,elements."""
    with open(profile, encoding="utf-8") as file:
        lines = file.read().splitlines()[1:]
    return [[int(n) for n in line.split(",")[1].split("x")] for line in lines
            if line and not line.startswith("#")]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stop(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def run_once(contestant, lab, setup, run):
    """One start of a contestant: (seconds per iteration, bytes of one)."""
    run.port = free_port()
    before = lab.sent_bytes()
    processes = []
    with tempfile.TemporaryFile("w+") as errors:
        for host, environment, words in contestant.start(lab, setup, run):
            processes.append(subprocess.Popen(
                lab.command(host, run.bound(host, words)), env={**os.environ, **environment},
                stdout=subprocess.PIPE, stderr=errors, text=True))
        try:
            out, _ = processes[-1].communicate(timeout=LIMIT_S)
            deadline = time.monotonic() + 30
            for process in processes[:-1]:
                process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            out = ""
        finally:
            stop(processes)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not lines:
            errors.seek(0)
            raise RuntimeError(f"{contestant.name}: no result; it said: "
                               + errors.read()[-600:])
    iterations = run.iterations + run.warmup(
        getattr(contestant, "kind", "") == "powersgd")
    sent = (lab.sent_bytes() - before) / iterations
    return contestants.seconds_of(lines[-1]), sent


def chosen(options):
    wanted = options.only.split(",") if options.only else [""]
    found = [c for c in contestants.ALL
             if any(w.lower() in c.name.lower() for w in wanted)]
    if not found:
        names = ", ".join(c.name for c in contestants.ALL)
        sys.exit(f"--only '{options.only}' names none of: {names}")
    if options.mxnet_python is None:
        found = [c for c in found
                 if not isinstance(c, contestants.Mxnet)]
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/release",
                        help="folder of the build with telegrad-perf")
    parser.add_argument("--profile", default="vgg16",
                        help="of topology/profiles, or FILE.csv")
    parser.add_argument("--rate", default="1gbit",
                        help="of each link, as tc takes it; none: unshaped")
    parser.add_argument("--burst", default="256kb", help="of the shaper")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=0,
                        help="on hosts of their own; 0: one beside each worker")
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--iterations", type=int, default=1,
                        help="of a contestant in each round")
    parser.add_argument("--cores", action="store_true",
                        help="bind each host to one core")
    parser.add_argument("--only", help="contestants whose names contain one "
                        "of these words, separated by commas")
    parser.add_argument("--mxnet-python", help="a Python with MXNet; without "
                        "it MXNet does not take part")
    parser.add_argument("--out", default="telegrad-out/side_by_side",
                        help="file without its ending: .md and .json")
    return parser.parse_args()


def check_lab():
    """Ends the program where there can be no lab."""
    try:
        if os.geteuid() != 0:
            raise PermissionError("this is not root")
        with Lab(1, None, ""):
            pass
    except (OSError, subprocess.CalledProcessError) as error:
        print("skipped: network namespaces need root, iproute2 and veth, "
              f"bridge and tbf of the kernel: {error}", file=sys.stderr)
        sys.exit(SKIPPED)


def profile_file(name):
    """(what telegrad-perf takes, the file)."""
    if name.endswith(".csv"):
        return os.path.abspath(name), os.path.abspath(name)
    path = os.path.join(HERE, "..", "..", "topology", "profiles", name + ".csv")
    if not os.path.exists(path):
        sys.exit(f"--profile {name}: no file {os.path.normpath(path)}")
    return name, path


def main():
    options = parse()
    taking_part = chosen(options)
    name, path = profile_file(options.profile)
    shapes = shapes_of(path)
    check_lab()
    setup = Setup(options.workers, options.servers or options.workers,
                  apart=options.servers > 0)
    rate = None if options.rate == "none" else options.rate
    results = {c.name: {"seconds": [], "sent_bytes": [], "error": None}
               for c in taking_part}
    with tempfile.TemporaryDirectory() as folder, \
            Lab(setup.num_hosts, rate, options.burst) as lab:
        sizes = os.path.join(folder, "sizes.json")
        with open(sizes, "w", encoding="utf-8") as file:
            json.dump(shapes, file)
        run = Run(options, name, sizes)
        for round_number in range(options.repeats):
            for contestant in taking_part:
                result = results[contestant.name]
                if result["error"]:
                    continue
                try:
                    seconds, sent = run_once(contestant, lab, setup, run)
                except RuntimeError as error:
                    result["error"] = str(error)
                    print(error, file=sys.stderr, flush=True)
                    continue
                result["seconds"] += seconds
                result["sent_bytes"].append(sent)
                print(f"round {round_number + 1}: {contestant.name}: "
                      f"{statistics.median(seconds):.4g} s, load "
                      f"{os.getloadavg()[0]:.1f}", flush=True)
    write_table(options, shapes, setup, results)
    sys.exit(any(result["error"] for result in results.values()))


if __name__ == "__main__":
    main()
