#!/usr/bin/env python3
"""Runs one network command of telegrad-perf briefly and checks what it prints.

    check_network_command.py TELEGRAD_PERF COMMAND TRANSPORT[:TLS]
"""
import json
import os
import subprocess
import sys
import tempfile

KEYS = ("what", "transport", "details", "ranks", "algorithm", "size_bytes",
        "iterations", "p50_us", "p99_us", "min_us", "max_us", "algbw_GBps",
        "busbw_GBps", "raw_bytes", "wire_bytes", "cpu_ns_per_byte", "checked")
PAIRS = ("latency", "bandwidth", "bibw", "msgrate")
# busbw / algbw of three ranks, by hand from the definitions of nccl-tests.
BUS_FACTORS = {"allreduce": 4 / 3, "reducescatter": 2 / 3, "allgather": 2 / 3,
               "alltoall": 2 / 3}


def arguments(command, transport):
    name, _, tls = transport.partition(":")
    words = [command, "--transport", name, "--tls", tls, "--json", "--check",
             "--warmup", "1", "--iterations", "3", "--timeout", "60"]
    if command == "operations":
        return words + ["--ranks", "3", "--size", "0,12,1200,40000"]
    if command != "barrier":
        words += ["--size", "0,12,100000,1200000"]
    if command in PAIRS:
        return words + ["--ranks", "2"]
    if command == "pushpull":
        return words + ["--workers", "2", "--servers", "1"]
    return words + ["--ranks", "3"]


def check_row(row, command, transport):
    missing = [key for key in KEYS if key not in row]
    assert not missing, f"missing keys {missing}"
    name, _, tls = transport.partition(":")
    assert row["what"] == command and row["transport"] == name, row
    assert row["tls"] == tls, row
    assert row["iterations"] == 3 and row["checked"] == "values", row
    assert 0 < row["min_us"] <= row["p50_us"] <= row["p99_us"] <= row["max_us"]
    factor = BUS_FACTORS.get(command, 1)
    assert abs(row["busbw_GBps"] - factor * row["algbw_GBps"]) < 1e-9, row
    if command == "allreduce" and row["size_bytes"] >= 100000:
        # A ring of three: each sends 4/3 of the data, and headers.
        expected = row["size_bytes"] * 4 / 3
        assert abs(row["raw_bytes"] - expected) < 16, row
        assert row["wire_bytes"] > row["raw_bytes"], row
    if command == "pushpull":
        assert row["raw_bytes"] == 2 * row["size_bytes"], row
        assert row["wire_bytes"] > row["raw_bytes"], row
    if command == "operations":
        assert row["tensors"] == 161 and row["step_us"] > 0, row
        assert row["timeline_step_us"] > 0, row
    if command == "msgrate":
        assert row["messages_per_s"] > 0, row


# command -> code, words of the one line, flags.
REFUSED = {
    "allreduce": (
        (2, ["--algorithm x: ", "ring"], "--algorithm", "x"),
        (2, ["--algorithm chain: ", "auto, recursive_doubling, ring, "
             "halving_doubling, tree, two_level"],
         "--algorithm", "chain"),
        (2, ['--datatype "x"', "bfloat16"], "--datatype", "x"),
        (2, ["'nonet'", "vgg16"], "--profile", "nonet")),
    "barrier": (
        (2, ["has auto, dissemination\n"], "--algorithm", "ring"),),
    "broadcast": (
        (2, ["--root 2: ", "0 to 1"], "--root", "2"),
        (2, ["--root -1: "], "--root", "-1")),
    "bandwidth": (
        (2, ["drop=2", "[0, 1]"], "--fault", "drop=2"),
        (2, ["known are drop"], "--fault", "lose=1")),
    "pushpull": (
        (32, ["64 workers on this host with --check"], "--workers", "64",
         "--servers", "1", "--check", "--size", "1024G"),
        (2, ["'nonet'", "vgg16"], "--profile", "nonet"),
        (2, ["--gc-threshold has no effect"], "--gc-threshold", "1"),
        (2, ["--gc-type 3bit: ", "2bit"], "--gc-type", "3bit"),
        (2, ["no flag '--sizes'; did you mean --size?",
             "telegrad-perf pushpull --help"], "--sizes", "4K"),
        (2, ["--workers", "1 to 512", "pushpull --help"], "--workers", "0"),
        (2, ["'locl'", "dist_sync"], "--kv-store", "locl"),
        (2, ["leave --workers out", "--devices"], "--kv-store", "local",
         "--workers", "2"),
        (2, ["leave --servers out"], "--kv-store", "device", "--servers", "1"),
        (2, ["leave --check out"], "--kv-store", "dist_async", "--check"),
        (2, ["--max-staleness is for dist_async"], "--max-staleness", "2"),
        (2, ["--memory cuda"], "--kv-store", "nccl"),
        (2, ["smoke", "tcp"], "--transport", "smoke"),
        (2, ["tls", "bogus"], "--transport", "tcp", "--tls", "bogus")),
}


def check_refused(program, command, environment):
    """What cannot be is said once, before other ranks start; so is more memory
    than any machine has."""
    for code, words, *flags in REFUSED.get(command, ()):
        if "--transport" not in flags:
            flags += ["--transport", "inproc"]
        wrong = subprocess.run([program, command, *flags], text=True,
                               capture_output=True, timeout=60, check=False)
        assert wrong.returncode == code, wrong
        assert all(word in wrong.stderr for word in words), wrong
        assert wrong.stderr.count("\n") == 1, wrong
    wrong = subprocess.run(
        [program, command, "--timeout", "5"], capture_output=True, text=True,
        timeout=60, check=False, env=environment)
    assert wrong.returncode == 2 and "nonsense" in wrong.stderr, wrong


def check_types(program, words, environment):
    """Other types and several devices of a worker; `words` without its roles."""
    for kv_store, workers, servers, devices, codec in (
            ("local", 1, 0, 3, "none"), ("device", 1, 0, 2, "2bit"),
            ("local", 1, 0, 1, "topk:0.01"), ("dist_sync", 2, 1, 2, "2bit"),
            ("allreduce", 2, 0, 2, "int8"), ("dist_async", 2, 1, 2, "2bit")):
        flags = ["--kv-store", kv_store, "--devices", str(devices), "--gc-type", codec]
        if workers > 1:
            flags += ["--workers", str(workers), "--servers", str(servers)]
        if kv_store == "dist_async":  # weights: there are no sums to check
            flags += ["--max-staleness", "1"]
            words = [word for word in words if word != "--check"]
        shown = subprocess.run([program, *words, *flags], capture_output=True,
                               text=True, timeout=100, check=False,
                               env=environment)
        assert shown.returncode == 0, shown.stderr
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        assert len(rows) == 4, shown.stdout
        for row in rows:
            assert (row["kv_store"], row["workers"], row["servers"], row["devices"],
                    row["gc_type"]) == (kv_store, workers, servers, devices, codec), row
            assert row["checked"] == ("no" if kv_store == "dist_async" else "values"), row
            assert row["wire_bytes"] > 0, row


def main():
    program, command, transport = sys.argv[1:]
    environment = {**os.environ, "TELEGRAD_TRANSPORT": "nonsense"}
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        trace = os.path.join(folder, "trace")
        words = ["--timeline", trace] if command == "operations" else []
        shown = subprocess.run(
            [program, *arguments(command, transport), "--html", page, *words],
            capture_output=True, text=True, timeout=100, check=False,
            env=environment)  # the flag wins
        assert shown.returncode == 0, shown.stderr
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        assert len(rows) == (1 if command == "barrier" else 4), shown.stdout
        for row in rows:
            check_row(row, command, transport)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        assert "</html>" in html and "<script" not in html
        assert ("<svg" in html) == (command != "barrier")
        for path in (trace, trace + ".2") if words else ():
            with open(path, encoding="utf-8") as file:
                assert "ALLREDUCE" in {each["name"] for each in json.load(file)}
    if command == "pushpull":
        words = [*arguments(command, transport)[:-2], "--kv-store", "allreduce"]
        shown = subprocess.run([program, *words], capture_output=True,
                               text=True, timeout=100, check=True,
                               env=environment)
        for row in map(json.loads, shown.stdout.splitlines()):
            check_row(row, command, transport)
            assert (row["kv_store"], row["servers"], row["ranks"]) == (
                "allreduce", 0, 2), row
    if command == "pushpull":
        check_types(program, arguments(command, transport)[:-4], environment)
    if transport == "inproc":
        check_refused(program, command, environment)
    print(f"{command} over {transport}: {len(rows)} rows")


if __name__ == "__main__":
    main()
