#!/usr/bin/env python3
"""Runs perf/time_to_accuracy on images that a network learns at once.

    time_to_accuracy_test.py ROOT BUILD
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77


def write_idx(folder, what, count):
    """Images of two classes: bright above, or bright below."""
    labels = bytes(i % 2 for i in range(count))
    noise = random.Random(what)
    pixels = bytearray(count * 784)
    for i in range(count):
        begin = i * 784 + 392 * labels[i]
        pixels[begin:begin + 392] = bytes(noise.randrange(128, 256) for _ in range(392))
    for name, magic, head, data in (("images-idx3", 2051, (count, 28, 28), bytes(pixels)),
                                    ("labels-idx1", 2049, (count,), labels)):
        with open(os.path.join(folder, f"{what}-{name}-ubyte"), "wb") as file:
            file.write(struct.pack(f">{1 + len(head)}I", magic, *head) + data)


def main():
    root, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        write_idx(folder, "train", 1400)
        write_idx(folder, "t10k", 200)
        out = os.path.join(folder, "out")
        run = subprocess.run(
            [sys.executable, os.path.join(root, "perf", "time_to_accuracy"), "--build",
             build, "--data", folder, "--layers", "64", "--target", "0.9", "--repeats",
             "1", "--epochs", "5", "--contestants", "ddp,ddp_fp16,none,2bit+lr=0.02",
             "--out", out], capture_output=True, text=True, timeout=250, check=False)
        if run.returncode == SKIPPED:
            print(run.stderr)
            return SKIPPED
        assert run.returncode == 0, run.stdout + run.stderr
        with open(out + ".jsonl", encoding="utf-8") as file:
            about, *rows = map(json.loads, file)
    assert about["options"]["layers"] == "64", about
    assert [row["contestant"] for row in rows] == ["ddp", "ddp_fp16", "none",
                                                  "2bit+lr=0.02"], rows
    sent = {}
    for row in rows:
        assert row["reached"] == row["of"] == 1, row
        assert row["steps"] in (20, 40, 60, 80, 100) and row["seconds"] > 0, row
        sent[row["contestant"]] = row["sent_bytes_per_step"]
    # Encoded gradients are fewer bytes, where both count alike.
    assert sent["ddp_fp16"] < 0.8 * sent["ddp"], sent
    assert sent["2bit+lr=0.02"] < sent["none"], sent
    print(run.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
