#!/usr/bin/env python3
"""Times torch.distributed's all_reduce by the backend "telegrad" beside gloo's: both in the
same processes, in turn, on loopback, or with --rate in network namespaces; docs/benchmarks.md.

    perf/torch_backend [--ranks 2,4] [--min-bytes N] [--max-bytes N] [--seconds S]
                       [--rate 10gbit [--burst 4mb]]

Needs the package telegrad (PYTHONPATH=python, TELEGRAD_LIBRARY) and PyTorch; --rate root, too.
"""
import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = (4, 64, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)


def times_of(groups, num, limit_s):
    """Seconds of an all_reduce of `num` float32, least and median, by group; in turn."""
    tensor, found = torch.ones(num), {name: [] for name in groups}
    end = None
    while True:
        for name, group in groups.items():
            dist.barrier(group=group)  # its own, whose threads and caches are warm then
            start = time.perf_counter()
            for _ in range(rounds_of(num)):
                dist.all_reduce(tensor, group=group)
            found[name].append((time.perf_counter() - start) / rounds_of(num))
        now = time.perf_counter()
        end = now + limit_s if end is None else end  # the first turn warms up
        more = torch.tensor([float(now < end or len(found["gloo"]) < 6)])
        tensor.fill_(1)
        dist.broadcast(more, 0, group=groups["gloo"])
        if not more.item():
            return {name: (min(times[1:]), statistics.median(times[1:]))
                    for name, times in found.items()}


def rounds_of(num):
    """Of one turn: enough that its barrier's end does not matter."""
    return max(1, min(50, (1 << 16) // num))


def run_rank(options):
    import telegrad.torch  # noqa: F401
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "telegrad": dist.new_group(backend="telegrad")}
    for bytes_ in [each for each in SIZES if options.min_bytes <= each <= options.max_bytes]:
        found = times_of(groups, bytes_ // 4, options.seconds)
        if dist.get_rank() == 0:
            pairs = list(zip(found["gloo"], found["telegrad"]))
            print("|", dist.get_world_size(), "|", bytes_, "|", *(
                f"{1e6 * gloo:.0f} | {1e6 * ours:.0f} | {gloo / ours:.2f} |"
                for gloo, ours in pairs), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--min-bytes", type=int, default=0)
    parser.add_argument("--max-bytes", type=int, default=1 << 28)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each size")
    parser.add_argument("--rate", help="of the link of each rank's own host, as tc takes it; "
                        "without: loopback")
    parser.add_argument("--burst", default="4mb", help="of the shaper")
    options = parser.parse_args()
    if "RANK" in os.environ:
        return run_rank(options)
    print(f"PyTorch {torch.__version__}\n\n| ranks | bytes | gloo, least us | telegrad | times "
          "| gloo, median us | telegrad | times |\n|---|---|---|---|---|---|---|---|", flush=True)
    return max(run(ranks, options) for ranks in map(int, options.ranks.split(",")))


def run(ranks, options):
    """The largest exit code of them."""
    sys.path[:0] = [os.path.join(HERE, "..", "side_by_side"),
                    os.path.join(HERE, "..", "..", "tests", "python")]
    from lab import Lab
    from workers import free_port
    common = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(free_port()), OMP_NUM_THREADS="1")
    words = [sys.executable, "-B", *sys.argv]
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(ranks, options.rate, options.burst)) if options.rate else None
        started = []
        for rank in range(ranks):
            own, place = words, {}
            if lab is not None:
                own = lab.command(rank, words)
                place = {"MASTER_ADDR": lab.address(0), "TELEGRAD_BIND": lab.address(rank),
                         "GLOO_SOCKET_IFNAME": "eth0"}
            started.append(subprocess.Popen(own, env=dict(common, RANK=str(rank), **place)))
        return max(process.wait() for process in started)


if __name__ == "__main__":
    sys.exit(main())
