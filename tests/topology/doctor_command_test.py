#!/usr/bin/env python3
"""What `telegrad-topo doctor` prints and how it ends.

    doctor_command_test.py TELEGRAD_TOPO
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
DEADLINE_S = 60


def doctor(*arguments):
    return subprocess.run([PROGRAM, "doctor", *arguments], text=True,
                          capture_output=True, timeout=DEADLINE_S, check=False)


def write_port(root, state, gid):
    """A machine with one RoCE port, as its /sys."""
    port = os.path.join(root, "sys/class/infiniband/mlx5_0/ports/1")
    files = {"state": state, "link_layer": "Ethernet", "lid": "0x0",
             "phys_state": "5: LinkUp", "rate": "100 Gb/sec (4X EDR)",
             "gids/0": gid, "gid_attrs/types/0": "RoCE v2",
             "gid_attrs/ndevs/0": "eth2"}
    for name, text in files.items():
        path = os.path.join(port, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text + "\n")
    net = os.path.join(root, "sys/class/net/eth2")
    os.makedirs(os.path.join(net, "device"))
    for name, text in {"mtu": "9000", "operstate": "up", "type": "1",
                       "speed": "100000"}.items():
        with open(os.path.join(net, name), "w", encoding="ascii") as file:
            file.write(text + "\n")


LINK_LOCAL = "fe80:0000:0000:0000:ee0d:9aff:fe00:0041"
ROUTABLE = "0000:0000:0000:0000:0000:ffff:c000:0202"


class DoctorCommand(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def root(self, name, state="4: ACTIVE", gid=ROUTABLE):
        root = os.path.join(self.folder.name, name)
        write_port(root, state, gid)
        return root

    def dump(self, name, **port):
        path = os.path.join(self.folder.name, name + ".json")
        subprocess.run([PROGRAM, "show", "--root", self.root(name, **port),
                        "--dump", path], check=True, capture_output=True,
                       timeout=DEADLINE_S)
        return path

    def test_failures_exit_with_4_and_a_hint(self):
        result = doctor("--root", self.root("a", gid=LINK_LOCAL))
        self.assertEqual(result.returncode, 4, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"\[FAIL\] T05 gid-none: mlx5_0/1")
        self.assertIn("hint: give its interface an address", result.stdout)
        failures = result.stdout.count("[FAIL]")
        self.assertRegex(result.stdout.splitlines()[-1],
                         rf"^{failures} will fail, \d+ to mind, \d+ are well, of "
                         r"\d+; exit code 4$")

    def test_warnings_exit_with_3(self):
        result = doctor("--root", self.root("a", state="1: DOWN"))
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"\[WARN\] T03 port-down: mlx5_0/1")

    def test_json_has_every_check(self):
        result = doctor("--root", self.root("a"), "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["exit_code"], 0)
        ids = {finding["id"] for finding in report["findings"]}
        of_one = {f"T{i:02}" for i in range(1, 29)} - {"T07", "T13", "T19",
                                                       "T20"}
        self.assertEqual(ids, of_one)

    def test_dumps_are_compared(self):
        same = doctor("--diff", self.dump("a"), self.dump("b"))
        self.assertEqual(same.returncode, 0, same.stdout + same.stderr)
        other = doctor("--diff", os.path.join(self.folder.name, "a.json"),
                       self.dump("c", state="1: DOWN"))
        self.assertEqual(other.returncode, 4, other.stdout + other.stderr)
        self.assertIn("T19 topo-differs: hosts differ in active RDMA ports",
                      other.stdout)

    def test_peers_are_reached(self):
        server = subprocess.Popen(
            [PROGRAM, "doctor", "--root", self.root("a"), "--serve",
             "127.0.0.1:0", "--seconds", "5"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            line = server.stderr.readline()
            address = re.search(r"serving on (\S+)", line).group(1)
            result = doctor("--root", self.root("b"), "--peer", address)
            self.assertRegex(result.stdout, r"\[INFO\] P01 peer: .* answers")
            self.assertIn("T19 topo-differs: 2 hosts have equal hardware",
                          result.stdout)
            output, _ = server.communicate(timeout=DEADLINE_S)
            self.assertIn("2 hosts have equal hardware", output)
        finally:
            server.kill()
            server.wait()
        result = doctor("--root", self.root("c"), "--peer", address)
        self.assertEqual(result.returncode, 4)
        self.assertIn("cannot be reached", result.stdout)
        self.assertRegex(result.stdout, r"ip route get 127\.0\.0\.1\n")
        result = doctor("--root", self.root("d"), "--peer",
                        address.replace("127.0.0.1", "localhost"))
        self.assertIn("ip route get ADDRESS\n", result.stdout)

    def test_this_machine(self):
        result = doctor()
        self.assertIn(result.returncode, (0, 3, 4), result.stderr)
        self.assertIn("T01 rdma-devnodes", result.stdout)

    def test_what_a_comparison_would_ignore_is_refused(self):
        dumps = [self.dump("a"), self.dump("b")]
        for flags in (["--serve", "127.0.0.1:0"], ["--peer", "127.0.0.1:1"],
                      ["--calibration", "/nonexistent"], ["--probe"],
                      ["--priority", "3"], ["--seconds", "1"],
                      ["--root", self.folder.name]):
            result = doctor("--diff", *dumps, *flags)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn(flags[0], result.stderr)
        self.assertEqual(doctor("--json", "--diff", *dumps).returncode, 0)

    def test_wrong_use_is_told(self):
        for arguments, words in (
                (["--from", "/nonexistent"], "/nonexistent"),
                (["--diff", "one"], "--diff"),
                (["--peer", "foo"], "host:port"),
                (["--priority", "9"], "--priority")):
            result = doctor(*arguments)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn(words, result.stderr + result.stdout)


if __name__ == "__main__":
    unittest.main()
