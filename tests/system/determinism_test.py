"""The same seed gives the same bits, whatever our own threads and ways do."""

import re
import unittest

from harness import HOSTS_FIRST, SHORT, SystemTest


class Determinism(SystemTest):
    def hashes(self, *flags):
        """setting -> hash of the final weights."""
        self.run_to_end([*SHORT, *flags])
        return {run["setting"]: run["weights_sha256"] for run in self.summary()}

    def test_the_same_seed_gives_the_same_bits(self):
        first = self.hashes("--compare", "none,2bit", "--seed", "3")
        self.assertNotEqual(first["none"], first["2bit"])
        # Several at once: none of them may change a bit.
        for flags in (["--threads", "0", "--tls", "tcp", "--servers", "2"],
                      ["--threads", "3", "--tls", "shm", "--chunk-elems",
                       "4096"],
                      ["--transport", "tcp", "--tls", "tcp", "--connections",
                       "3", "--early-step", "0", "--disp-batches", "3",
                       "--chunk-elems", "100000"]):
            with self.subTest(" ".join(flags)):
                self.assertEqual(self.hashes("--compare", "none,2bit",
                                             "--seed", "3", *flags), first)
        other = self.hashes("--gc-type", "2bit", "--seed", "4")
        self.assertNotEqual(other["2bit"], first["2bit"])

    @unittest.skipIf(HOSTS_FIRST, "devices of a local store have a codec each")
    def test_devices_of_one_process_give_the_bits_of_workers(self):
        settings = ["--compare", "none,2bit,2bit+reply=reencode,int8"]
        for flags in ([], ["--gc-nonfinite", "skip", "--chunk-elems", "4096"]):
            with self.subTest(" ".join(flags)):
                self.assertEqual(
                    self.hashes(*settings, *flags, "--kv-store", "local",
                                "--devices", "2"),
                    self.hashes(*settings, *flags, "--workers", "2"))
        server = ["--compare", "none,2bit", "--update-on", "server"]
        self.assertEqual(
            self.hashes(*server, "--kv-store", "local", "--devices", "3"),
            self.hashes(*server, "--workers", "3"))

    def test_allreduce_gives_the_bits_of_servers(self):
        settings = ["--compare", "none,2bit,2bit+reply=reencode,int8,"
                    "none+update-on=server"]
        self.assertEqual(
            self.hashes(*settings, "--kv-store", "allreduce"),
            self.hashes(*settings, "--kv-store", "dist_sync", "--workers", "2",
                        "--servers", "2"))

    def test_devices_are_summed_before_workers(self):
        flags = ["--compare", "none,2bit", "--workers", "2", "--devices", "2"]
        first = self.hashes(*flags)
        runs = {run["setting"]: run for run in self.summary()}
        self.assertEqual(self.hashes(*flags, "--kv-store", "allreduce"), first)
        one = self.hashes("--compare", "none,2bit", "--workers", "2")
        self.assertNotEqual(one, first)
        for run in self.summary():
            self.assertEqual(run["push_wire_bytes"],
                             runs[run["setting"]]["push_wire_bytes"])
        # Places for sums change no bit.
        self.assertEqual(
            self.hashes("--gc-type", "2bit", "--kv-store", "device",
                        "--devices", "3"),
            self.hashes("--gc-type", "2bit", "--kv-store", "local",
                        "--devices", "3"))

    def test_uneven_loads_count_all_samples_alike(self):
        alone = ["--kv-store", "local"]
        self.hashes(*alone, "--batch-size", "64")
        (whole,) = self.summary()
        self.hashes(*alone, "--batch-size", "32", "--devices", "2",
                    "--work-load-list", "3,1")
        (divided,) = self.summary()
        # The same samples in each step, summed in another order.
        self.assertEqual(divided["steps"], whole["steps"])
        self.assertAlmostEqual(divided["loss"], whole["loss"],
                               delta=1e-4)

    def test_linear_scaling_is_a_rate_for_each_worker(self):
        schedule = ["--lr-schedule", "cosine"]
        for flags, scaled in ((["--workers", "2"], "0.02"),
                              (["--workers", "2", "--devices", "2"], "0.04")):
            self.assertEqual(
                self.hashes(*schedule, *flags, "--lr", "0.01", "--lr-scaling",
                            "linear"),
                self.hashes(*schedule, *flags, "--lr", scaled))

    def test_libfabric_gives_the_same_bits(self):
        listed = self.run_to_end(["--help"], seconds=20).stdout()
        if re.search(r"ofi +not in this build", listed):
            self.skipTest("libfabric is not in this build")
        flags = ["--gc-type", "2bit", "--workers", "2", "--servers", "1"]
        usual = self.hashes(*flags)
        self.assertEqual(
            self.hashes(*flags, "--transport", "ofi", "--tls", "tcp"), usual)
        for run in self.summary():
            self.assertIn("libfabric", run["transport"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
