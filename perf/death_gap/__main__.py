"""How long workers stand still when one of them is killed, and when another one comes.

    TELEGRAD_TRAIN=build/release/trainer/telegrad-train \\
        python3 perf/death_gap [--workers 4] [--servers 1] [--kill worker] [--runs 5] \\
        [-- FLAGS of the trainer]

With `-- --kv-store allreduce` workers sum for each other, without servers.

Each run trains ResNet-20 with `2bit` and --elastic, with checkpoints in memory; one of
the workers (or of several servers), another one in each run, is killed with SIGKILL between
two checkpoints, and the launcher starts it again. Prints the seconds from the end of the last
step before the death to that of the first one after it, as worker 0 has measured them, and how
many steps were done once more; the same of the step at which the new one comes in; and the
seconds from the kill to the first step of all. Where the new one was there before the others
went on, it is one pause.
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

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kills"))
from members import members  # noqa: E402

TRAIN = os.environ.get("TELEGRAD_TRAIN", "build/release/trainer/telegrad-train")
WENT_ON = re.compile(r"(\d+) workers? went on from step (\d+), ([\d.]+) s "
                     r"(?:between two steps|after it came in), and did (\d+)")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--kill", choices=("worker", "server"), default="worker")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--every", type=int, default=10, help="steps of a checkpoint")
    parser.add_argument("flags", nargs="*", help="further ones of the trainer")
    return parser.parse_args()


def lose(options, victim):
    """What is printed of a run that loses it and gets another one."""
    servers = ["--servers", str(options.servers)] if options.servers > 1 else []
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="telegrad-gap-") as folder:
        command = [os.path.abspath(TRAIN), "--network", "resnet20", "--benchmark", "1",
                   "--batch-size", "8", "--image-shape", "3,32,32", "--num-examples",
                   str(8 * options.workers * 12 * options.every), "--num-epochs", "1",
                   "--workers", str(options.workers), *servers, "--gc-type", "2bit", "--mom", "0.9",
                   "--checkpoint", "ck", "--checkpoint-every", str(options.every),
                   "--elastic", f"1:{options.workers}", "--disp-batches", str(options.every), *options.flags]
        run = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        seen, text, found, killed_at, whole_at = 0, [], [], 0, 0
        for line in run.stdout:
            text.append(line)
            seen += "checkpoint of step" in line
            if seen == 3:
                seen += 1
                time.sleep(0.3)
                os.kill(members(run.pid)[victim], signal.SIGKILL)
                killed_at = time.monotonic()
            match = WENT_ON.search(line)
            if match:
                found.append(match.groups())
                whole_at = time.monotonic()
        if run.wait() != 0 or not found or found[-1][0] != str(options.workers):
            sys.exit("".join(text))
        with open(os.path.join(folder, "telegrad-out/summary.json"),
                  encoding="utf-8") as file:
            summary, = json.load(file)
    told = {"killed": victim, "gap_s": float(found[0][2]), "steps_again": int(found[0][3])}
    if len(found) > 1:
        told.update(join_gap_s=float(found[-1][2]), join_steps_again=int(found[-1][3]))
    told.update(whole_after_s=round(whole_at - killed_at, 2),
                step_s=round(summary["seconds"] / summary["steps"], 3))
    return told


def main():
    options = parse()
    count = options.workers if options.kill == "worker" else options.servers
    runs = [lose(options, f"{options.kill} {(number + 1) % count}")
            for number in range(options.runs)]
    for told in runs:
        print(json.dumps(told))
    total = {}
    for name in ("gap_s", "join_gap_s", "whole_after_s"):
        values = [told[name] for told in runs if name in told]
        if values:
            total[name] = {"median": statistics.median(values), "most": max(values)}
    print(json.dumps(total))


if __name__ == "__main__":
    main()
