#!/usr/bin/env python3
"""Runs perf/time_to_accuracy on images that a network learns at once, and on noise.

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


def write_cifar(folder, images_per_file):
    noise = random.Random(0)
    for name in ("test_batch", *(f"data_batch_{i}" for i in range(1, 6))):
        with open(os.path.join(folder, name + ".bin"), "wb") as file:
            for i in range(images_per_file):
                file.write(bytes([i % 10]) + noise.randbytes(3072))


def measured(root, build, folder, *words):
    """Its lines, or None where it skips."""
    out = os.path.join(folder, "out")
    run = subprocess.run(
        [sys.executable, os.path.join(root, "perf", "time_to_accuracy"), "--build", build,
         "--target", "0.9", "--repeats", "1", "--out", out, *words],
        capture_output=True, text=True, timeout=140, check=False)
    if run.returncode == SKIPPED:
        print(run.stderr)
        return None
    assert run.returncode == 0, run.stdout + run.stderr
    print(run.stdout)
    with open(out + ".jsonl", encoding="utf-8") as file:
        return list(map(json.loads, file))


def check_convolutions(root, build):
    """Both sides have the network and the data; what they reach in two steps is chance."""
    with tempfile.TemporaryDirectory() as folder:
        write_cifar(folder, 20)
        lines = measured(root, build, folder, "--data", "cifar10:" + folder, "--network",
                         "vgg11:maps=2", "--batch-size", "4", "--epoch-steps", "2", "--epochs",
                         "1", "--contestants", "ddp_powersgd,int2")
    assert [row["runs"][0]["accuracy"][0][0] for row in lines[1:]] == [2, 2], lines


def main():
    root, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        write_idx(folder, "train", 1400)
        write_idx(folder, "t10k", 200)
        lines = measured(root, build, folder, "--data", "mnist:" + folder, "--network",
                         "mlp:64", "--epochs", "5", "--contestants",
                         "ddp,ddp_fp16,none,2bit+lr=0.02")
    if lines is None:
        return SKIPPED
    about, *rows = lines
    assert about["options"]["network"] == "mlp:64", about
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
    check_convolutions(root, build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
