#!/usr/bin/env python3
"""A profiler that NVTX loads sees a range of each operation.

    ranges_test.py TOOL
"""
import ctypes
import os
import sys

TOOL = os.environ["NVTX_INJECTION64_PATH"] = sys.argv[1]

import numpy as np
import telegrad

tool = ctypes.CDLL(TOOL)
store = telegrad.Store(type="local")
keys = store.init(["a", "b"], [np.ones(4, np.float32)] * 2)
values = [np.ones(4, np.float32), np.ones(4, np.float32)]
for _ in range(3):
    store.push_pull(keys, values, values)
seen = [tool.ranges_begun(name) for name in (b"push_pull", b"push", b"pull")]
assert seen == [3, 0, 0], seen
store.queue.wait(store.start("push", keys, values))
store.queue.wait(store.start("pull", keys, values))
seen = [tool.ranges_begun(name) for name in (b"push_pull", b"push", b"pull")]
assert seen == [3, 1, 1], seen
assert tool.ranges_open() == 0
