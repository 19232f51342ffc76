"""Measures plans of an exchange on emulated links, and judges the planner's.

    python3 perf/grid --build build/release [--points small]
    python3 perf/grid --merge A.jsonl B.jsonl --out all

For each point (nodes, link, gradients) calibrates the machine, asks
telegrad-topo for its choice and its predictions, as planner and as simulator,
measures every plan in turn, and all that again --repeats times; writes a table
as Markdown and JSON after each point. Needs root. Merging measures nothing.
"""
import argparse
import csv
import itertools
import math
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "side_by_side"))

import contestants  # noqa: E402
import link  # noqa: E402
import memory  # noqa: E402
import report  # noqa: E402
from lab import Lab  # noqa: E402
from planner import PLANS, WARMUP, Planner  # noqa: E402
from results import (announce, default_out, profile_name,  # noqa: E402
                     rate_name)
from start import (Run, Setup, check_lab, have_a_core,  # noqa: E402
                   profile_file, run_once)

GBPS = {"100mbit": 0.1, "1gbit": 1, "10gbit": 10}
LENET = os.path.join(HERE, "lenet.csv")
GRIDS = {  # nodes, links, gradients
    "all": ((2, 4), ("100mbit", "1gbit", "10gbit", "none"),
            (LENET, "resnet50", "vgg16")),
    "small": ((2,), ("100mbit", "10gbit"), (LENET, "resnet50")),
    "one": ((2,), ("1gbit",), (LENET,)),
}
# A credit of every iteration: 5 ms of the rate, at most 1 % of a payload but
# not less than a frame needs.
BURSTS = {"100mbit": "64kb", "1gbit": "256kb", "10gbit": "4mb", "none": ""}
LONG_S = 5  # what takes longer is measured once, with nothing before


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/release",
                        help="folder of the build with telegrad-perf")
    parser.add_argument("--points", choices=GRIDS, default="all")
    parser.add_argument("--nodes", help="instead of the grid's: 2,4")
    parser.add_argument("--rates", help="instead of the grid's, of "
                        + ",".join(BURSTS))
    parser.add_argument("--profiles", help="instead of the grid's: resnet50, "
                        "FILE.csv")
    parser.add_argument("--repeats", type=int, default=3,
                        help=f"rounds; plans that take more than {LONG_S} s "
                        "run once")
    parser.add_argument("--quick", action="store_true",
                        help="calibrate briefly: to see that all works")
    parser.add_argument("--merge", nargs="+", metavar="FILE.jsonl",
                        help="make one table of what several runs wrote; "
                        "rounds of the same point count together")
    parser.add_argument("--out",
                        help="file without its ending: .jsonl; by "
                        "default in perf/results, named after what is "
                        "measured, the date and the commit")
    options = parser.parse_args()
    for rate in (options.rates or "none").split(","):
        if rate not in BURSTS:
            parser.error(f"--rates {rate}: one of {', '.join(BURSTS)}")
    options.out = options.out or default_out(
        ["grid"] if options.merge else words_of(options))
    return options


def axes(options):
    """Nodes, links, gradients, after the flags that replace them."""
    nodes, rates, profiles = GRIDS[options.points]
    if options.nodes:
        nodes = [int(each) for each in options.nodes.split(",")]
    if options.rates:
        rates = options.rates.split(",")
    if options.profiles:
        profiles = options.profiles.split(",")
    return nodes, rates, profiles


def words_of(options):
    """What is measured, for the name of its results."""
    nodes, rates, profiles = axes(options)
    return ["grid", *map(str, nodes), "nodes", *map(rate_name, rates),
            *map(profile_name, profiles)]


def elements_of(profile):
    with open(profile_file(profile)[1], encoding="utf-8") as file:
        return sum(int(row["elements"]) for row in csv.DictReader(file))


def steps_of(seconds):
    """(iterations that warm up, iterations) of what takes so long."""
    if seconds > LONG_S:
        return 0, 1
    iterations = min(200, 1 + math.ceil(1 / seconds))
    return 1 + iterations // 10, iterations


def calibrate(point, elements, options, build):
    """(the planner, the link's Gbit/s) on the machine as it is now: its codecs'
    and its network's speed both change with the hour."""
    # All nodes share this machine, and each is at most a worker's and a
    # server's thread.
    cores = min(2, (os.cpu_count() or 1) / point["nodes"])
    planner = Planner(build, point["nodes"], cores, elements, options.quick)
    iterations = max(6, min(200, 10**9 // elements))
    memory.touch(point["nodes"], elements)
    with Lab(point["nodes"], None, "") as lab:
        fields, fastest = link.figures(lab, build, point["profile"], iterations,
                                       planner.core())
    planner.set_link(fields)
    return planner, GBPS.get(point["rate"], 8e-9 * fastest)


def predict(point, options, build):
    """The planner's choice, and what it and the simulator say of each plan."""
    profile = point["profile"]
    planner, gbps = calibrate(point, elements_of(profile), options, build)
    name, predicted_s, reason = planner.choice(profile, gbps)
    point["choices"].append({"name": name, "predicted_s": predicted_s,
                             "reason": reason})
    point.update({"gbps": gbps, "calibration": planner.calibration})
    for name, plan in point["plans"].items():
        plan["predictions"].append(planner.predicted(name, profile, gbps))
        plan["simulations"].append(planner.simulated(name, profile, gbps))
    report.judge(point)


def measure(point, options, build):
    """One round of the point's plans."""
    nodes, rate = point["nodes"], point["rate"]
    setup = Setup(nodes, nodes, apart=False)
    elements = elements_of(point["profile"])
    with Lab(nodes, GBPS.get(rate) and rate, BURSTS[rate]) as lab:
        for name, plan in point["plans"].items():
            if plan["error"] or max(plan["seconds"], default=0) > LONG_S:
                continue
            warmup, iterations = steps_of(plan["predicted_s"])
            # A node has the cores that it was predicted with.
            run = Run(build, point["profile"], iterations,
                      cores=have_a_core(nodes))
            contestant = contestants.Telegrad(
                name, *PLANS[name], warmup=WARMUP.get(name, warmup))
            memory.touch(nodes, elements)
            try:
                seconds, _ = run_once(contestant, lab, setup, run)
            except RuntimeError as error:
                plan["error"] = str(error)
                print(error, file=sys.stderr, flush=True)
                continue
            plan["seconds"].append(statistics.median(seconds))


def make_point(nodes, rate, profile):
    return {"nodes": nodes, "rate": rate, "profile": profile, "choices": [],
            "plans": {name: {"seconds": [], "predictions": [],
                             "simulations": [], "error": None}
                      for name in PLANS}}


def measured_points(options):
    """All points so far, after each."""
    check_lab()
    build = os.path.abspath(options.build)
    points = []
    for nodes, rate, profile in itertools.product(*axes(options)):
        point = make_point(nodes, rate, profile_file(profile)[0])
        for _ in range(options.repeats):
            predict(point, options, build)
            measure(point, options, build)
        points.append(point)
        yield points


def main():
    options = parse()
    points = []
    for points in ([report.merge(options.merge)] if options.merge else
                   measured_points(options)):
        text = report.write(options, points)
        print(report.point_row(points[-1]), flush=True)
    print("\n" + text)
    announce(options.out)
    sys.exit(any(plan["error"] for point in points
                 for plan in point["plans"].values()))


if __name__ == "__main__":
    main()
