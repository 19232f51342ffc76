"""Time to an accuracy: Telegrad's trainer beside PyTorch's DDP over gloo.

    python3 perf/time_to_accuracy --build build/release --data mnist:DIR [--rate 1gbit]

Makes two network namespaces joined by a shaped link (root), and in each of `--repeats` rounds
trains once with every contestant; the round is the seed. A contestant is ddp, one of DDP's own
hooks (ddp_fp16, ddp_powersgd) or a setting of telegrad-train's --compare; after all of them
+lr= may follow. All have momentum 0.9. Evaluations are not timed. Writes a table as Markdown
and JSON to perf/results, and says where.
"""
import argparse
import json
import os
import re
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "side_by_side"))

import blas  # noqa: E402
from contestants import TORCH_PYTHON  # noqa: E402
from lab import Lab  # noqa: E402
from results import announce, default_out, rate_name, write  # noqa: E402
import start  # noqa: E402

start.LIMIT_S = 1200
HOSTS = 2


class Contestant:
    """A training on each host; both kinds meet at MASTER_ADDR as under torchrun."""

    def __init__(self, name, options, folder):
        self.name, self.options, self.folder = name, options, folder
        self.kind = name.split("+")[0]
        rates = [w[3:] for w in name.split("+")[1:] if w.startswith("lr=")]
        self.rate = rates[-1] if rates else options.lr

    def start(self, lab, setup, run):
        return [(host, {"MASTER_ADDR": lab.address(0), "MASTER_PORT": str(run.port),
                        "RANK": str(host), "LOCAL_RANK": "0",
                        "WORLD_SIZE": str(setup.workers), "OMP_NUM_THREADS": "1",
                        "GLOO_SOCKET_IFNAME": "eth0", **blas.kernels()},
                 self.words(lab.address(host), run))
                for host in reversed(range(setup.workers))]

    def words(self, address, run):
        given = self.options
        if self.kind.startswith("ddp"):
            return [TORCH_PYTHON, os.path.join(HERE, "torch_train.py"),
                    self.kind[4:] or "float32", given.network,
                    given.data, str(given.batch_size), self.rate, str(run.seed),
                    str(given.epoch_steps), str(given.epochs), given.target]
        return [sys.executable, os.path.join(HERE, "trainer.py"), self.folder,
                given.target, os.path.abspath(
                    os.path.join(given.build, "trainer", "telegrad-train")),
                "--network", given.network, "--data", given.data,
                "--batch-size", str(given.batch_size), "--lr", given.lr,
                "--num-batches", str(given.epoch_steps), "--num-epochs",
                str(given.epochs), "--seed", str(run.seed), "--threads", "1",
                "--transport", "tcp", "--insecure", "--bind", address,
                "--compare", self.name, "--out", self.folder]

    def sent_bytes(self, line, sent, run):
        return json.loads(line)["sent_bytes"]  # of rank 0's host, by the kernel


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/release",
                        help="folder of the build with telegrad-train")
    parser.add_argument("--data", required=True,
                        help="mnist:DIR, or for vgg11 cifar10:DIR")
    parser.add_argument("--network", default="mlp:4096,4096",
                        help="mlp:WIDTH,... or vgg11:maps=N")
    parser.add_argument("--rate", default="1gbit",
                        help="of each link, as tc takes it; none: unshaped")
    parser.add_argument("--burst", default="256kb", help="of the shaper")
    parser.add_argument("--target", default="0.97", help="accuracy on the test set")
    parser.add_argument("--lr", default="0.05", help="where a contestant has none")
    parser.add_argument("--batch-size", type=int, default=32, help="per worker")
    parser.add_argument("--epoch-steps", type=int, default=20,
                        help="steps between two evaluations")
    parser.add_argument("--epochs", type=int, default=50, help="at most so many of them")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--contestants",
                        default="ddp,ddp_fp16,ddp_powersgd,none,int4,int2,onebit")
    parser.add_argument("--out", help="file without its ending: .jsonl; by default in "
                        "perf/results, named after what is measured, the date and the "
                        "commit")
    options = parser.parse_args()
    kind, _, folder = options.data.partition(":")
    if {"mlp": "mnist", "vgg11": "cifar10"}.get(options.network.split(":")[0]) != kind:
        parser.error(f"--network {options.network} on --data {options.data}: there are "
                     "mlp:WIDTH,... on mnist:DIR and vgg11:maps=N on cifar10:DIR")
    options.data = f"{kind}:{os.path.abspath(folder)}"
    words = ["time-to-accuracy", re.sub("[:,=]", "-", options.network),
             rate_name(options.rate)]
    options.out = options.out or default_out(words)
    return options


def median(values):
    return statistics.median(values) if values else None


def row_of(name, runs, base):
    """A line of the table; `base` is the first contestant's runs, of the same seeds."""
    reached = [run for run in runs if run["seconds"] is not None]
    pairs = [b["seconds"] / r["seconds"] for b, r in zip(base, runs)
             if b["seconds"] is not None and r["seconds"] is not None]
    return {"contestant": name, "reached": len(reached), "of": len(runs),
            "steps": median([run["steps"] for run in reached]),
            "seconds": median([run["seconds"] for run in reached]),
            "step_s": median([run["accuracy"][-1][1] / run["accuracy"][-1][0]
                              for run in runs]),
            "sent_bytes_per_step": median([run["sent_bytes"] for run in runs]),
            "times_faster": median(pairs), "runs": runs}


def table(rows):
    lines = ["| contestant | reached | steps | step, ms | MB a host sent/step | time, s | "
             "times faster |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = [row["contestant"], f"{row['reached']} of {row['of']}",
                 row["steps"] and f"{row['steps']:g}", f"{1e3 * row['step_s']:.0f}",
                 f"{1e-6 * row['sent_bytes_per_step']:.3g}",
                 row["seconds"] and f"{row['seconds']:.1f}",
                 row["times_faster"] and f"{row['times_faster']:.2f}"]
        lines.append("| " + " | ".join(cell or "" for cell in cells) + " |")
    return "\n".join(lines)


def main():
    options = parse()
    start.check_lab()
    rate = None if options.rate == "none" else options.rate
    setup = start.Setup(HOSTS, HOSTS, apart=False)
    names = options.contestants.split(",")
    runs = {name: [] for name in names}
    with Lab(HOSTS, rate, options.burst) as lab, tempfile.TemporaryDirectory() as folder:
        run = start.Run(options.build, None, 1, cores=start.have_a_core(HOSTS))
        for run.seed in range(options.repeats):
            for name in names:
                contestant = Contestant(name, options,
                                        os.path.join(folder, f"{name}-{run.seed}"))
                line, _ = start.run_line(contestant, lab, setup, run)
                result = {**json.loads(line), "seed": run.seed,
                          "load": os.getloadavg()[0]}
                runs[name].append(result)
                print(f"seed {run.seed}: {name}: {result['steps']} steps, "
                      f"{result['seconds']} s, load {result['load']:.1f}", flush=True)
    rows = [row_of(name, runs[name], runs[names[0]]) for name in names]
    text = table(rows)
    print(text)
    write(options, rows)
    announce(options.out)


if __name__ == "__main__":
    main()
