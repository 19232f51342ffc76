"""How long workers that are left stand still when one of them is killed.

    TELEGRAD_TRAIN=build/release/trainer/telegrad-train \\
        python3 perf/death_gap [--workers 4] [--runs 5] [-- FLAGS of the trainer]

Each run trains ResNet-20 with `2bit` and --elastic, with checkpoints in memory; one of
the workers, another one in each run, is killed with SIGKILL between two checkpoints.
Prints the seconds from the end of the last step before the death to that of the first
one after it, as worker 0 has measured them, and how many steps were done once more.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TRAIN = os.environ.get("TELEGRAD_TRAIN", "build/release/trainer/telegrad-train")
WENT_ON = re.compile(r"workers went on from step (\d+), ([\d.]+) s between two steps, "
                     r"and did (\d+)")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--every", type=int, default=10, help="steps of a checkpoint")
    parser.add_argument("flags", nargs="*", help="further ones of the trainer")
    return parser.parse_args()


def worker(parent, rank):
    """The process id of that child of the launcher; None: not there yet."""
    with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
        for pid in file.read().split():
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                if f"worker {rank} of".encode() in line.read():
                    return int(pid)
    return None


def lose(options, rank):
    """(seconds, steps done once more, seconds of a step) of a run that loses it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="telegrad-gap-") as folder:
        command = [os.path.abspath(TRAIN), "--network", "resnet20", "--benchmark", "1",
                   "--batch-size", "8", "--image-shape", "3,32,32", "--num-examples",
                   str(8 * options.workers * 12 * options.every), "--num-epochs", "1",
                   "--workers", str(options.workers), "--gc-type", "2bit", "--mom", "0.9",
                   "--checkpoint", "ck", "--checkpoint-every", str(options.every),
                   "--elastic", "1", "--disp-batches", str(options.every), *options.flags]
        run = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        seen, text = 0, []
        for line in run.stdout:
            text.append(line)
            seen += "checkpoint of step" in line
            if seen == 3:
                seen += 1
                time.sleep(0.3)
                os.kill(worker(run.pid, rank), signal.SIGKILL)
        found = WENT_ON.search("".join(text))
        if run.wait() != 0 or found is None:
            sys.exit("".join(text))
        with open(os.path.join(folder, "telegrad-out/summary.json"),
                  encoding="utf-8") as file:
            summary, = json.load(file)
        return (float(found[2]), int(found[3]), summary["seconds"] / summary["steps"])


def main():
    options = parse()
    runs = [lose(options, number % options.workers) for number in range(options.runs)]
    gaps = [gap for gap, _, _ in runs]
    for number, (gap, again, step_s) in enumerate(runs):
        print(json.dumps({"killed": number % options.workers, "gap_s": gap,
                          "steps_again": again, "step_s": round(step_s, 3)}))
    print(json.dumps({"median_s": statistics.median(gaps), "most_s": max(gaps)}))


if __name__ == "__main__":
    main()
