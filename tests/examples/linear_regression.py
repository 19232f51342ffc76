#!/usr/bin/env python3
"""Runs the example and checks that it learns with fewer bytes.

    linear_regression.py PROGRAM one_process|local|processes|usage
"""
import re
import socket
import subprocess
import sys

TIMEOUT_S = 100


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(program, way):
    """What the workers print, by process."""
    if way != "processes":
        arguments = ["local"] if way == "local" else []
        return [subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True,
                               timeout=TIMEOUT_S, check=True).stdout]
    port = free_port()
    roles = [["scheduler", str(port)]] + [
        [role, f"127.0.0.1:{port}"] for role in ("server", "worker", "worker")]
    processes = [subprocess.Popen([program, *role], stdout=subprocess.PIPE, text=True)
                 for role in roles]
    try:
        texts = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), roles
    assert texts[:2] == ["", ""], texts
    return texts[2:]


def check(text, num_workers):
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", text)]
    assert len(losses) == 6 * num_workers, text
    # Without training it stays at 853, half the sum of the weights' squares.
    assert max(losses[:num_workers]) < 100, text
    assert max(losses[-num_workers:]) < 0.1, text
    bytes_moved = re.findall(r"pushed (\d+) bytes as (\d+), pulled (\d+) as (\d+)", text)
    assert len(bytes_moved) == num_workers, text
    for pushed, push_wire, pulled, pull_wire in bytes_moved:
        assert int(pushed) > 10 * int(push_wire) > 0, text
        assert int(pulled) > 8 * int(pull_wire) > 0, text


def check_usage(program):
    for arguments, code, output in ((["--help"], 0, "stdout"), (["trainer"], 2, "stderr"),
                                    (["scheduler"], 2, "stderr"),
                                    (["worker", "127.0.0.1:1", "more"], 2, "stderr")):
        done = subprocess.run([program, *arguments], capture_output=True, text=True,
                              timeout=TIMEOUT_S)
        assert done.returncode == code, (arguments, done)
        assert getattr(done, output).startswith("linear_regression [local"), done
    refused = subprocess.run([program, "worker", "nowhere"], capture_output=True, text=True,
                             timeout=TIMEOUT_S)
    assert refused.returncode == 2 and refused.stderr, refused  # a documented code


def main():
    program, way = sys.argv[1:]
    if way == "usage":
        return check_usage(program)
    texts = run(program, way)
    for text in texts:
        print(text)
        check(text, 2 if way == "one_process" else 1)


if __name__ == "__main__":
    main()
