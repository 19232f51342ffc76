#!/usr/bin/env python3
"""Flips bits of messages under telegrad-perf --check, which must find it; a store
is to find nothing where they are sent again.

    check_finds_faults.py TELEGRAD_PERF TRANSPORT[:TLS]

What is flipped depends on the seed and each message's number alone.
"""
import os
import subprocess
import sys

# Seeds that leave the ranks' hellos and barriers as they are.
CASES = (("latency", "100000", 1, "check: rank 0: byte "),
         ("latency", "100000", 2, "check: rank 1: byte "),
         ("bandwidth", "100000", 1, "check: rank 0: byte "),
         ("allreduce", "1M", 3, " of allreduce is "))


# What a store cannot do without; of seed 1 it waits for its time-out.
STORE_FAULTS = "drop=0.05,duplicate=0.05,reorder=0.05,flip=0.05,seed=2"


def run(words, *faults):
    return subprocess.run([*words, *faults], capture_output=True, text=True,
                          timeout=60, check=False)


def remove_memory_of_the_dead(before):
    """What shm names after processes: those of a job that has failed are gone."""
    for name in set(os.listdir("/dev/shm")) - before:
        pid = name.partition(":")[0]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            os.unlink(f"/dev/shm/{name}")


def main():
    program, transport = sys.argv[1:]
    before = set(os.listdir("/dev/shm"))
    try:
        find_faults(program, transport)
    finally:
        remove_memory_of_the_dead(before)
    print(f"{len(CASES)} faults over {transport} found, those of a store healed")


def find_faults(program, transport):
    name, _, tls = transport.partition(":")
    for command, size, seed, expected in CASES:
        words = [program, command, "--ranks", "2", "--size", size,
                 "--transport", name, "--tls", tls, "--check", "--warmup", "1",
                 "--iterations", "3", "--timeout", "30"]
        sound = run(words)
        assert sound.returncode == 0, sound
        harmed = run(words, "--fault", f"flip=0.2,seed={seed}")
        assert harmed.returncode == 43, harmed
        assert expected in harmed.stderr, harmed
    words = [program, "pushpull", "--size", "1M", "--transport", name, "--tls",
             tls, "--check", "--warmup", "1", "--iterations", "40", "--timeout",
             "30", "--fault", STORE_FAULTS]
    harmed = run(words)
    assert harmed.returncode != 0, harmed
    healed = run(words, "--resend")
    assert healed.returncode == 0, healed


if __name__ == "__main__":
    main()
