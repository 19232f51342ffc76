"""Disks, kills at system calls and strangers at ports: the bits stay."""

import os
import random
import shutil
import socket
import time
import unittest

from harness import SystemTest, processes_in, wait_until

TRAINING = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
            "--num-batches", "9", "--gc-type", "2bit"]
STRACE = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null"]
SAVING = [*TRAINING, "--checkpoint", "ck", "--checkpoint-every", "3"]


@unittest.skipUnless(shutil.which("strace"), "strace is not installed")
class Disks(SystemTest):
    def injecting(self, fault, code):
        shutil.rmtree(self.path("ck"), ignore_errors=True)
        calls = fault.split(":")[0]
        run = self.start(SAVING, prefix=[
            *STRACE, "-e", f"trace={calls}", "-e", f"inject={fault}"])
        self.assertEqual(self.wait(run, 120), code, run.output())
        return run

    def final(self, flags):
        self.run_to_end(flags)
        return self.summary()[0]["weights_sha256"]

    def test_its_errors_are_told_and_cost_a_checkpoint_at_most(self):
        for fault, code, words in (
                ("fsync:error=EIO:when=1", 0, ("no checkpoint of step 3",
                                               "Input/output error")),
                ("rename,renameat,renameat2:error=EDQUOT:when=1", 0,
                 ("no checkpoint of step 3", "quota exceeded")),
                ("fsync:error=EIO", 41, ("3 checkpoints in a row failed",)),
                ("mkdir,mkdirat:error=EROFS", 2, ("Read-only file system",))):
            with self.subTest(fault):
                run = self.injecting(fault, code)
                for each in words:
                    self.assertIn(each, run.stdout() + run.stderr())
                if code == 0:
                    self.assertIn("step-000000000009",
                                  os.listdir(self.path("ck")))

    def test_a_kill_at_any_system_call_of_a_write_leaves_the_bits(self):
        whole = self.final(TRAINING)
        # What a write makes on worker 0: folder, part, manifest, both names.
        for fault in ("mkdir,mkdirat:when=2", "fsync:when=2", "fsync:when=4",
                      "rename,renameat,renameat2:when=2", "unlinkat:when=1"):
            with self.subTest(fault):
                calls, when = fault.split(":")
                shutil.rmtree(self.path("ck"), ignore_errors=True)
                run = self.start(SAVING, prefix=[
                    *STRACE, "-e", f"trace={calls}", "-e",
                    f"inject={calls}:signal=SIGKILL:{when}"])
                self.wait(run, 120)
                wait_until(lambda: not processes_in(self.folder), 5)
                has_any = [name for name in os.listdir(self.path("ck"))
                           if name[5:].isdigit()] \
                    if os.path.isdir(self.path("ck")) else []
                self.assertEqual(self.final(
                    [*SAVING, *(["--resume"] if has_any else [])]), whole)
                left = os.listdir(self.path("ck"))
                self.assertEqual([name for name in left
                                  if not name.startswith(("step-", "."))
                                  or name.endswith(".writing")], [])


class Strangers(SystemTest):
    def ports(self):
        """Where the processes of this test listen."""
        sockets = set()
        for pid in processes_in(self.folder):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                try:
                    sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
                except OSError:
                    pass
        found = set()
        with open("/proc/net/tcp", encoding="ascii") as table:
            for line in list(table)[1:]:
                cells = line.split()
                if cells[3] == "0A" and f"socket:[{cells[9]}]" in sockets:
                    found.add(int(cells[1].split(":")[1], 16))
        return found

    def test_garbage_at_each_port_leaves_the_bits(self):
        flags = [*TRAINING[:-4], "--num-batches", "120", "--gc-type", "2bit",
                 "--disp-batches", "1"]
        for transport in ("tcp", "ucx"):
            with self.subTest(transport):
                self.run_to_end([*flags, "--transport", transport])
                whole = self.summary()[0]["weights_sha256"]
                run = self.start([*flags, "--transport", transport,
                                  "--inject", "slow:1:20"])
                self.wait_for_training(run)
                ports = self.ports()
                self.assertGreater(len(ports), 1)
                chance = random.Random(7)
                kept, count = [], 0
                while run.process.poll() is None and count < 1000:
                    for port in ports:
                        try:
                            one = socket.create_connection(
                                ("127.0.0.1", port), 5)
                            one.sendall(chance.randbytes(
                                chance.choice((1, 8, 60, 4096))))
                        except OSError:
                            continue
                        count += 1
                        kept.append(one)
                        if len(kept) > 50:
                            kept.pop(0).close()
                self.assertEqual(self.wait(run, 120), 0, run.output())
                self.assertGreater(count, 100)
                self.assertEqual(self.summary()[0]["weights_sha256"], whole)
                for one in kept:
                    one.close()

    def test_halves_and_slow_ones_are_hung_up_on(self):
        # UCX's own port keeps half a request (SECURITY.md).
        flags = [*TRAINING[:-4], "--num-batches", "90", "--gc-type", "2bit",
                 "--disp-batches", "1", "--transport", "tcp"]
        self.run_to_end(flags)
        whole = self.summary()[0]["weights_sha256"]
        # As long as the slow ones may stay, and as much again.
        run = self.start([*flags, "--inject", "slow:1:200"])
        self.wait_for_training(run)
        slow = {}
        for port in self.ports():
            for says in (b"T", b""):
                slow[port, says] = socket.create_connection(
                    ("127.0.0.1", port), 5)
            half = socket.create_connection(("127.0.0.1", port), 5)
            half.sendall(bytes([64, 0, 0, 0]) + bytes(20))  # of a length
            half.close()
        self.assertGreater(len(slow), 2)
        start = time.monotonic()
        while slow and run.process.poll() is None:
            for (port, says), one in list(slow.items()):
                try:
                    one.sendall(says)
                    one.settimeout(0.2)
                    while said := one.recv(4096):
                        pass  # why it is refused
                    is_over = said == b""
                except TimeoutError:
                    is_over = False
                except OSError:
                    is_over = True
                if is_over:
                    slow.pop((port, says)).close()
        self.assertEqual(slow, {}, "they may stay")
        self.assertIsNone(run.process.poll(), "it had ended")
        self.assertLess(time.monotonic() - start, 15)
        self.assertEqual(self.wait(run, 120), 0, run.output())
        self.assertEqual(self.summary()[0]["weights_sha256"], whole)


if __name__ == "__main__":
    unittest.main()
