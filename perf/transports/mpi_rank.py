"""One of two ranks of MPI: what telegrad-perf measures, by mpi4py.

    mpi_rank.py latency|bandwidth|allreduce WINDOW SIZE:ITERATIONS...

Rank 0 prints {"size_bytes", "value"} for each size: us, or 10^9 bytes/s.
"""
import json
import sys
import time

from mpi4py import MPI

WARMUP = 5


def ping(world, data, _):
    if world.rank == 0:
        world.Send([data, MPI.BYTE], 1)
        world.Recv([data, MPI.BYTE], 1)
    else:
        world.Recv([data, MPI.BYTE], 0)
        world.Send([data, MPI.BYTE], 0)


def window(world, data, count):
    answer = bytearray(1)
    start = world.Isend if world.rank == 0 else world.Irecv
    MPI.Request.Waitall([start([data, MPI.BYTE], 1 - world.rank)
                         for _ in range(count)])
    if world.rank == 0:
        world.Recv([answer, MPI.BYTE], 1)
    else:
        world.Send([answer, MPI.BYTE], 0)


def allreduce(world, data, _):
    world.Allreduce(MPI.IN_PLACE, [data, MPI.FLOAT])


def main():
    what, count = sys.argv[1], int(sys.argv[2])
    step = {"latency": ping, "bandwidth": window, "allreduce": allreduce}[what]
    world = MPI.COMM_WORLD
    for word in sys.argv[3:]:
        size, iterations = map(int, word.split(":"))
        if what == "bandwidth":
            iterations = max(5, iterations // count)
        data = bytearray(size)
        times = []
        for i in range(WARMUP + iterations):
            world.Barrier()
            start = time.perf_counter()
            step(world, data, count)
            times.append(time.perf_counter() - start)
        if what == "allreduce":
            times = [world.allreduce(each, MPI.MAX) for each in times]
        middle = sorted(times[WARMUP:])[(iterations - 1) // 2]
        value = {"latency": 1e6 * middle / 2, "allreduce": 1e6 * middle,
                 "bandwidth": size * count / middle / 1e9}[what]
        if world.rank == 0:
            print(json.dumps({"size_bytes": size, "value": value}), flush=True)


if __name__ == "__main__":
    main()
