#!/usr/bin/env python3
"""telegrad-topo show as a user runs it: show_command_test.py PROGRAM."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


def show(*flags, **environment):
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith("TELEGRAD_")}
    return subprocess.run([PROGRAM, "show", *flags], text=True, timeout=60,
                          capture_output=True, env={**clean, **environment})


def write(root, files):
    for path, text in files.items():
        path = os.path.join(root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)


PORT = "sys/class/infiniband/mlx5_0/ports/1/"
ROCE = {
    "sys/class/net/eth2/type": "1",
    "sys/class/net/eth2/mtu": "9000",
    "sys/class/net/eth2/device/vendor": "0x15b3",
    PORT + "link_layer": "Ethernet",
    PORT + "state": "4: ACTIVE",
    PORT + "rate": "100 Gb/sec (4X EDR)",
    PORT + "gids/0": "fe80:0000:0000:0000:0000:0000:0000:0001",
    PORT + "gids/1": "0000:0000:0000:0000:0000:ffff:c000:0201",
    PORT + "gid_attrs/types/0": "RoCE v2",
    PORT + "gid_attrs/types/1": "RoCE v2",
    PORT + "gid_attrs/ndevs/0": "eth2",
    PORT + "gid_attrs/ndevs/1": "eth2",
}


class Show(unittest.TestCase):

    def setUp(self):
        # pylint: disable=consider-using-with
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = os.path.join(self.folder.name, "root")
        write(self.root, ROCE)

    def json(self, *flags, **environment):
        result = show("--json", *flags, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_this_machine_as_hwloc_sees_it(self):
        # libhwloc's plug-in for PCI keeps what libpciaccess allocates.
        done = show("--hwloc", "--json", ASAN_OPTIONS="detect_leaks=0")
        if "libhwloc-dev" in done.stderr:
            self.assertEqual(done.returncode, 2)
            self.skipTest("this build has no libhwloc")
        self.assertEqual(done.returncode, 0, done.stderr)
        machine = json.loads(done.stdout)
        self.assertEqual(machine["source"], "libhwloc")
        self.assertGreaterEqual(machine["cpus"], 1)
        for other in (["--from", self.root], ["--probe"]):
            self.assertEqual(show("--hwloc", *other).returncode, 2)
        done = show("--hwloc", HWLOC_SYNTHETIC="pu:2",
                    ASAN_OPTIONS="detect_leaks=0")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("HWLOC_SYNTHETIC", done.stderr)

    def test_this_machine(self):
        machine = self.json()
        for member in ("gpu_nic", "gpu_gpu", "nics", "gpus", "gdr"):
            self.assertIn(member, machine)
        self.assertIn(machine["gdr"], ("yes", "no", "unknown"))
        text = show("--why")
        self.assertEqual(text.returncode, 0)
        self.assertIn("capabilities", text.stdout)
        self.assertIn("because", text.stdout)

    def test_a_recorded_machine(self):
        [nic] = self.json("--root", self.root)["nics"]
        self.assertEqual(nic["name"], "mlx5_0")
        self.assertEqual(nic["transport"], "RoCEv2")
        self.assertEqual((nic["state"], nic["gbps"], nic["gid_index"]),
                         ("ACTIVE", 100, 1))
        [port] = nic["ports"]
        self.assertEqual(
            (port["port"], port["mtu"], port["netdev"], port["link_layer"]),
            (1, 4096, "eth2", "Ethernet"))
        text = show("--root", self.root).stdout
        self.assertIn("* GID 1", text)
        self.assertIn("GID 1 is the best routable row", text)

    def test_a_dump_shows_the_same(self):
        dump = os.path.join(self.folder.name, "dump.json")
        machine = self.json("--root", self.root, "--dump", dump)
        again = self.json("--from", dump)
        self.assertEqual(again["nics"], machine["nics"])
        self.assertEqual(again["digest"], machine["digest"])
        by_name = self.json(TELEGRAD_TOPO_FILE=dump)
        self.assertEqual(by_name["nics"], machine["nics"])

    def test_overrides_win(self):
        [nic] = self.json("--root", self.root, TELEGRAD_GID_INDEX="0",
                          TELEGRAD_LINK_GBPS="25")["nics"]
        self.assertEqual((nic["gid_index"], nic["gbps"]), (0, 25))
        machine = self.json("--root", self.root, TELEGRAD_NICS="^mlx5")
        self.assertEqual(machine["nics"], [])
        machine = self.json("--root", self.root, TELEGRAD_GDR="on")
        self.assertEqual(machine["gdr"], "yes")

    def test_output_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "wb") as full:
            for flags in ([], ["--json"]):
                result = subprocess.run(
                    [PROGRAM, "show", "--root", self.root, *flags], stdout=full,
                    stderr=subprocess.PIPE, text=True, timeout=60, check=False)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn("standard output cannot be", result.stderr)

    def test_what_is_wrong_is_named(self):
        missing = os.path.join(self.folder.name, "none")
        for flags, environment, words in (
                (["--from", missing], {}, missing),
                (["--root", self.folder.name + "/root/sys/class/net"], {},
                 "root of a recorded file system"),
                (["--dump", missing + "/x"], {}, missing),
                (["--svg", missing + "/x"], {}, missing),
                ([], {"TELEGRAD_NICS": "mlx5_0:abc"}, "TELEGRAD_NICS"),
                ([], {"TELEGRAD_GID_INDEX": "x"}, "TELEGRAD_GID_INDEX"),
                (["--no-such-flag"], {}, "--no-such-flag")):
            result = show(*flags, **environment)
            self.assertEqual(result.returncode, 2, flags)
            self.assertIn(words, result.stderr)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main()
