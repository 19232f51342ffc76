"""Telegrad beside its peers on emulated links, interleaved, in one run.

    python3 perf/side_by_side --build build/release [--rate 1gbit] [--workers 2]

Makes network namespaces joined by a bridge (root), and in each of `--repeats`
rounds runs every contestant once. Writes a table as Markdown and JSON to
perf/results, and says where.
"""
import argparse
import json
import math
import os
import statistics
import sys
import tempfile

import contestants
from lab import Lab
from results import default_out, plural, profile_name, rate_name
from start import (Run, Setup, check_lab, profile_file, program_of,
                   run_once, shapes_of)
from table import write_table


def num_bytes_of(shapes):
    return 4 * sum(math.prod(shape) for shape in shapes)


def chosen(options):
    wanted = options.only.split(",") if options.only else [""]
    found = [c for c in contestants.ALL
             if any(w.lower() in c.name.lower() for w in wanted)]
    if not found:
        names = ", ".join(c.name for c in contestants.ALL)
        sys.exit(f"--only '{options.only}' names none of: {names}")
    able = [c for c in found if not c.needs or getattr(options, c.needs)]
    if not able:
        flags = sorted({"--" + c.needs.replace("_", "-") for c in found})
        sys.exit(f"--only '{options.only}' needs {' and '.join(flags)}")
    return [each for c in able for each in with_before(c, options.before)]


def with_before(contestant, build):
    """It, and beside it the same by an earlier build where one is given."""
    if not build or not isinstance(contestant, contestants.Telegrad):
        return [contestant]
    return [contestant, contestant.of_build(build)]


def words_of(options):
    """What is measured, for the name of its results."""
    rate = rate_name(options.rate)
    if options.rails > 1:
        rate = f"{options.rails}-rails-of-{rate}"
    if options.paths > 1:
        rate = f"{options.paths}-paths-of-{rate}"
    words = ["side-by-side", profile_name(options.profile), rate,
             plural(options.workers, "worker")]
    if options.per_host > 1:
        words.append(f"{options.per_host}-per-host")
    if options.servers:
        words.append(plural(options.servers, "server"))
    return words


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/release",
                        help="folder of the build with telegrad-perf")
    parser.add_argument("--before", metavar="BUILD", help="folder of an earlier "
                        "build, whose telegrad-perf takes part, too")
    parser.add_argument("--profile", default="vgg16",
                        help="of topology/profiles, or FILE.csv")
    parser.add_argument("--rate", default="1gbit",
                        help="of each link, as tc takes it; none: unshaped")
    parser.add_argument("--burst", default="256kb", help="of the shaper")
    parser.add_argument("--rails", type=int, default=1,
                        help="devices of each host, each with such a link; "
                        "Telegrad takes them all")
    parser.add_argument("--paths", type=int, default=1, choices=(1, 2, 4, 8),
                        help="of each link, each of that rate; a connection "
                        "has the one that its ports hash to, as in a bond")
    parser.add_argument("--connections", type=int, default=1,
                        help="of Telegrad to each peer")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--per-host", type=int, default=1,
                        help="workers of each host")
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
    parser.add_argument("--ps-lite-benchmark", help="BytePS's ps-lite, its "
                        "tests/test_benchmark.cc as a program (docs/"
                        "benchmarks.md); without it ps-lite does not take part")
    parser.add_argument("--out",
                        help="file without its ending: .jsonl; by "
                        "default in perf/results, named after what is "
                        "measured, the date and the commit")
    options = parser.parse_args()
    if options.before and not os.access(program_of(options.before), os.X_OK):
        parser.error(f"--before {options.before}: no program "
                     + program_of(options.before))
    if options.per_host < 1 or options.workers % options.per_host:
        parser.error("--per-host divides --workers")
    if options.rails < 1 or not 1 <= options.connections <= 64:
        parser.error("--rails from 1, --connections from 1 to 64")
    if options.paths > 1 and options.rate == "none":
        parser.error("--paths needs a --rate")
    options.out = options.out or default_out(words_of(options))
    return options


def main():
    options = parse()
    taking_part = chosen(options)
    name, path = profile_file(options.profile)
    shapes = shapes_of(path)
    check_lab()
    setup = Setup(options.workers, options.servers or options.workers,
                  apart=options.servers > 0, per_host=options.per_host)
    rate = None if options.rate == "none" else options.rate
    results = {c.name: {"seconds": [], "sent_bytes": [], "error": None,
                        "senders": c.senders or options.workers // options.per_host}
               for c in taking_part}
    with tempfile.TemporaryDirectory() as folder, \
            Lab(setup.num_hosts, rate, options.burst, options.rails,
                options.paths) as lab:
        sizes = os.path.join(folder, "sizes.json")
        with open(sizes, "w", encoding="utf-8") as file:
            json.dump(shapes, file)
        run = Run(options.build, name, options.iterations, sizes,
                  options.cores, options.mxnet_python, options.connections,
                  num_bytes_of(shapes), options.ps_lite_benchmark)
        for round_number in range(options.repeats):
            # Who comes after another finds its memory at hand: turns change.
            for contestant in taking_part[::-1 if round_number % 2 else 1]:
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
