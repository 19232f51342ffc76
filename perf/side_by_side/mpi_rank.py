"""One rank of OpenMPI, by mpi4py: an allreduce of all gradients at once.

    mpi_rank.py SIZES.json WARMUP ITERATIONS

Rank 0 prints {"seconds": [...]}, of the slowest rank.
"""
import array
import json
import math
import sys
import time

from mpi4py import MPI


def main():
    sizes, warmup, iterations = sys.argv[1:]
    with open(sizes, encoding="utf-8") as file:
        count = sum(math.prod(shape) for shape in json.load(file))
    world = MPI.COMM_WORLD
    ones = array.array("f", [1]) * count
    data = array.array("f", [0]) * count
    seconds = []
    for i in range(int(warmup) + int(iterations)):
        memoryview(data)[:] = ones
        world.Barrier()
        start = time.perf_counter()
        world.Allreduce(MPI.IN_PLACE, [data, MPI.FLOAT])
        took = world.allreduce(time.perf_counter() - start, MPI.MAX)
        assert data[0] == world.size == data[-1]
        if i >= int(warmup):
            seconds.append(took)
    if world.rank == 0:
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
