"""Where measurements are written: names that say what was measured, and when."""
import json
import os
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.normpath(os.path.join(HERE, "..", "results"))
# Of the place where it ran, not of what was measured.
PLACES = ("build", "data", "out", "mxnet_python", "ps_lite_benchmark")


def commit():
    try:
        run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], text=True,
                             capture_output=True, check=False, cwd=HERE)
    except OSError:  # no git
        return "unknown"
    return run.stdout.strip() or "unknown"


def plural(number, what):
    return f"{number}-{what}{'s' * (str(number) != '1')}"


def rate_name(rate):
    return "unshaped" if rate == "none" else rate


def profile_name(profile):
    """Of a network, or of a file of gradients."""
    name = os.path.splitext(os.path.basename(profile))[0]
    return name.replace("_", "-")


def default_out(words, folder=FOLDER):
    """A file in perf/results without its ending; no run replaces another's."""
    first = os.path.join(folder, "-".join(
        [*words, time.strftime("%Y-%m-%d"), commit()]))
    out, number = first, 1
    while os.path.exists(out + ".jsonl"):
        number += 1
        out = f"{first}-{number}"
    return out


def shown_options(options):
    """Those that say what was measured."""
    return {key: value for key, value in vars(options).items()
            if key not in PLACES}


def write(options, cases, **about):
    """A line that says what was measured, then a line for each case."""
    os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
    with open(options.out + ".jsonl", "w", encoding="utf-8") as file:
        for line in ({"options": shown_options(options), **about}, *cases):
            file.write(json.dumps(line) + "\n")


def read(path):
    """What write() wrote: the line about all, and those of the cases."""
    with open(path, encoding="utf-8") as file:
        first, *cases = map(json.loads, file)
    return first, cases


def announce(out):
    print(f"written: {os.path.relpath(out)}.jsonl", flush=True)
