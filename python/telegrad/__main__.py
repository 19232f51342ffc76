"""What is installed, and what this machine has for it: python -m telegrad [doctor]."""
from __future__ import annotations

import argparse
import importlib.util

from . import about, doctor


def _report() -> str:
    found = about()
    rows = [("version", found["version"]), ("cuda", found["cuda"])]
    rows += [("transport", line) for line in found["transports"]]
    for package in ("torch", "mxnet"):
        is_there = importlib.util.find_spec(package) is not None
        rows.append((package, "installed" if is_there else "not installed"))
    rows += [("codec", f"{each['name']}: {each['bits']:.3g} bits of an element; "
              f"{each['summary']}") for each in found["codecs"]]
    return "\n".join(f"{name:<10} {text}" for name, text in rows)


def _findings() -> str:
    findings = doctor()["findings"]
    return "\n".join(f"{each.get('severity', '')}: {each.get('sentence', each)}"
                     for each in findings) or "nothing is wrong"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m telegrad", description=__doc__)
    parser.add_argument("--version", action="version", version=about()["version"])
    parser.add_argument("what", nargs="?", choices=("doctor",),
                        help="what is wrong with this machine (docs/doctor.md)")
    print(_findings() if parser.parse_args().what == "doctor" else _report())


if __name__ == "__main__":
    main()
