#!/usr/bin/env python3
"""Checks a wheel: its tag, its size, what it needs, and with each interpreter that is
found a fresh environment in which it is installed, gives known answers and runs a job
of two processes over tcp.

    check_wheel.py WHEEL AUDITWHEEL

Ends with 1 where something is wrong; lists interpreters that are not there.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_MB = 15  # without CUDA
NEWEST_GLIBC = (2, 34)  # RHEL 9, Ubuntu 22.04, Debian 12
WANTED = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t")
ASK = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2] + (" \
      "'t' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''))"


def interpreters():
    """One of each version that is here."""
    found = {}
    candidates = ["/usr/bin/python3", *glob.glob(os.path.expanduser(
        "~/.pyenv/versions/3.*/bin/python3")), *filter(None, (
            shutil.which(f"python{version}") for version in WANTED))]
    for candidate in candidates:
        run = subprocess.run([candidate, "-c", ASK], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True, check=False)
        version = run.stdout.strip()
        if run.returncode == 0 and version in WANTED:
            found.setdefault(version, candidate)
    return found


def check_tag_and_size(wheel):
    tag = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_\w+\.whl$", wheel)
    assert tag, f"{wheel} is for one Python or one machine"
    assert tuple(map(int, tag.groups())) <= NEWEST_GLIBC, wheel
    size = os.path.getsize(wheel) / 1e6
    assert size <= MAX_MB, f"{size:.1f} MB, at most {MAX_MB}"
    print(f"{os.path.basename(wheel)}: {size:.1f} MB")


def check_needs(wheel, auditwheel):
    text = subprocess.run([auditwheel, "show", wheel], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    text = " ".join(text.split())
    assert re.search(r'consistent with the following platform tag: "manylinux_2_', text), text


def check_with(python, wheel):
    """Installs it next to nothing else; known answers; a job of two processes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("PYTHONPATH", "TELEGRAD_LIBRARY")}

        def run(*command):
            subprocess.run(command, check=True, env=environment, cwd=folder,
                           stdout=subprocess.DEVNULL)

        run(python, "-m", "venv", folder)
        own = os.path.join(folder, "bin", "python")
        start = time.monotonic()
        run(own, "-m", "pip", "install", "-q", "--no-index", "--no-deps",
            "--disable-pip-version-check", wheel)
        seconds = time.monotonic() - start
        run(own, "-B", os.path.join(HERE, "codec_test.py"), "-q")
        run(own, "-B", os.path.join(HERE, "two_ranks.py"))
        for program in ("telegrad-topo", "telegrad-server", "telegrad-perf"):
            run(os.path.join(folder, "bin", program), "--help")
        return seconds


def main():
    wheel, auditwheel = map(os.path.abspath, sys.argv[1:])
    check_tag_and_size(wheel)
    check_needs(wheel, auditwheel)
    found = interpreters()
    assert found, "no interpreter was found"
    for version in WANTED:
        if version in found:
            seconds = check_with(found[version], wheel)
            print(f"CPython {version}: passed, installed in {seconds:.1f} s", flush=True)
        else:
            print(f"CPython {version}: not here, not run")


if __name__ == "__main__":
    main()
