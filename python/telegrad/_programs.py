"""The programs that lie in the wheel, as commands."""
import os
import sys


def _run(name: str) -> None:
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
    program = os.path.join(folder, name)
    if not os.path.exists(program):
        sys.exit(f"{program} does not exist: this package was not installed from a wheel")
    os.execv(program, [name, *sys.argv[1:]])


def server() -> None:
    _run("telegrad-server")


def topo() -> None:
    _run("telegrad-topo")


def perf() -> None:
    _run("telegrad-perf")
