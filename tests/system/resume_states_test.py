"""What codecs and optimizers keep is in a checkpoint, on workers and servers: a
run that goes on from one ends with the bits of one that was not interrupted."""

import os
import re
import shutil
import unittest

from harness import SystemTest

HALFWAY = ["--data", "digits", "--num-epochs", "1", "--num-batches", "12",
           "--disp-batches", "1000", "--gc-min-bytes", "0", "--network"]


class ResumeStates(SystemTest):
    def final(self, flags):
        self.run_to_end(flags, seconds=120)
        return [[run[key] for key in
                 ("weights_sha256", "accuracy", "steps", "push_raw_bytes",
                  "push_wire_bytes", "pull_raw_bytes", "pull_wire_bytes")]
                for run in self.summary()]

    def resumed_halfway(self, flags, network="mlp"):
        """The hashes of a run, and of one that goes on from its fifth step."""
        saving = [*HALFWAY, network, *flags, "--checkpoint", "ck", "--checkpoint-every",
                  "5"]
        shutil.rmtree(self.path("ck"), ignore_errors=True)
        whole = self.final(saving)
        self.assertEqual(sorted(os.listdir(self.path("ck"))),
                         ["step-000000000005", "step-000000000010"])
        shutil.rmtree(self.path("ck", "step-000000000010"))
        return whole, self.final([*saving, "--resume"])

    def test_every_codec_goes_on_with_its_residuals(self):
        listed = self.run_to_end(["--help"]).stdout()
        codecs = re.findall(r"^(\w+) ", listed.split("Codecs:")[1]
                            .split("KVStores:")[0], re.M)
        self.assertGreater(len(codecs), 16)
        for half in codecs[::2], codecs[1::2]:  # a layer each
            network = "mlp:" + ",".join(["48"] * (len(half) - 1))
            rules = ";".join(f"fc{layer}[.]={codec}" for layer, codec
                             in enumerate(half, 1))
            with self.subTest(rules):
                whole, resumed = self.resumed_halfway(["--gc-rule", rules],
                                                      network)
                self.assertEqual(whole, resumed)
                self.assertLessEqual(set(half), {
                    each["codec"] for each in self.summary()[0]["tensors"]})

    def test_whatever_keeps_state_goes_on_with_it(self):
        for flags in (
                ["--gc-type", "2bit", "--gc-reply", "dense", "--gc-packing",
                 "radix", "--gc-warmup-steps", "7"],
                ["--gc-type", "threshold", "--gc-reply", "reencode",
                 "--servers", "2", "--optimizer", "adamw", "--lr", "0.001",
                 "--adam-freeze-after", "3"],
                ["--gc-type", "2bit", "--gc-reply", "reencode", "--kv-store",
                 "allreduce", "--optimizer", "rmsprop", "--lr", "0.001"],
                ["--gc-type", "2bit", "--devices", "2", "--kv-store", "local"],
                ["--optimizer", "adam", "--lr", "0.001", "--update-on",
                 "server", "--servers", "2", "--gc-type", "int8",
                 "--devices", "2"],
                ["--optimizer", "adagrad", "--lr", "0.01", "--update-on",
                 "server", "--servers", "2", "--lr-schedule", "cosine"],
                ["--optimizer", "muon", "--lr", "0.001", "--gc-type", "int2",
                 "--local-steps", "4"],
                ["--gc-type", "2bit", "--local-steps", "4", "--outer-lr",
                 "0.7", "--outer-mom", "0.9", "--local-fragments", "3",
                 "--devices", "2"]):
            with self.subTest(" ".join(flags)):
                whole, resumed = self.resumed_halfway(flags)
                self.assertEqual(whole, resumed)


if __name__ == "__main__":
    unittest.main()
