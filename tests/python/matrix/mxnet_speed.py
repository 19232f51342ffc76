#!/usr/bin/env python3
"""Pushes and pulls of MXNet's NDArrays by its own dist_sync and by Telegrad in turns, with
the same roles (a scheduler, a server, two workers); prints seconds a round.

    mxnet_speed.py [--keys 64] [--elements 262144] [--rounds 5] [--repeats 3] [--codec 2bit]

With the Python of an environment that has MXNet 1.9.1 (matrix.py makes one).
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import workers


def measure(store, options):
    """Of a worker: seconds of each round, printed by rank 0."""
    if store == "telegrad":
        import telegrad.mxnet  # before MXNet: it serves in the processes of servers
    import mxnet as mx
    kv = mx.kv.create(store)
    if options.codec:
        kv.set_gradient_compression({"type": options.codec, "threshold": 0.5})
    keys = list(range(options.keys))
    grads = [mx.nd.ones((options.elements,)) for _ in keys]
    outs = [mx.nd.zeros((options.elements,)) for _ in keys]
    kv.init(keys, outs)
    for i in range(options.rounds + 1):
        for grad in grads:  # MXNet's own pull writes into what was pushed
            grad[:] = 1
        mx.nd.waitall()
        start = time.monotonic()
        kv.push(keys, grads)
        kv.pull(keys, out=outs)
        mx.nd.waitall()
        if kv.rank == 0 and i > 0:  # the first one makes buffers
            print(time.monotonic() - start, flush=True)
    got = float(outs[-1][0].asscalar())
    assert got == (1 if options.codec else 2), (store, got)
    if store == "telegrad":
        kv.close()


def run(store):
    port = str(workers.free_port())
    processes = [subprocess.Popen(
        [sys.executable, "-B", *sys.argv, "--as", store],
        env=dict(os.environ, DMLC_ROLE=role, DMLC_PS_ROOT_URI="127.0.0.1",
                 DMLC_PS_ROOT_PORT=port, DMLC_NODE_HOST="127.0.0.1", DMLC_NUM_WORKER="2",
                 DMLC_NUM_SERVER="1", OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for role in ("scheduler", "server", "worker", "worker")]
    texts = workers.texts_of(processes)
    for process, (_, err) in zip(processes[2:], texts[2:]):
        assert process.returncode == 0, err
    return [float(line) for out, _ in texts[2:] for line in out.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, standard in (("keys", 64), ("elements", 262144), ("rounds", 5), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    parser.add_argument("--codec", default="")
    parser.add_argument("--as", dest="store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.store:
        measure(options.store, options)
        return
    seconds = {"dist_sync": [], "telegrad": []}
    for _ in range(options.repeats):
        for store, found in seconds.items():
            found += run(store)
    for store, found in seconds.items():
        print(f"{store}: min {min(found):.4f} s, median {statistics.median(found):.4f} s")


if __name__ == "__main__":
    main()
