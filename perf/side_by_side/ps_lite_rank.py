"""One role of BytePS's ps-lite, by its own benchmark (DMLC_ROLE says which).

    ps_lite_rank.py BINARY SIZES.json WARMUP ITERATIONS

BINARY is its tests/test_benchmark.cc. Workers print {"seconds": [...]}: push
and pull of all keys, which have one size; its servers add nothing up.
"""
import json
import math
import os
import re
import subprocess
import sys

PUSH_PULL = "1"
# "Application goodput: 2.9 Gbps."
GOODPUT = re.compile(r"goodput: ([0-9.e+-]+) Gbps")


def main():
    binary, sizes, warmup, iterations = sys.argv[1:]
    with open(sizes, encoding="utf-8") as file:
        shapes = json.load(file)
    elements = {math.prod(shape) for shape in shapes}
    servers = int(os.environ["DMLC_NUM_SERVER"])
    if len(elements) > 1 or len(shapes) % servers:
        sys.exit("ps-lite's benchmark has keys of one size, as many on each "
                 f"server: not {len(shapes)} of {sorted(elements)} elements "
                 f"on {servers}")
    num_bytes = 4 * elements.pop()
    rounds = int(warmup) + int(iterations)
    done = subprocess.run(
        [binary, str(num_bytes), "1", PUSH_PULL],
        env={**os.environ, "LOG_DURATION": "1", "TOTAL_DURATION": str(rounds),
             "NUM_KEY_PER_SERVER": str(len(shapes) // servers)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    goodputs = [float(text) for text in GOODPUT.findall(done.stdout)]
    if os.environ["DMLC_ROLE"] != "worker":
        return
    if len(goodputs) != rounds:
        sys.exit(f"{binary} (exit code {done.returncode}): {len(goodputs)} "
                 f"results of {rounds}: {done.stdout[-500:]}")
    bits = 8 * num_bytes * len(shapes)
    print(json.dumps({"seconds": [1e-9 * bits / each
                                  for each in goodputs[int(warmup):]]}),
          flush=True)


if __name__ == "__main__":
    main()
