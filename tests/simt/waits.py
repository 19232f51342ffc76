#!/usr/bin/env python3
"""Every wait of the store for a device is needed: without it a test turns red.

    waits.py ROOT TEST_SIMT_STORE

Runs the store's tests on emulated GPUs, in which streams run late, once for each
place in the code that makes a stream wait for an event, and leaves that wait out.
A place that no test reaches, or that is not in SITES, fails, too.
"""
import os
import re
import subprocess
import sys
import tempfile

# Calls of DeviceQueue::WaitOn in these files.
SITES = {"kvstore/engine/device/device_lane.cc": 8}
# Makes a thread look early, and nothing more: it asks events.
ONLY_WAKES = "DeviceLane6Notify"
FILTER = "--gtest_filter=DevicesOnAGpu.*:SimtStoreOrder.*"
MOST_SEEDS = 64
LONGEST_S = 120


def calls(root):
    """How many there are in each file of the store."""
    found = {}
    for folder, _, names in os.walk(os.path.join(root, "kvstore")):
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith((".cc", ".h")):
                continue
            with open(path, encoding="utf-8") as file:
                count = len(re.findall(r"queue(?:_->|->|\.)WaitOn\(", file.read()))
            if count:
                found[os.path.relpath(path, root)] = count
    return found


def is_red(program, seed, **environment):
    """Whether a test fails; one that never ends does."""
    try:
        done = subprocess.run(
            [program, FILTER, "--gtest_brief=1"], check=False, timeout=LONGEST_S,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "TELEGRAD_SIMT_SEED": str(seed), **environment})
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main(root, program):
    found = calls(root)
    assert found == SITES, f"waits are in {found}: put them into SITES"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "waits")
        assert not is_red(program, 3, TELEGRAD_SIMT_WAITS=path), "red with all waits"
        with open(path, encoding="utf-8") as file:
            sites = [line.split() for line in file]
    emulated = sum(SITES.values())
    places = "".join(f"\n  {site} {name}" for site, name in sites)
    assert len(sites) >= emulated, f"{emulated} waits, of which tests reach{places}"
    needless = []
    for site, name in sites:
        if ONLY_WAKES in name:
            continue
        red = next((seed for seed in range(1, MOST_SEEDS + 1)
                    if is_red(program, seed, TELEGRAD_SIMT_LEFT_OUT=site)), None)
        print(f"{name} {site}: " +
              ("no seed finds that it is left out" if red is None else f"seed {red}"),
              flush=True)
        if red is None:
            needless.append(name)
    assert not needless, f"no test needs the waits in {', '.join(needless)}"


if __name__ == "__main__":
    main(*sys.argv[1:])
