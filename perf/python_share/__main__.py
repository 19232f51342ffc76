"""What Python costs: a push and pull of a network's tensors by the package and by
telegrad-perf, in pairs; and the processor time of Python in a step of the DDP hook.

    PYTHONPATH=python TELEGRAD_LIBRARY=build/release/python/libtelegrad.so \\
        python3 perf/python_share [--pairs 15] [--gc-type 2bit] [--no-hook]

Two workers and a server, processes of this machine, over tcp. Of each run the median of
its rounds counts; the ratio is that of a pair, which runs in turns. The hook needs PyTorch.
"""
import argparse
import csv
import json
import os
import socket
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKERS = 2


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--profile", default="resnet50")
    parser.add_argument("--gc-type", default="2bit")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--no-hook", action="store_true")
    parser.add_argument("--as", dest="part", help=argparse.SUPPRESS)
    return parser.parse_args()


def tensors_of(profile):
    """Names, numbers of dimensions and of elements."""
    with open(os.path.join(ROOT, f"topology/profiles/{profile}.csv"), encoding="utf-8") as file:
        return [(row["name"], row["shape"].count("x") + 1, int(row["elements"]))
                for row in csv.DictReader(file)]


def push_and_pull(options, rank):
    """Of a member: rank WORKERS is the server. Worker 0 prints seconds, a round a line."""
    import numpy
    import telegrad
    address = f"127.0.0.1:{os.environ['MASTER_PORT']}"
    if rank == WORKERS:
        with telegrad.Job(address, num_workers=WORKERS, role=telegrad.SERVER) as job:
            job.serve()
        return
    with telegrad.Job(address, rank=rank, num_workers=WORKERS, has_scheduler=rank == 0).join() as job:
        sizes = tensors_of(options.profile)
        draw = numpy.random.default_rng(rank)
        grads = [0.01 * draw.standard_normal(size, "f4") for _, _, size in sizes]
        outs = [numpy.empty_like(grad) for grad in grads]
        with telegrad.Store(job) as store:
            store.set_compression(type=options.gc_type)
            keys = store.init([name for name, _, _ in sizes], grads)
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
    from telegrad.torch import _hook
    torch.distributed.init_process_group("gloo")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.all = torch.nn.ParameterList(
                [torch.nn.Parameter(torch.zeros((1, size) if dims > 1 else (size,)))
                 for _, dims, size in tensors_of(options.profile)])

        def forward(self):
            return sum(each.view(-1)[0] for each in self.all)

    model = torch.nn.parallel.DistributedDataParallel(Net(), gradient_as_bucket_view=True)
    state = telegrad.torch.compress(model, gc_type=options.gc_type, verbose=False)
    spent = dict.fromkeys(("exchange", "call", "is_finite"), 0.0)

    def timed(name, function):
        def run(*args):
            begin = time.thread_time()
            try:
                return function(*args)
            finally:
                spent[name] += time.thread_time() - begin
        return run

    state.exchange = timed("exchange", state.exchange)
    _hook.call = timed("call", _hook.call)
    _hook.is_finite = timed("is_finite", _hook.is_finite)  # a pass over all gradients
    for i in range(options.iterations + 5):
        if i == 5:
            spent.update(dict.fromkeys(spent, 0.0))
        model().backward()
    if torch.distributed.get_rank() == 0:
        print(json.dumps({name: 1e3 * seconds / options.iterations
                          for name, seconds in spent.items()}))
    state.close()


def run_python(options, part, num):
    """What the members print."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = dict(os.environ, WORLD_SIZE=str(num), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    members = [subprocess.Popen([sys.executable, *sys.argv, "--as", f"{part}:{rank}"],
                                env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)),
                                stdout=subprocess.PIPE, text=True) for rank in range(num)]
    texts = [member.communicate(timeout=600)[0] for member in members]
    if any(member.returncode for member in members):
        sys.exit(f"a member of {part} failed")
    return "".join(texts)


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
        python = statistics.median(map(float, run_python(options, "store", WORKERS + 1).split()))
        ratios.append(python / perf)
        print(f"pair {i}: telegrad-perf {1e3 * perf:.1f} ms, Python {1e3 * python:.1f} ms, "
              f"ratio {ratios[-1]:.3f}", flush=True)
    if ratios:
        print(f"median of ratios {statistics.median(ratios):.3f}")
    if not options.no_hook:
        spent = json.loads(run_python(options, "hook", WORKERS))
        print(f"hook, ms of processor time a step: Python "
              f"{spent['exchange'] - spent['call'] - spent['is_finite']:.2f}, its calls of C "
              f"{spent['call']:.2f}, looking for NaN and infinities {spent['is_finite']:.2f}")


if __name__ == "__main__":
    main()
