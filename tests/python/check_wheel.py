#!/usr/bin/env python3
"""Checks a wheel: tag, size, metadata, what it needs, and with each interpreter that is
found a fresh environment in which it is installed, gives known answers and runs a job
of two processes over tcp.

    check_wheel.py WHEEL AUDITWHEEL

Ends with 1 where something is wrong; lists interpreters that are not there.
"""
import email
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

import abi_test

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_MB = {"without CUDA": 8, "with CUDA": 14}
MAX_OWN_MB = 2  # of libtelegrad.so and each program, unpacked: the layers are in libtelegrad-core.so
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


class Environment:
    """A fresh one of `python` with `wheel` in it; seconds: what installing took."""

    def __init__(self, python, wheel):
        self.folder = tempfile.TemporaryDirectory()
        self.variables = {name: value for name, value in os.environ.items()
                          if name not in ("PYTHONPATH", "TELEGRAD_LIBRARY")}
        subprocess.run([python, "-m", "venv", self.folder.name], check=True,
                       env=self.variables)
        start = time.monotonic()
        self.pip("--no-index", wheel)
        self.seconds = time.monotonic() - start

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def run(self, program, *arguments):
        """What a program of it printed."""
        return subprocess.run(
            [os.path.join(self.folder.name, "bin", program), *arguments], check=True,
            env=self.variables, cwd=self.folder.name, stdout=subprocess.PIPE, text=True).stdout

    def pip(self, *what):
        self.run("python", "-m", "pip", "install", "-q", "--no-deps",
                 "--disable-pip-version-check", *what)


def check_exports(library):
    """That libtelegrad.so has the recorded calls and nothing else."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(library)
        file.flush()
        with open(os.path.join(HERE, "abi.txt"), encoding="utf-8") as recorded:
            wanted = re.findall(r"^telegrad_\w+$", recorded.read(), re.M)
        found = abi_test.exported(file.name)
    assert found == sorted(wanted), set(found) ^ set(wanted)


def check_tag_and_size(wheel):
    tag = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_\w+\.whl$", wheel)
    assert tag, f"{wheel} is for one Python or one machine"
    assert tuple(map(int, tag.groups())) <= NEWEST_GLIBC, wheel
    with zipfile.ZipFile(wheel) as files:
        binaries = {os.path.basename(name): files.read(name) for name in files.namelist()
                    if re.match(r"telegrad/(bin/|lib)", name)}
    check_exports(binaries["libtelegrad.so"])
    core = binaries.pop("libtelegrad-core.so")
    for name, binary in binaries.items():
        assert len(binary) < MAX_OWN_MB * 1e6 and b".nv_fatbin" not in binary, name
    kind = "with CUDA" if b".nv_fatbin" in core else "without CUDA"  # a section's name
    assert kind == "without CUDA" or "+cpu-" not in wheel, f"{wheel} has CUDA"
    size = os.path.getsize(wheel) / 1e6
    assert size <= MAX_MB[kind], f"{size:.1f} MB, at most {MAX_MB[kind]} {kind}"
    print(f"{os.path.basename(wheel)}: {size:.1f} MB, {kind}")


def relative_links(page):
    """Those of a page in Markdown that lead nowhere on an index of packages."""
    places = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=[\"']([^\"']+)|^\[[^]]+\]:\s*(\S+)",
                        page, re.M)
    return [place for place in map("".join, places) if not place.startswith("https://")]


def check_metadata(wheel):
    """That pip and an index have it all; tests/python/metadata_test.py reads its source."""
    with zipfile.ZipFile(wheel) as files:
        name = next(each for each in files.namelist() if each.endswith(".dist-info/METADATA"))
        found = email.message_from_bytes(files.read(name))
        licences = name.replace("METADATA", "licenses/LICENSE")
        assert licences in files.namelist(), licences
    assert found["License-Expression"] == "Apache-2.0" and not found["License"], found["License"]
    for field in ("Author", "Keywords", "Project-URL", "Summary"):
        assert found[field], field
    assert len(found.get_all("Classifier")) > len(WANTED)
    assert not relative_links(found.get_payload())


def check_needs(wheel, auditwheel):
    text = subprocess.run([auditwheel, "show", wheel], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    text = " ".join(text.split())
    assert re.search(r'consistent with the following platform tag: "manylinux_2_', text), text


def check_old_processor(own):
    """The known answers on a processor with SSE4.2 and no AVX, in QEMU."""
    qemu = shutil.which("qemu-x86_64")
    if qemu is None or platform.machine() != "x86_64":
        print("known answers without AVX: no qemu-x86_64 (qemu-user), not run")
        return
    subprocess.run([qemu, "-cpu", "Nehalem", os.path.join(own.folder.name, "bin/python"), "-B",
                    os.path.join(HERE, "codec_test.py"), "-q"], check=True,
                   env=own.variables, cwd=own.folder.name)


def check_emulated(wheel, machine):
    """A wheel for another processor, in QEMU: known answers, a job, programs. By Debian's
    library of Python for that processor, which has no program beside another one's."""
    qemu, compiler = map(shutil.which, (f"qemu-{machine}", f"{machine}-linux-gnu-gcc"))
    library = glob.glob(f"/usr/lib/{machine}-linux-gnu/libpython3.*.so.1.0")
    if not (qemu and compiler and library):
        print(f"{machine}: no qemu-user, compiler or libpython3-dev for it, not run")
        return
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as files:
            files.extractall(folder)
        for program in glob.glob(f"{folder}/telegrad/bin/*"):
            os.chmod(program, 0o755)  # which zipfile leaves out
        python, source = os.path.join(folder, "python"), os.path.join(folder, "python.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int Py_BytesMain(int, char**);\n"
                       "int main(int n, char** of) { return Py_BytesMain(n, of); }\n")
        subprocess.run([compiler, source, library[0], "-o", f"{python}.{machine}"], check=True)
        with open(python, "w", encoding="utf-8") as file:  # sys.executable, which tests start
            file.write(f'#!/bin/sh\nexec {qemu} -0 "$0" {python}.{machine} "$@"\n')
        os.chmod(python, 0o755)
        programs = os.path.join(folder, "telegrad", "bin")
        for command in ([python, "-B", os.path.join(HERE, "codec_test.py"), "-q"],
                        [python, "-B", os.path.join(HERE, "two_ranks.py")],
                        [qemu, f"{programs}/telegrad-topo", "--help"],
                        [qemu, f"{programs}/telegrad-server", "--help"],
                        [qemu, f"{programs}/telegrad-perf", "allreduce", "--transport", "inproc",
                         "--size", "64K", "--check", "--json"]):
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE,
                           env=dict(os.environ, PYTHONPATH=folder))
    print(f"{machine}: known answers, a job of two processes and sums in QEMU")


def check_with(python, wheel):
    """Installs it next to nothing else; known answers, also on an old processor; a job of
    two processes."""
    with Environment(python, wheel) as own:
        own.run("python", "-B", os.path.join(HERE, "codec_test.py"), "-q")
        check_old_processor(own)
        own.run("python", "-B", os.path.join(HERE, "two_ranks.py"))
        for program in ("telegrad-topo", "telegrad-server", "telegrad-perf", "telegrad-launch"):
            own.run(program, "--help")
        return own.seconds


def check_opened(python, wheel):
    """The libraries that are opened when they are needed, by the table of transports:
    the machine's, where it has them, then UCX by pip, which goes before."""
    sums = ("telegrad-perf", "allreduce", "--size", "1M", "--check", "--json", "--transport")
    with Environment(python, wheel) as own:
        table = dict(re.findall(r"^(\w+): (.*)", own.run("telegrad-perf", "--help"), re.M))
        for name in ("ucx", "ofi"):
            missing = "not installed" in table[name]
            assert not missing or "it comes with" in table[name], table[name]
            print(f"{name}: {table[name] if missing else 'sums by the library of this machine'}")
            if not missing:
                own.run(*sums, name)
        try:
            own.pip("libucx-cu12")
        except subprocess.CalledProcessError:
            print("ucx: pip has no libucx-cu12 here, not run")
            return
        version = own.run("python", "-c", "import libucx; print(libucx.__version__)")
        version = re.match(r"[\d.]*\d", version).group()
        assert f"UCX {version}," in own.run(*sums, "ucx"), version
        print(f"ucx: sums by pip's libucx-cu12 {version}")


def main():
    wheel, auditwheel = map(os.path.abspath, sys.argv[1:])
    check_tag_and_size(wheel)
    check_metadata(wheel)
    check_needs(wheel, auditwheel)
    machine = re.search(r"_\d+_\d+_(\w+)\.whl$", wheel).group(1)
    if machine != platform.machine():
        check_emulated(wheel, machine)
        return
    found = interpreters()
    assert found, "no interpreter was found"
    for version in WANTED:
        if version in found:
            seconds = check_with(found[version], wheel)
            print(f"CPython {version}: passed, installed in {seconds:.1f} s", flush=True)
        else:
            print(f"CPython {version}: not here, not run")
    check_opened(next(iter(found.values())), wheel)


if __name__ == "__main__":
    main()
