#!/usr/bin/env python3
"""Runs the same command twice, as on two hosts, and checks who does what.

    check_two_commands.py TELEGRAD_PERF
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(program, *words, timeout_s=60, env=None):
    return subprocess.Popen(
        [program, *words, "--transport", "tcp", "--tls", "tcp", "--size",
         "64,4K", "--warmup", "1", "--iterations", "3", "--timeout",
         str(timeout_s), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **(env or {})})


def check_pair(program, *words, ranks=2, envs=(None, None)):
    """Both end well, and one of them prints the rows."""
    both = [start(program, *words, env=env) for env in envs]
    said = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    rows = [[json.loads(line) for line in out.splitlines()] for out, _ in said]
    assert sorted(map(len, rows)) == [0, 2], said
    assert {row["ranks"] for row in rows[0] + rows[1]} == {ranks}, rows
    return rows[0] + rows[1]


def check_refused(program, *words, expected, env=None):
    process = start(program, *words, env=env)
    out, error = process.communicate(timeout=100)
    assert process.returncode == 2 and not out, (process.returncode, out)
    for word in expected:
        assert word in error, error


def check_secrets(program, address):
    """The same secret lets both in; who has another one is told so."""
    with tempfile.TemporaryDirectory() as folder:
        for name in "sx":
            path = os.path.join(folder, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(name * 32)
            os.chmod(path, 0o600)
        flags = ("allreduce", "--rendezvous", address, "--secret-file")
        check_pair(program, *flags, os.path.join(folder, "s"))
        both = [start(program, *flags, os.path.join(folder, name), "--rank", rank, timeout_s=5)
                for name, rank in ("s0", "x1")]
        errors = [process.communicate(timeout=100)[1] for process in both]
        assert [process.returncode for process in both] == [25, 30], errors


def check_killed(program, address):
    """When a rank is killed the other ends, whoever of the two it is."""
    for killed, codes in ((0, (20, 24)), (1, (20,))):
        both = [subprocess.Popen(
            [program, "latency", "--transport", "tcp", "--tls", "tcp", "--size", "64,4M",
             "--iterations", "20000", "--rendezvous", address, "--rank", str(rank), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
        assert both[0].stdout.readline()  # the first size is done
        both[killed].kill()
        errors = [process.communicate(timeout=100)[1] for process in both]
        assert both[1 - killed].returncode in codes, errors


def check_flight_records(program, address):
    """SIGUSR2 has each rank write what it does, and go on."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # also of theirs, until they are in main
    with tempfile.TemporaryDirectory() as folder:
        both = [subprocess.Popen(
            [program, "pushpull", "--transport", "tcp", "--tls", "tcp", "--size", "4M",
             "--iterations", "20000", "--workers", "1", "--servers", "1", "--rendezvous",
             address, "--rank", str(rank), "--flight-recorder", folder],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
        try:
            deadline = time.monotonic() + 30
            while sorted(os.listdir(folder)) != ["server_0", "worker_0"]:
                assert time.monotonic() < deadline, os.listdir(folder)
                time.sleep(0.1)
                for process in both:
                    process.send_signal(signal.SIGUSR2)
            assert [process.poll() for process in both] == [None, None]
        finally:
            for process in both:
                process.kill()
        errors = [process.communicate(timeout=100)[1] for process in both]
        for name, error in zip(("worker_0", "server_0"), errors):
            assert f"SIGUSR2: flight record: {os.path.join(folder, name)}" in error, errors


def main():
    program, = sys.argv[1:]
    # Each pair right after the other at the same port, as a script does it.
    address = f"127.0.0.1:{free_port()}"
    for command in ("latency", "bandwidth", "allreduce"):
        check_pair(program, command, "--rendezvous", address)
    check_pair(program, "pushpull", "--workers", "1", "--servers", "1",
               "--rendezvous", address)
    # A server beside each worker, in a process of its own.
    rows = check_pair(program, "pushpull", "--rendezvous", address, "--check",
                      ranks=4)
    assert all((row["workers"], row["servers"], row["transport"]) ==
               (2, 2, "tcp") for row in rows), rows
    check_pair(program, "pushpull", "--workers", "1", "--rendezvous", address)
    launched = [{"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank,
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": address[10:]}
                for rank in "01"]
    check_pair(program, "allreduce", envs=launched)
    check_pair(program, "pushpull", envs=launched, ranks=4)
    check_pair(program, "pushpull", "--servers", "1", envs=launched)
    check_refused(program, "pushpull", "--workers", "3", expected=("2 ranks",),
                  env=launched[0])
    check_refused(program, "pushpull", "--ranks", "5",
                  expected=("--ranks 5", "2 --workers"))
    check_refused(program, "allreduce", "--ranks", "3", "--rendezvous", address,
                  expected=("for 3", "--rank", "mpirun", "srun"))
    check_refused(program, "pushpull", "--workers", "3", "--rendezvous", address,
                  expected=("for 3", "--rank", "mpirun", "srun"))
    # A name that is too long is looked up nowhere.
    strange = "x" * 64
    check_refused(program, "latency", "--rendezvous", f"{strange}:7777",
                  expected=("--rendezvous", strange))
    check_refused(program, "latency", "--bind", "203.0.113.1",
                  expected=("--bind", "203.0.113.1"))
    check_refused(program, "latency", "--html", "/proc/none/page.html",
                  expected=("--html /proc/none/page.html",))
    check_refused(program, "latency", "--rendezvous", "0.0.0.0:7777",
                  expected=("names no host",))
    alone = start(program, "latency", "--rendezvous", address, timeout_s=0.5)
    _, error = alone.communicate(timeout=100)
    assert alone.returncode == 25 and "missing: worker/1" in error, error
    check_secrets(program, address)
    check_killed(program, address)
    check_flight_records(program, address)
    print("two commands: 10 pairs")


if __name__ == "__main__":
    main()
