#!/usr/bin/env python3
"""Payloads on a GPU: every command that takes --memory gives right results there,
and a GPU that is not there is refused.

    check_device_memory.py PERF gpu|none   `gpu`: PERF has one, emulated or real
"""
import json
import subprocess
import sys

PERF, kind = sys.argv[1:]
FEW = ["--iterations", "3", "--warmup", "1", "--check", "--json",
       "--transport", "inproc"]


def run(args, code=0):
    done = subprocess.run([PERF, *args], text=True, capture_output=True,
                          timeout=300)
    if done.returncode != code:
        sys.exit(f"{' '.join(args)} ended with {done.returncode}:\n"
                 f"{done.stdout}{done.stderr}")
    return done


def rows(args):
    return [json.loads(line) for line in run(args).stdout.splitlines()]


def refused(memory, *words):
    for command in (["latency"], ["bandwidth"], ["allreduce"],
                    ["pushpull", "--size", "4K"]):
        done = run([*command, *FEW, "--memory", memory], code=2)
        for word in (f"--memory {memory}", *words):
            if word not in done.stderr:
                sys.exit(f"{command}: no {word} in {done.stderr}")
    done = run(["calibrate", "--memory", memory], code=2)
    if f"--memory {memory}" not in done.stderr:
        sys.exit(f"calibrate: {done.stderr}")


def on_a_gpu():
    for command in ("latency", "bandwidth"):
        for row in rows([command, *FEW, "--size", "1,100000", "--memory",
                         "cuda"]):
            assert row["memory"] == "cuda", row
    elements = 200000
    for codec, bits in (("none", 32), ("2bit", 2)):
        row = rows(["pushpull", *FEW, "--size", str(4 * elements), "--workers",
                    "2", "--gc-type", codec, "--gc-reply", "reencode",
                    "--memory", "cuda:0"])[-1]
        # Only codes cross the bus, and a little for each chunk.
        least = elements * bits // 8
        for name in ("to_device_bytes", "from_device_bytes"):
            assert least <= row[name] <= 1.05 * least + 4096, (codec, name, row)
    figures = json.loads(run(["calibrate", "--memory", "cuda", "--codecs",
                              "2bit,fp16", "--elements", "65536",
                              "--repeats", "2"]).stdout)
    assert all(codec["on_gpu"] for codec in figures["codecs"]), figures
    assert "bus" in [link["name"] for link in figures["links"]], figures


refused("gpu", "host, cuda, cuda:1")
refused("cuda:-1", "host, cuda, cuda:1")
refused("cuda:999")
if kind == "gpu":
    on_a_gpu()
else:
    refused("cuda")
