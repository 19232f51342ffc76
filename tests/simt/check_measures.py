#!/usr/bin/env python3
"""That gpu_check's loops run, and each of its rows has all keys.

    check_measures.py GPU_CHECK

What it measures on an emulated device means nothing.
"""
import json
import os
import subprocess
import sys
import tempfile

# As telegrad-perf kernel names them, and more.
KEYS = {"what", "name", "codec", "device", "elements", "threads", "p50_us",
        "min_us", "samples", "bytes_per_element", "GBps", "ceiling",
        "ceiling_GBps", "share_of_ceiling", "elements_per_s", "peer",
        "peer_elements_per_s", "of_peer"}
WITH_PEER = {"two_bit_encode", "two_bit_encode propagate", "two_bit_decode",
             "1bit_encode", "1bit_decode"}
ELEMENTS = 1 << 20
# LeNet's gradients fit; of the others there is as much as the arrays hold.
GROUPS = {"vgg16": ELEMENTS, "resnet50": ELEMENTS, "lenet": 431080,
          "chunk": 1 << 19}


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        subprocess.run([program, "--elements", str(ELEMENTS), "--runs", "1",
                        "--json", path], check=True)
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names), "rows of the same name"
    for row in rows:
        assert set(row) == KEYS, row
        assert row["elements"] == GROUPS.get(row["name"].split()[-1],
                                             ELEMENTS), row
        assert row["p50_us"] > 0 and row["GBps"] > 0, row
        assert row["what"] == "kernel" and row["ceiling"] == "copy", row
    codecs = {row["codec"] for row in rows}
    assert {"2bit", "1bit", "onebit", "threshold", "topk", "dgc", "randomk",
            "int8", "int4", "int3", "int2shared", "qsgd", "powersgd", "fp16", "sparseloco"} <= codecs, codecs
    having = {row["name"] for row in rows if row["peer"] == "mxnet"}
    assert having == WITH_PEER, having
    for row in rows:
        if row["name"] in WITH_PEER:
            ratio = row["elements_per_s"] / row["peer_elements_per_s"]
            assert abs(ratio / row["of_peer"] - 1) < 0.01, row
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main(sys.argv[1])
