"""What the trainer costs: telegrad-train with one worker beside a plain libtorch loop.

    python3 perf/trainer_cost --build build/release

In each of `--repeats` rounds both train once, one thread each; MNIST's shape, float32,
SGD with momentum. Telegrad has a server process, whose exchange is part of its time, and
its metrics. Prints a table, and writes it as JSON to perf/results.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "side_by_side"))

from results import announce, default_out, write  # noqa: E402

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def plain(options, network, folder):
    run = subprocess.run(
        [os.path.join(options.build, "perf", "plain_loop"), network,
         str(options.batch_size), str(options.steps)],
        env=ONE_THREAD, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["samples_per_s"]


def trainer(options, network, folder, *flags):
    flags = flags or ("--workers", "1")
    subprocess.run(
        [os.path.join(options.build, "trainer", "telegrad-train"), "--network", network,
         "--data", "digits", "--compare", "none", "--threads", "1",
         "--batch-size", str(options.batch_size), "--num-epochs", "1", "--num-batches",
         str(options.steps), "--out", folder, *flags],
        env=ONE_THREAD, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
        return json.load(file)[0]["samples_per_s"]


def local(options, network, folder):
    return trainer(options, network, folder, "--kv-store", "local")


WAYS = {"plain loop": plain, "telegrad-train, one server": trainer,
        "telegrad-train, local": local}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--out", help="file without its ending: .jsonl; by default in "
                        "perf/results, named after what is measured, the date and the "
                        "commit")
    options = parser.parse_args()
    options.out = options.out or default_out(["trainer-cost"])
    rows = [{"network": network, "way": way, "samples_per_s": []}
            for network in ("lenet", "mlp") for way in WAYS]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.repeats):
            for row in rows:
                got = WAYS[row["way"]](options, row["network"],
                                       os.path.join(folder, "out"))
                row["samples_per_s"].append(got)
                print(f"round {number + 1}: {row['network']}, {row['way']}: "
                      f"{got:.0f} samples/s, load {os.getloadavg()[0]:.1f}", flush=True)
    print("| network | way | samples/s | of the plain loop's |\n|---|---|---|---|")
    for row in rows:
        base = next(r for r in rows if r["network"] == row["network"])
        row["share"] = statistics.median(
            got / of for got, of in zip(row["samples_per_s"], base["samples_per_s"]))
        print(f"| {row['network']} | {row['way']} | "
              f"{statistics.median(row['samples_per_s']):.0f} | {100 * row['share']:.0f} % |")
    write(options, rows)
    announce(options.out)


if __name__ == "__main__":
    main()
