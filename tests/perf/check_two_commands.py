#!/usr/bin/env python3
"""Runs the same command twice, as on two hosts, and checks who does what.

    check_two_commands.py TELEGRAD_PERF
"""
import json
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(program, *words, timeout_s=60):
    return subprocess.Popen(
        [program, *words, "--transport", "tcp", "--tls", "tcp", "--size",
         "64,4K", "--warmup", "1", "--iterations", "3", "--timeout",
         str(timeout_s), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_pair(program, *words):
    """Both end well, and one of them prints the rows."""
    both = [start(program, *words) for _ in range(2)]
    said = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    rows = [[json.loads(line) for line in out.splitlines()] for out, _ in said]
    assert sorted(map(len, rows)) == [0, 2], said
    assert {row["ranks"] for row in rows[0] + rows[1]} == {2}, rows


def check_refused(program, *words, expected):
    process = start(program, *words)
    out, error = process.communicate(timeout=100)
    assert process.returncode == 2 and not out, (process.returncode, out)
    for word in expected:
        assert word in error, error


def main():
    program, = sys.argv[1:]
    # Each pair right after the other at the same port, as a script does it.
    address = f"127.0.0.1:{free_port()}"
    for command in ("latency", "bandwidth", "allreduce"):
        check_pair(program, command, "--rendezvous", address)
    check_pair(program, "pushpull", "--workers", "1", "--servers", "1",
               "--rendezvous", address)
    check_refused(program, "allreduce", "--ranks", "3", "--rendezvous", address,
                  expected=("for 3", "--rank", "mpirun", "srun"))
    check_refused(program, "pushpull", "--rendezvous", address,
                  expected=("for 3", "--rank", "mpirun", "srun"))
    # A name that is too long is looked up nowhere.
    strange = "x" * 64
    check_refused(program, "latency", "--rendezvous", f"{strange}:7777",
                  expected=("--rendezvous", strange))
    check_refused(program, "latency", "--rendezvous", "0.0.0.0:7777",
                  expected=("names no host",))
    alone = start(program, "latency", "--rendezvous", address, timeout_s=0.5)
    _, error = alone.communicate(timeout=100)
    assert alone.returncode == 25 and "rank 1 of 2 did not come" in error, error
    print("two commands: 4 pairs")


if __name__ == "__main__":
    main()
