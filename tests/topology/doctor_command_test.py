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


def doctor(*arguments, **how):
    return subprocess.run([PROGRAM, "doctor", *arguments], text=True,
                          capture_output=True, timeout=DEADLINE_S, check=False, **how)


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
        of_one = {f"T{i:02}" for i in range(1, 32)} - {"T07", "T13", "T19",
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

    def finding(self, identity, *arguments, **how):
        """What one check says of a machine; `how` as for subprocess.run."""
        result = doctor("--json", *arguments, **how)
        self.assertIn(result.returncode, (0, 3, 4), result.stderr)
        return next(each for each in json.loads(result.stdout)["findings"]
                    if each["id"] == identity)

    def test_a_recorded_container(self):
        root = self.root("a")
        for name, text in {
                "proc/self/cgroup": "0::/\n",
                "proc/self/mountinfo":
                    "1 0 0:1 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
                    "2 0 0:2 / /dev/shm rw - tmpfs shm rw,size=16384k\n",
                "sys/fs/cgroup/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/memory.max": "536870912\n"}.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        for identity, words in (("T29", "/dev/shm has 16 MiB"),
                                ("T30", "share 1.5 CPUs"),
                                ("T31", "gives 512 MiB")):
            found = self.finding(identity, "--root", root)
            self.assertEqual(found["severity"], "WARN", found)
            self.assertIn(words, found["sentence"])
            found = self.finding(identity, "--root", root, "--processes", "1",
                                 "--registered-mib", "100")
            self.assertNotEqual(found["severity"], "WARN", found)

    def test_control_groups_of_this_machine(self):
        """Real ones of version 1 or 2, whichever is mounted, with the controller."""
        def made(controller, of_second, of_first):
            second = f"/sys/fs/cgroup/telegrad-test-{os.getpid()}"
            first = f"/sys/fs/cgroup/{controller}/telegrad-test-{os.getpid()}"
            for folder, files in ((second, of_second), (first, of_first)):
                try:
                    os.mkdir(folder)
                except OSError:
                    continue
                self.addCleanup(os.rmdir, folder)
                try:
                    for name, text in files.items():
                        with open(f"{folder}/{name}", "r+", encoding="ascii") as file:
                            file.write(text)
                    return folder
                except OSError:
                    continue  # no such controller, or not delegated
            return self.skipTest(f"no control group with {controller} can be made")

        def enter(folder):
            with open(f"{folder}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))

        folder = made("cpu", {"cpu.max": "50000 100000"},
                      {"cpu.cfs_quota_us": "50000"})
        found = self.finding("T30", preexec_fn=lambda: enter(folder))
        self.assertEqual(found["severity"], "WARN", found)
        self.assertIn("share 0.5 CPUs", found["sentence"])
        self.assertIn(folder, found["evidence"])
        folder = made("memory", {"memory.max": "1073741824"},
                      {"memory.limit_in_bytes": "1073741824"})
        found = self.finding("T31", preexec_fn=lambda: enter(folder))
        self.assertEqual(found["severity"], "WARN", found)
        self.assertIn("gives 1024 MiB", found["sentence"])
        self.assertIn(folder, found["evidence"])

    def test_a_small_dev_shm_of_this_machine(self):
        mount = ["unshare", "--mount", "--map-root-user", "sh", "-c",
                 "mount -t tmpfs -o size=8m none /dev/shm && exec \"$@\"", "sh"]
        if subprocess.run([*mount, "true"], capture_output=True,
                          check=False).returncode:
            self.skipTest("no mount namespace of its own")
        result = subprocess.run([*mount, PROGRAM, "doctor"], text=True,
                                capture_output=True, timeout=DEADLINE_S, check=False)
        self.assertRegex(result.stdout, r"\[WARN\] T29 shm: /dev/shm has 8 MiB")

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
