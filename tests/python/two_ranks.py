#!/usr/bin/env python3
"""A job of two processes over tcp with the standard library alone: sums with `2bit`
and without. For a bare environment."""
import array
import os

import telegrad
import workers


def floats(values):
    """An array by NumPy's protocol, which needs no NumPy."""
    class Floats:
        memory = array.array("f", values)
        __array_interface__ = {"version": 3, "typestr": "<f4", "shape": (len(memory),),
                               "data": (memory.buffer_info()[0], False)}
    return Floats()


def sums(codec):
    rank = int(os.environ["RANK"])
    job = telegrad.Job("127.0.0.1:" + os.environ["MASTER_PORT"], rank=rank,
                       num_workers=2, has_scheduler=rank == 0, servers_here=rank == 0)
    with job.join(), telegrad.Store(job) as store:
        store.set_compression(type=codec)
        value = floats([rank + 1.25, -1, 0.25, 0])
        store.push_pull(store.init(["w"], [value]), [value], [value])
        return list(value.memory)


def main():
    for codec, want in (("none", [3.5, -2, .5, 0]), ("2bit:1", [2, -2, 0, 0])):
        got = workers.Ranks(os.path.abspath(__file__), "sums", 2, codec).results()
        assert got == [want] * 2, (codec, got)


if __name__ == "__main__":
    if os.environ.get("RANK"):
        workers.main({"sums": sums})
    else:
        main()
