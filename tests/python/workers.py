"""Runs functions of a test file as the ranks of a job, each in a process of its own."""
import json
import os
import signal
import socket
import subprocess
import sys
import unittest

TIMEOUT_S = 60
SKIPPED = 77


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def skip(why):
    """Ends the test file: its tool is not here, which CI does not accept."""
    print(f"skipped: {why}")
    sys.exit(1 if os.environ.get("CI") == "true" else SKIPPED)


def refused(kind, work):
    """The text of the error of that kind that `work` must raise."""
    try:
        work()
    except kind as why:
        return str(why)
    raise AssertionError(f"no {kind}")


class Ranks:
    """Processes that run `function` of `file`, with torchrun's variables; `runner`: what
    Python is given before the file."""

    def __init__(self, file, function, num=2, argument=None, runner=(), **environment):
        common = dict(os.environ, WORLD_SIZE=str(num), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(free_port()), ARGUMENT=json.dumps(argument),
                      OMP_NUM_THREADS="1", **environment)
        self.processes = [
            subprocess.Popen([sys.executable, "-B", *runner, file, "--rank", function],
                             env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank in range(num)]

    def line(self, rank):
        """The next line that this rank prints."""
        return self.processes[rank].stdout.readline().strip()

    def kill(self, rank, number=signal.SIGKILL):
        self.processes[rank].send_signal(number)

    def wait(self):
        """(code, stdout, stderr) by rank; whoever takes too long is ended."""
        try:
            texts = [process.communicate(timeout=TIMEOUT_S)
                     for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
        return [(process.returncode, *text)
                for process, text in zip(self.processes, texts)]

    def results(self):
        """What each rank printed last, as JSON; all must have ended well."""
        ended = self.wait()
        for rank, (code, out, err) in enumerate(ended):
            assert code == 0, f"rank {rank} ended with {code}:\n{out}\n{err}"
        return [json.loads(out.strip().splitlines()[-1]) for _, out, _ in ended]


def run_all(commands, environment):
    """Python with these arguments, as ranks; (code, stdout, stderr) of each."""
    processes = [subprocess.Popen([sys.executable, "-B", *command],
                                  env=dict(environment, RANK=str(rank)),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) for rank, command in enumerate(commands)]
    try:
        texts = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (out, err) in zip(processes, texts):
        assert process.returncode == 0, f"{process.returncode}:\n{out}\n{err}"
    return [(process.returncode, *text) for process, text in zip(processes, texts)]


def main(functions):
    """Of a test file: runs its tests, or one function as a rank."""
    if len(sys.argv) == 3 and sys.argv[1] == "--rank":
        # A shell starts what runs in the background with Ctrl-C ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        result = functions[sys.argv[2]](json.loads(os.environ["ARGUMENT"]))
        print(json.dumps(result), flush=True)
        return
    unittest.main()
