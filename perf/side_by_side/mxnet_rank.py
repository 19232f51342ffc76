"""One role of MXNet's dist_sync store (DMLC_ROLE and others say which).

    mxnet_rank.py KIND SIZES.json WARMUP ITERATIONS

KIND: none or 2bit (threshold 0.5). Workers print {"seconds": [...]}: push and
pull of all gradients, the last first, by the slowest worker.
"""
import json
import sys
import time

import mxnet as mx  # servers and the scheduler stay in here until the end


def step(store, gradients, sums):
    for key in reversed(range(len(gradients))):
        store.push(key, gradients[key], priority=-key)
        store.pull(key, sums[key], priority=-key)
    for value in sums:
        value.wait_to_read()


def main():
    kind, sizes, warmup, iterations = sys.argv[1:]
    with open(sizes, encoding="utf-8") as file:
        sizes = json.load(file)
    store = mx.kv.create("dist_sync")
    if kind != "none":
        store.set_gradient_compression({"type": kind, "threshold": 0.5})
    gradients = [mx.nd.random.uniform(-1, 1, shape=tuple(shape))
                 for shape in sizes]
    sums = [mx.nd.zeros(tuple(shape)) for shape in sizes]
    mx.nd.waitall()
    for key, value in enumerate(sums):
        store.init(key, value)
    seconds = []
    for i in range(int(warmup) + int(iterations)):
        store._barrier()
        start = time.perf_counter()
        step(store, gradients, sums)
        store._barrier()
        if i >= int(warmup):
            seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
