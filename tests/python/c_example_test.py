#!/usr/bin/env python3
"""Runs examples/push_pull as one process and as two, and checks the sums of the page
docs/c.md: 0.25 twice reaches the threshold 0.5.

    c_example_test.py PROGRAM
"""
import re
import socket
import subprocess
import sys

TIMEOUT_S = 60


def check(text, num_workers):
    sums = [float(found) for found in re.findall(r"step \d: (\S+)", text)]
    assert sums == [0, 0.5 * num_workers] * 2, text
    raw, wire = map(int, re.search(r"pushed (\d+) bytes as (\d+)", text).groups())
    assert raw == 32000 and raw > 10 * wire, text


def main():
    program = sys.argv[1]
    check(subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True,
                         timeout=TIMEOUT_S).stdout, 1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    workers = [subprocess.Popen([program, address, str(rank), "2"],
                                stdout=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        texts = [worker.communicate(timeout=TIMEOUT_S)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], texts
    for text in texts:
        check(text, 2)


if __name__ == "__main__":
    main()
