"""How fast the others are where one of several workers is slow, in types of stores.

    PYTHONPATH=python TELEGRAD_LIBRARY=build/release/python/libtelegrad.so \\
        python3 perf/slowed_worker [--workers 4] [--times 5]

Workers are processes of this machine. In each step they sleep, which stands for
computing, then push and pull a tensor; in the second of two runs the last worker sleeps
so many times as long. Prints the steps per second of the slowest other worker in both.
"""
import argparse
import json
import time

from ranks import run


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--times", type=float, default=5, help="how slow the last one is")
    parser.add_argument("--compute-ms", type=float, default=20)
    parser.add_argument("--elems", type=int, default=100000, help="of the tensor")
    parser.add_argument("--gc-type", default="2bit")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--drop-slowest", type=int, default=0, help="of dist_sync")
    parser.add_argument("--types", default="dist_async,dist_sync")
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # its type and milliseconds
    return parser.parse_args()


def work(options):
    """Prints the steps per second of this process."""
    import numpy
    import telegrad
    kind, sleep_ms = options.worker.split(":")
    dropped = options.drop_slowest if kind == "dist_sync" else 0
    with telegrad.Job(from_launcher=True).join() as job:
        store = telegrad.Store(job, kind, drop_slowest=dropped)
        store.set_compression(type=options.gc_type)
        store.set_optimizer(telegrad.optimizer.SGD(learning_rate=1e-3))
        grad = numpy.random.default_rng(job.rank).normal(size=options.elems).astype("f4")
        out = numpy.zeros_like(grad)
        keys = store.init(["w"], [out], values=True)
        store.push_pull(keys, [grad], [out])
        job.barrier()
        begin = time.monotonic()
        step = 0
        while step < options.steps:
            time.sleep(float(sleep_ms) / 1000)
            store.push_pull(keys, [grad], [out])
            step += 1 + (store.catch_up() if dropped else 0)
        print(options.steps / (time.monotonic() - begin))
        job.barrier()
        store.close()


def run_workers(kind, sleeps_ms):
    """The rates of workers that sleep so long."""
    return [float(text)
            for text in run([("--worker", f"{kind}:{sleep_ms}") for sleep_ms in sleeps_ms])]


def main():
    options = parse()
    if options.worker:
        work(options)
        return
    others = [options.compute_ms] * (options.workers - 1)
    for kind in options.types.split(","):
        alike, slowed = (min(run_workers(kind, [*others, last * options.compute_ms])[:-1])
                         for last in (1, options.times))
        print(json.dumps({"type": kind, "steps_per_s": round(alike, 2),
                          "steps_per_s_beside_a_slow_one": round(slowed, 2),
                          "share": round(slowed / alike, 3)}), flush=True)


if __name__ == "__main__":
    main()
