#!/usr/bin/env python3
"""Runs all measurements of kernels or codecs on little and checks their rows.

    check_speed_rows.py TELEGRAD_PERF kernel|codec
"""
import json
import os
import subprocess
import sys

KEYS = ("what", "name", "codec", "kernels", "elements", "threads",
        "elements_per_s", "bytes_per_element", "GBps", "prefetch", "density",
        "traffic", "ceiling", "ceiling_GBps", "share_of_ceiling", "peer",
        "peer_elements_per_s")
# Rows with a loop of another system beside them, and whose it is.
PEERS = {
    "kernel": {"2bit/encode": "mxnet", "2bit/decode": "mxnet",
               "2bit/decode_add": "mxnet", "1bit/encode": "mxnet",
               "1bit/decode": "mxnet"},
    "codec": {"2bit/encode": "mxnet", "2bit/decode": "mxnet",
              "1bit/encode": "mxnet", "1bit/decode": "mxnet",
              "topk/encode": "byteps_heap"},
}
# Whose kernels those are that have names of their own.
CODECS = {"onebit/encode": "onebit", "1bit/encode": "1bit",
          "block8/quantize": "int8", "shared8/quantize": "int8shared",
          "block4/quantize": "int4", "block8/dither": "qsgd",
          "sparse/threshold_encode": "threshold",
          "sparse/large_values": "topk", "sparse/momentum_large_values": "dgc",
          "low_rank/fit_left": "powersgd",
          "block_top/encode": "sparseloco", "dense/add": "none"}


def rows_of(program, part, *flags):
    shown = subprocess.run(
        [program, part, "--elements", "4096", "--repeats", "1", "--threads",
         "2", "--density", "0.1", "--json", *flags],
        capture_output=True, text=True, timeout=100, check=False)
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def check_row(row, part):
    missing = [key for key in KEYS if key not in row]
    assert not missing, f"missing keys {missing} in {row}"
    assert row["what"] == part and row["threads"] == 2, row
    assert row["elements"] == 4096 and row["elements_per_s"] > 0, row
    # An operation has a ceiling or none, a peer or none.
    assert (row["ceiling"] is None) == (row["traffic"] is None) \
        == (row["ceiling_GBps"] is None) == (row["share_of_ceiling"] is None), \
        row
    assert (row["peer"] is None) == (row["peer_elements_per_s"] is None), row
    if row["peer"]:
        assert row["peer_elements_per_s"] > 0, row


def check_refusals(program, part):
    """What cannot be written or kept is no success."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [program, part, "--elements", "4096", "--repeats", "1"], timeout=100,
            stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2, done.returncode
    assert "standard output cannot be written" in done.stderr, done.stderr
    homeless = {name: value for name, value in os.environ.items()
                if name not in ("HOME", "XDG_CACHE_HOME")}
    done = subprocess.run([program, "calibrate", "--keep"], env=homeless, timeout=100,
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "--keep: nothing says where; set HOME" in done.stderr, done.stderr


def main():
    program, part = sys.argv[1:]
    check_refusals(program, part)
    rows = rows_of(program, part)
    for row in rows:
        check_row(row, part)
    by_name = {row["name"]: row for row in rows}
    assert len(by_name) == len(rows), "two rows of one name"
    for name, peer in PEERS[part].items():
        assert by_name[name]["peer"] == peer, by_name[name]
    codecs = {row["codec"] for row in
              rows_of(program, "codec", "--filter", "/encode")}
    assert {"none", "2bit", "onebit", "int8shared", "dgc"} <= codecs, codecs
    strange = {row["codec"] for row in rows} - codecs
    assert not strange, f"no codecs: {strange}"
    if part == "kernel":
        for name, codec in CODECS.items():
            assert by_name[name]["codec"] == codec, by_name[name]
    print(f"{part}: {len(rows)} rows of {len(codecs)} codecs")


if __name__ == "__main__":
    main()
