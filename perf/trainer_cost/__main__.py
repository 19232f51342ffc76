"""What the trainer costs: telegrad-train with one worker beside a plain libtorch loop.

    python3 perf/trainer_cost --build build/release

In each of `--repeats` rounds both train once, one thread each; MNIST's shape, float32,
SGD with momentum. Telegrad has a server process, whose exchange is part of its time, and
its metrics. What a point of the metrics costs is told apart, by processes that note one in
each step. Prints a table, and writes it as JSON to perf/results.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "side_by_side"))

import blas  # noqa: E402
from results import announce, default_out, write  # noqa: E402

POINT_STEPS = 50  # --disp-batches without the flag
ONE_THREAD = {**blas.kernels(), **os.environ, "OMP_NUM_THREADS": "1"}


def plain(options, network, folder):
    run = subprocess.run(
        [os.path.join(options.build, "perf", "plain_loop"), network,
         str(options.batch_size), str(options.steps)],
        env=ONE_THREAD, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["samples_per_s"]


def trainer(options, network, folder, *flags, codec="none"):
    flags = flags or ("--workers", "1")
    subprocess.run(
        [os.path.join(options.build, "trainer", "telegrad-train"), "--network", network,
         "--data", "digits", "--compare", codec, "--threads", "1",
         "--batch-size", str(options.batch_size), "--num-epochs", "1", "--num-batches",
         str(options.steps), "--out", folder, *flags],
        env=ONE_THREAD, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
        return json.load(file)[0]["samples_per_s"]


def local(options, network, folder):
    return trainer(options, network, folder, "--kv-store", "local")


def cpu_seconds(options, network, codec, folder, point_steps):
    """CPU time of a training's processes, with a point of metrics in so many steps."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    trainer(options, network, folder, "--workers", "1", "--disp-batches", str(point_steps),
            codec=codec)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def metrics_share(options, network, codec, folder):
    """CPU time of metrics at the default of one point in 50 steps, of a training's."""
    often, once = (cpu_seconds(options, network, codec, folder, point_steps)
                   for point_steps in (1, options.steps))
    return (often - once) / POINT_STEPS / once


WAYS = {"plain loop": plain, "telegrad-train, one server": trainer,
        "telegrad-train, local": local}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--networks", default="lenet,mlp", help="of these")
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--out", help="file without its ending: .jsonl; by default in "
                        "perf/results, named after what is measured, the date and the "
                        "commit")
    options = parser.parse_args()
    options.out = options.out or default_out(["trainer-cost"])
    networks = options.networks.split(",")
    rows = [{"network": network, "way": way, "samples_per_s": []}
            for network in networks for way in WAYS]
    points = [{"network": network, "codec": codec, "metrics_share": []}
              for network in networks for codec in ("none", "2bit")]
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        for number in range(options.repeats):
            for row in rows:
                got = WAYS[row["way"]](options, row["network"], out)
                row["samples_per_s"].append(got)
                print(f"round {number + 1}: {row['network']}, {row['way']}: "
                      f"{got:.0f} samples/s, load {os.getloadavg()[0]:.1f}", flush=True)
            for row in points:
                row["metrics_share"].append(
                    metrics_share(options, row["network"], row["codec"], out))
    print("| network | way | samples/s | of the plain loop's |\n|---|---|---|---|")
    for row in rows:
        base = next(r for r in rows if r["network"] == row["network"])
        row["share"] = statistics.median(
            got / of for got, of in zip(row["samples_per_s"], base["samples_per_s"]))
        print(f"| {row['network']} | {row['way']} | "
              f"{statistics.median(row['samples_per_s']):.0f} | {100 * row['share']:.0f} % |")
    print("\n| network | codec | CPU time for metrics |\n|---|---|---|")
    for row in points:
        share = statistics.median(row["metrics_share"])
        print(f"| {row['network']} | {row['codec']} | {100 * share:.2f} % |")
    write(options, rows + points)
    announce(options.out)


if __name__ == "__main__":
    main()
