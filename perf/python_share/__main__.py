"""What Python costs: a push and pull of a network's tensors by the package and by
telegrad-perf, in pairs; and the processor time of Python in a step of the DDP hook.

    PYTHONPATH=python TELEGRAD_LIBRARY=build/release/python/libtelegrad.so \\
        python3 perf/python_share [--pairs 15] [--gc-type 2bit] [--no-hook]

Two workers and a server, processes of this machine, over tcp. Of each run the median of
its rounds counts; the ratio is that of a pair, which runs in turns. The hook needs PyTorch.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

PERF = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[1:1] = [os.path.join(PERF, "side_by_side"), os.path.join(PERF, "slowed_worker")]

from ranks import run  # noqa: E402
from start import profile_file, shapes_of  # noqa: E402

WORKERS = 2


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(PERF, "..", "build/release"))
    parser.add_argument("--profile", default="resnet50")
    parser.add_argument("--gc-type", default="2bit")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--no-hook", action="store_true")
    parser.add_argument("--as", dest="part", help=argparse.SUPPRESS)
    return parser.parse_args()


def push_and_pull(options, rank):
    """Of a member: rank WORKERS is the server. Worker 0 prints seconds, a round a line."""
    import numpy
    import telegrad
    address = f"127.0.0.1:{os.environ['MASTER_PORT']}"
    if rank == WORKERS:
        with telegrad.Job(address, num_workers=WORKERS, role=telegrad.SERVER) as job:
            job.serve()
        return
    with telegrad.Job(address, rank=rank, num_workers=WORKERS,
                      has_scheduler=rank == 0).join() as job:
        draw = numpy.random.default_rng(rank)
        grads = [0.01 * draw.standard_normal(math.prod(shape), "f4")
                 for shape in options.shapes]
        outs = [numpy.empty_like(grad) for grad in grads]
        with telegrad.Store(job) as store:
            store.set_compression(type=options.gc_type)
            keys = store.init([f"t{i}" for i in range(len(grads))], grads)
            for i in range(options.iterations + 5):
                job.barrier()
                begin = time.monotonic()
                store.push_pull(keys, grads, outs)
                if rank == 0 and i >= 5:
                    print(time.monotonic() - begin)
            job.barrier()


def share_of_hook(options):
    """Of a rank: rank 0 prints milliseconds of processor time a step."""
    import torch
    import telegrad.torch
    from telegrad.torch import _pending
    from torch_rank import Model
    torch.distributed.init_process_group("gloo")

    model = torch.nn.parallel.DistributedDataParallel(
        Model(options.shapes), gradient_as_bucket_view=True)
    state = telegrad.torch.compress(model, gc_type=options.gc_type, verbose=False)
    spent = dict.fromkeys(("exchange", "call"), 0.0)

    def timed(name, function):
        def run(*args):
            begin = time.thread_time()
            try:
                return function(*args)
            finally:
                spent[name] += time.thread_time() - begin
        return run

    state.exchange = timed("exchange", state.exchange)
    _pending.call = timed("call", _pending.call)
    for i in range(options.iterations + 5):
        if i == 5:
            spent.update(dict.fromkeys(spent, 0.0))
        model().backward()
    if torch.distributed.get_rank() == 0:
        print(json.dumps({name: 1e3 * seconds / options.iterations
                          for name, seconds in spent.items()}))
    state.close()


def run_perf(options):
    """Median seconds of a round."""
    done = subprocess.run(
        [os.path.join(options.build, "perf/telegrad-perf"), "pushpull", "--transport", "tcp",
         "--workers", str(WORKERS), "--servers", "1", "--profile", options.profile, "--gc-type",
         options.gc_type, "--iterations", str(options.iterations), "--warmup", "5", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["p50_us"] / 1e6


def main():
    options = parse()
    profile, path = profile_file(options.profile)
    options.profile, options.shapes = profile, shapes_of(path)
    if options.part:
        part, rank = options.part.split(":")
        if part == "store":
            push_and_pull(options, int(rank))
        else:
            share_of_hook(options)
        return
    ratios = []
    for i in range(options.pairs):
        perf = run_perf(options)
        texts = run([("--as", f"store:{rank}") for rank in range(WORKERS + 1)])
        python = statistics.median(map(float, texts[0].split()))
        ratios.append(python / perf)
        print(f"pair {i}: telegrad-perf {1e3 * perf:.1f} ms, Python {1e3 * python:.1f} ms, "
              f"ratio {ratios[-1]:.3f}", flush=True)
    if ratios:
        print(f"median of ratios {statistics.median(ratios):.3f}")
    if not options.no_hook:
        spent = json.loads(run([("--as", f"hook:{rank}") for rank in range(WORKERS)])[0])
        print(f"hook, ms of processor time a step: Python "
              f"{spent['exchange'] - spent['call']:.2f}, its calls of C {spent['call']:.2f}")


if __name__ == "__main__":
    main()
