"""One rank of telegrad-train, ended where rank 0 has the accuracy.

    trainer.py OUT TARGET telegrad-train FLAGS...

Rank 0 prints what torch_train.py prints, from OUT's metrics.jsonl.
"""
import json
import os
import subprocess
import sys
import time

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                                "side_by_side"))

from host_links import sent_bytes  # noqa: E402


def curve_of(out):
    """[[step, seconds, accuracy], ...] of the evaluations so far."""
    try:
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
    except OSError:
        return []
    return [[line["step"], line["seconds"], line["test_accuracy"]]
            for line in lines if "test_accuracy" in line]


def main():
    out, target, *words = sys.argv[1:]
    if os.environ["RANK"] != "0":
        os.execv(words[0], words)
    before = sent_bytes()
    with subprocess.Popen(words, stdout=sys.stderr) as process:
        while True:
            ended = process.poll() is not None
            curve = curve_of(out)
            reached = [at for at in curve if at[2] >= float(target)]
            if ended or reached:
                break
            time.sleep(0.5)
        sent = sent_bytes() - before
        process.terminate()
    if not curve:
        sys.exit(f"{words[0]}: no evaluation in {out}/metrics.jsonl")
    first = reached[0] if reached else [None, None]
    print(json.dumps({"seconds": first[1], "steps": first[0],
                      "sent_bytes": sent / curve[-1][0],
                      "accuracy": curve[:curve.index(first) + 1] if reached else curve}),
          flush=True)


if __name__ == "__main__":
    main()
