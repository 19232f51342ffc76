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
        self.hashes("--compare", "none,2bit", "--seed", "3,4")
        weights = {(run["setting"], run["seed"]): run["weights_sha256"]
                   for run in self.summary()}
        self.assertEqual(len(set(weights.values())), 4)
        first = {setting: weights[setting, 3] for setting in ("none", "2bit")}
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

    @unittest.skipIf(HOSTS_FIRST, "devices of a local store have a codec each")
    def test_devices_of_one_process_give_the_bits_of_workers(self):
        dense = "none,2bit,none+update-on=server,2bit+update-on=server"
        for settings, devices, flags in (
                (f"{dense},2bit+reply=reencode,int8", "2", []),
                (dense, "3", ["--gc-nonfinite", "skip", "--chunk-elems",
                              "4096"])):
            with self.subTest(" ".join(flags)):
                flags = ["--compare", settings, *flags]
                self.assertEqual(
                    self.hashes(*flags, "--kv-store", "local", "--devices",
                                devices),
                    self.hashes(*flags, "--workers", devices))

    def test_allreduce_gives_the_bits_of_servers(self):
        settings = ["none", "2bit", "2bit+reply=reencode", "int8",
                    "none+update-on=server"]
        weights = self.hashes(
            "--compare", ",".join(
                [*settings, *(f"{one}+kv-store=allreduce" for one in settings)]))
        for one in settings:
            self.assertEqual(weights[f"{one}+kv-store=allreduce"],
                             weights[one], one)

    def test_devices_are_summed_before_workers(self):
        self.hashes("--compare", "none,2bit,none+kv-store=allreduce,"
                    "2bit+kv-store=allreduce", "--devices", "2")
        two = {run["setting"]: run for run in self.summary()}
        one = self.hashes("--compare", "none,2bit")
        for run in self.summary():
            name = run["setting"]
            self.assertNotEqual(one[name], two[name]["weights_sha256"])
            self.assertEqual(two[f"{name}+kv-store=allreduce"]["weights_sha256"],
                             two[name]["weights_sha256"])
            self.assertEqual(run["push_wire_bytes"],
                             two[name]["push_wire_bytes"])
        # Places for sums change no bit.
        places = self.hashes("--compare", "2bit,2bit+kv-store=device",
                             "--kv-store", "local", "--devices", "3")
        self.assertEqual(len(set(places.values())), 1)

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
        flags = ["--lr-schedule", "cosine", "--workers", "2", "--devices", "2"]
        self.assertEqual(
            self.hashes(*flags, "--lr", "0.01", "--lr-scaling", "linear"),
            self.hashes(*flags, "--lr", "0.04"))

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
