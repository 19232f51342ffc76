"""Trains for minutes while workers are killed, and says what that costs and what stays behind.

    TELEGRAD_TRAIN=build/release/trainer/telegrad-train \\
        python3 perf/kills [--minutes 240] [--piece 20] [--every 60] [--workers 4] [-- FLAGS]

One worker after the other is killed with SIGKILL, every so many seconds, under --elastic 1:W,
which goes on without it and starts another one. With --restart the run has no --elastic: the
whole job ends, and starts again with --resume. A run lasts for the minutes of a piece; the next
one resumes. Prints a line of JSON for each piece, and one of all:

- `rss_mib_per_h`: the steepest slope of resident memory of a process that lives on, by least
  squares, without its first quarter; `descriptors`: the most that one has more at its end;
- `left`: processes, and files in /dev/shm, that a piece has left behind;
- `goodput_steps`: steps that count, of all that were made; `goodput`: steps that count, of those
  that as many seconds without kills would have made at the median rate between two kills.

Ends with 1 where something was left, where a run did not go on, or where no kill came.
"""
import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from members import members, read

TRAIN = os.path.abspath(os.environ.get("TELEGRAD_TRAIN", "build/release/trainer/telegrad-train"))
SAVED = re.compile(r"checkpoint of step (\d+)")
WENT_ON = re.compile(r"(\d+) workers? went on from step (\d+).* and did (\d+) of them once more")
FLAGS = ["--network", "mlp", "--data", "digits", "--num-epochs", "1000000", "--gc-type", "2bit",
         "--disp-batches", "1000000", "--checkpoint", "ck"]
FIRST = 0.25  # of a process' life, in which it may grow


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=240)
    parser.add_argument("--piece", type=float, default=20, help="minutes of one run")
    parser.add_argument("--every", type=float, default=60, help="seconds between two kills")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--spare", type=int, default=0, metavar="N",
                        help="workers 0 to N-1 are not killed, so that their memory is seen")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--save", type=int, default=50, help="steps between two checkpoints")
    parser.add_argument("--restart", action="store_true", help="--resume in place of --elastic")
    parser.add_argument("--dir", help="where checkpoints are for that time, such as /dev/shm")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("flags", nargs="*", help="further ones of the trainer")
    options = parser.parse_args()
    if not 0 <= options.spare < options.workers:
        parser.error(f"--spare is {options.spare}, must be in [0, {options.workers})")
    return options


class Growth:
    """Memory and descriptors of processes, sampled while they live."""

    def __init__(self):
        self.samples = {}  # (title, pid) -> [(seconds, MiB, descriptors)]

    def look(self, parent):
        for title, pid in members(parent).items():
            resident = re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{pid}/status"))
            try:
                count = len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
            if resident:
                self.samples.setdefault((title, pid), []).append(
                    (time.monotonic(), int(resident.group(1)) / 1024, count))

    def steepest(self):
        """(MiB an hour, descriptors more) at most, with the process of each; of those that
        lived as long as half of the longest."""
        lives = {key: one[-1][0] - one[0][0] for key, one in self.samples.items()}
        slopes, more = [(0.0, "")], [(0, "")]
        for key, one in self.samples.items():
            if lives[key] < max(lives.values()) / 2:
                continue
            late = [each for each in one if each[0] >= one[0][0] + FIRST * lives[key]]
            if len(late) > 2 and late[-1][0] > late[0][0]:
                times, sizes = [each[0] for each in late], [each[1] for each in late]
                middle = statistics.fmean(times)
                slope = sum((at - middle) * size for at, size in zip(times, sizes)) / sum(
                    (at - middle) ** 2 for at in times)
                slopes.append((slope * 3600, key[0]))
                half = len(late) // 2
                more.append((max(each[2] for each in late[half:]) -
                             max(each[2] for each in late[:half]), key[0]))
        return max(slopes), max(more)


class Piece:
    """One run, and what its lines have told."""

    def __init__(self, options, folder, resumes):
        way = [] if options.restart else ["--elastic", f"1:{options.workers}"]
        self.start = time.monotonic()
        self.run = subprocess.Popen(
            [TRAIN, *FLAGS, "--workers", str(options.workers), "--servers", str(options.servers),
             "--checkpoint-every", str(options.save), *way, *(["--resume"] if resumes else []),
             *options.flags], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.saved, self.again, self.went_on, self.text = [], 0, 0, []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.run.stdout:
            self.text = [*self.text[-40:], line]
            for step in SAVED.findall(line):
                self.saved.append((time.monotonic(), int(step)))
            for _, _, again in WENT_ON.findall(line):
                self.again += int(again)
                self.went_on += 1

    def wait(self):
        """For its first checkpoint, behind which it has started."""
        until = time.monotonic() + 120
        while not self.saved and self.run.poll() is None and time.monotonic() < until:
            time.sleep(0.05)

    def end(self):
        self.wait()
        self.run.terminate()
        code = self.run.wait(60)
        self.reader.join(10)
        return code

    def newest(self):
        return self.saved[-1][1] if self.saved else 0


def left_behind(folder, shared):
    """Processes that work in the folder, and files in /dev/shm that were not there."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == folder:
                found.append(f"process {pid}")
        except OSError:
            pass
    new = set(os.listdir("/dev/shm")) - shared
    for pid in filter(str.isdigit, os.listdir("/proc")) if new else ():
        maps = read(f"/proc/{pid}/maps")  # of others that run beside this
        new = {name for name in new if f"/dev/shm/{name}" not in maps}
    return found + [f"/dev/shm/{name}" for name in new]


def pause(seconds, piece, growth):
    """Looks at the processes meanwhile; false: the run has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and piece.run.poll() is None:
        if piece.saved:  # all are there, and train
            growth.look(piece.run.pid)
        time.sleep(max(0, min(1, until - time.monotonic())))
    return piece.run.poll() is None


def kill_one(piece, victim, killed, is_end):
    """Behind a checkpoint of this run: nothing begins anew. Waits for what comes of it: the
    others go on, or `is_end`."""
    piece.wait()
    pid, before = members(piece.run.pid).get(f"worker {victim}"), piece.went_on
    if pid is None or not piece.saved:
        return
    killed.append(time.monotonic())
    os.kill(pid, signal.SIGKILL)
    while (piece.run.poll() is None and time.monotonic() < killed[-1] + 120 and
           (is_end or piece.went_on == before)):
        time.sleep(0.02)


def rates(saved, killed):
    """Steps a second between two checkpoints without a kill in between or just before."""
    return [(step - before) / (at - start)
            for (start, before), (at, step) in zip(saved, saved[1:])
            if step > before and not any(start - 5 <= each <= at for each in killed)]


def one_piece(options, folder, base, number, rng):
    """What is told of it, the checkpoints' times, the kills'; `base`: steps until then."""
    growth, killed, saved, again, restarts, went_on = Growth(), [], [], 0, 0, 0
    start, shared = time.monotonic(), set(os.listdir("/dev/shm"))
    until = start + options.piece * 60
    piece = Piece(options, folder, base > 0)
    while True:
        if pause(min(options.every, until - time.monotonic()), piece, growth):
            if time.monotonic() >= until:
                break
            kill_one(piece, rng.randrange(options.spare, options.workers), killed, options.restart)
            continue
        if not options.restart or piece.run.returncode != 20:
            sys.exit(f"ended with {piece.run.returncode}\n{''.join(piece.text)}")
        piece.reader.join(10)
        saved, restarts = saved + piece.saved, restarts + 1
        piece = Piece(options, folder, bool(saved) or base > 0)
    code = piece.end()
    saved, again, went_on = saved + piece.saved, again + piece.again, piece.went_on
    if code != 128 + signal.SIGTERM or not saved:
        sys.exit(f"ended with {code}\n{''.join(piece.text)}")
    left = []
    for _ in range(50):
        left = left_behind(folder, shared)
        if not left:
            break
        time.sleep(0.1)
    (slope, whose), (more, who) = growth.steepest()
    told = {"piece": number, "seconds": round(time.monotonic() - start, 1), "kills": len(killed),
            "went_on": went_on, "restarts": restarts, "steps": saved[-1][1] - base,
            "steps_again": again, "rss_mib_per_h": round(slope, 1), "rss_of": whose,
            "descriptors": more, "descriptors_of": who, "left": left}
    return told, saved, killed


def goodput(told, clean):
    kept, again = (sum(each[name] for each in told) for name in ("steps", "steps_again"))
    seconds = sum(each["seconds"] for each in told)
    whole = {"goodput_steps": round(kept / max(1, kept + again), 4)}
    if clean:
        whole["goodput"] = round(kept / (statistics.median(clean) * seconds), 4)
    return whole


def main():
    options = parse()
    rng, told, clean = random.Random(options.seed), [], []
    options.piece = min(options.piece, options.minutes)
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="telegrad-kills-") as folder:
        base = 0
        for number in range(max(1, round(options.minutes / options.piece))):
            one, saved, killed = one_piece(options, folder, base, number, rng)
            base = saved[-1][1]
            clean += rates(saved, killed)
            told.append(one)
            print(json.dumps({**one, **goodput([one], rates(saved, killed))}), flush=True)
    total = {name: sum(each[name] for each in told)
             for name in ("kills", "went_on", "restarts", "steps", "steps_again")}
    print(json.dumps({"all": True, "workers": options.workers, "every_s": options.every, **total,
                      "seconds": round(sum(each["seconds"] for each in told), 1),
                      "rss_mib_per_h": max(each["rss_mib_per_h"] for each in told),
                      "descriptors": max(each["descriptors"] for each in told),
                      "left": [one for each in told for one in each["left"]], **goodput(told, clean)}))
    return any(each["left"] for each in told) or total["went_on"] + total["restarts"] == 0


if __name__ == "__main__":
    sys.exit(main())
