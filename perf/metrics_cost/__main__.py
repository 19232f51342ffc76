"""What being scraped once a second costs a training: its step with and without.

    python3 perf/metrics_cost --build build/release

In each of `--repeats` rounds telegrad-train runs three times, in turns: without
--metrics-port, with each process scraped once a second, and scraped as fast as it goes,
which tells the CPU time of a scrape. 2 workers, a server and a scheduler; a profile of 1,000
tensors, more than a page shows. Prints medians, and writes them to perf/results.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "side_by_side"))

from results import announce, default_out, write  # noqa: E402

PAUSES_S = {"plain": None, "each second": 1, "at once": 0}


class Scraper(threading.Thread):
    """Reads every endpoint that `log` names, with a pause between two rounds."""

    def __init__(self, log, pause_s):
        super().__init__(daemon=True)
        self.log, self.pause_s, self.is_over = log, pause_s, threading.Event()
        self.scrapes, self.series = 0, 0

    def run(self):
        while not self.is_over.wait(self.pause_s or 0.001):
            with open(self.log, encoding="utf-8", errors="replace") as file:
                addresses = re.findall(r"metrics at (\S+)", file.read())
            for address in addresses:
                try:
                    with urllib.request.urlopen(address, timeout=5) as answer:
                        text = answer.read().decode()
                except OSError:
                    continue  # it has ended
                self.scrapes += 1
                self.series = max(self.series, len(re.findall(r"^telegrad", text, re.M)))


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(options, profile, folder, pause_s):
    """Seconds of a step, of all processes' CPUs, scrapes, series."""
    log = os.path.join(folder, "log")
    command = [os.path.join(options.build, "trainer", "telegrad-train"), "--benchmark", "1",
               "--network", f"profile:{profile}", "--gc-type", "2bit",
               "--num-batches", str(options.steps), "--workers", "2", "--servers", "1",
               "--out", os.path.join(folder, "out")]
    before = cpu_s()
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command + ([] if pause_s is None else ["--metrics-port", "0"]),
            stdout=subprocess.DEVNULL, stderr=file)
    scraper = Scraper(log, pause_s)
    if pause_s is not None:
        scraper.start()
    code = process.wait()
    scraper.is_over.set()
    if code != 0:
        with open(log, encoding="utf-8", errors="replace") as file:
            sys.exit(f"telegrad-train ended with {code}\n{file.read()[-2000:]}")
    with open(os.path.join(folder, "out", "summary.json"), encoding="utf-8") as file:
        step_s = json.load(file)[0]["seconds"] / options.steps
    return {"step_s": step_s, "cpu_s": cpu_s() - before, "scrapes": scraper.scrapes,
            "series": scraper.series}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--elements", type=int, default=20000, help="of each tensor")
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--out", help="file without its ending: .jsonl")
    options = parser.parse_args()
    options.out = options.out or default_out(["metrics-cost"])
    runs = {name: [] for name in PAUSES_S}
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "many.csv")
        with open(profile, "w", encoding="utf-8") as file:
            file.write("name,shape,elements\n" + "".join(
                f"layer{i}.w,{options.elements},{options.elements}\n"
                for i in range(options.tensors)))
        for number in range(options.repeats):
            for name in sorted(PAUSES_S, reverse=bool(number % 2)):
                run = train(options, profile, folder, PAUSES_S[name])
                runs[name].append(run)
                print(f"round {number + 1}, {name}: {1e3 * run['step_s']:.1f} ms a step, "
                      f"{run['cpu_s']:.2f} s of CPUs, {run['scrapes']} scrapes, load "
                      f"{os.getloadavg()[0]:.1f}", flush=True)
    ratio = statistics.median(scraped["step_s"] / plain["step_s"] for scraped, plain in
                              zip(runs["each second"], runs["plain"]))
    scrape_s = statistics.median((fast["cpu_s"] - plain["cpu_s"]) / fast["scrapes"]
                                 for fast, plain in zip(runs["at once"], runs["plain"]))
    series = max(run["series"] for all_runs in runs.values() for run in all_runs)
    print(f"a step scraped each second / without: {ratio:.4f}; a scrape takes "
          f"{1e3 * scrape_s:.2f} ms of a CPU, of each second {100 * scrape_s:.3f} %; at most "
          f"{series} series")
    write(options, [{"ratio": ratio, "scrape_cpu_s": scrape_s, "series": series, **runs}])
    announce(options.out)


if __name__ == "__main__":
    main()
