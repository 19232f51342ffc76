#!/usr/bin/env python3
"""Flips bits of messages under telegrad-perf --check, which must find it.

    check_finds_faults.py TELEGRAD_PERF TRANSPORT[:TLS]

What is flipped depends on the seed and each message's number alone.
"""
import subprocess
import sys

# Seeds that leave the ranks' hellos and barriers as they are.
CASES = (("latency", "100000", 1, "check: rank 0: byte "),
         ("latency", "100000", 2, "check: rank 1: byte "),
         ("bandwidth", "100000", 1, "check: rank 0: byte "),
         ("allreduce", "1M", 3, " of allreduce is "))


def main():
    program, transport = sys.argv[1:]
    name, _, tls = transport.partition(":")
    for command, size, seed, expected in CASES:
        words = [program, command, "--ranks", "2", "--size", size,
                 "--transport", name, "--tls", tls, "--check", "--warmup", "1",
                 "--iterations", "3", "--timeout", "30"]
        sound = subprocess.run(words, capture_output=True, text=True,
                               timeout=60, check=False)
        assert sound.returncode == 0, sound
        harmed = subprocess.run([*words, "--fault", f"flip=0.2,seed={seed}"],
                                capture_output=True, text=True, timeout=60,
                                check=False)
        assert harmed.returncode == 43, harmed
        assert expected in harmed.stderr, harmed
    print(f"{len(CASES)} faults over {transport} found")


if __name__ == "__main__":
    main()
