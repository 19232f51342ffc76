"""--emulate-workers: workers and servers of one process have the bits of real
ones, with every codec and every reply."""

import unittest

from harness import SystemTest

FLAGS = ["--num-epochs", "1", "--batch-size", "16", "--gc-min-bytes", "0"]
DIGITS = ["--data", "digits", "--num-batches", "4", "--network"]
RESNET = ["--network", "resnet20", "--benchmark", "1", "--image-shape",
          "3,8,8", "--num-batches", "2"]
# Codes that can be added: their sums are a reply of its own.
SUMMABLE = ["2bit", "1bit", "int8shared", "int4shared", "int2shared",
            "randomk", "powersgd"]


def layers_of(codecs):
    """A network that has a layer for each of the codecs, and the rules."""
    widths = ",".join(["48"] * (len(codecs) - 1))
    return [*DIGITS, f"mlp:{widths}"], ";".join(
        f"fc{layer}[.]={codec}" for layer, codec in enumerate(codecs, 1))


class Emulation(SystemTest):
    def codecs(self):
        text = self.run_to_end(["--help"]).stdout()
        part = text.split("Codecs:\n")[1].split("KVStores:\n")[0]
        names = [line.split()[0] for line in part.splitlines() if line.strip()]
        self.assertGreaterEqual(len(names), 18)
        self.assertLessEqual(set(SUMMABLE), set(names))
        return names

    def compare(self, settings, workers, servers,
                network=(*DIGITS, "mlp"), rules=""):
        flags = [*FLAGS, *network, "--servers", str(servers), "--compare",
                 ",".join(settings), "--gc-rule", rules]
        self.run_to_end([*flags, "--workers", str(workers)], seconds=400)
        real = self.summary()
        run = self.run_to_end([*flags, "--emulate-workers", str(workers)],
                              seconds=400)
        self.assertIn("emulated in one process", run.stdout())
        emulated = self.summary()
        self.assertEqual([one["setting"] for one in emulated], settings)
        ruled = {rule.split("=")[1] for rule in rules.split(";") if rule}
        for one, other in zip(real, emulated):
            with self.subTest(f"{one['setting']} {rules}"):
                self.assertLessEqual(
                    ruled, {each["codec"] for each in one["tensors"]})
                for key in ("weights_sha256", "accuracy", "workers", "servers",
                            "push_raw_bytes", "pull_raw_bytes"):
                    self.assertEqual(other[key], one[key], key)
                # But for frames without a payload, which agree on the first
                # scales: one for each chunk.
                for key in ("push_wire_bytes", "pull_wire_bytes"):
                    more = one[key] - other[key]
                    self.assertEqual(more % 64, 0, key)
                    self.assertLessEqual(0, more)
                    self.assertLessEqual(more, 64 * workers * 256, key)

    def test_profiles_have_the_bits_of_two_workers_in_one_process(self):
        profile = self.gradients(1, 333, 65537, 262144, 600001, 1024, 131071)

        def sums(*flags):
            self.run_to_end([*profile, "--compare", "none,2bit", *flags])
            return [one["weights_sha256"] for one in self.summary()]

        real = sums("--workers", "2", "--servers", "1")
        for flags in (["--kv-store", "local", "--devices", "2"],
                      ["--kv-store", "device", "--devices", "2"],
                      ["--emulate-workers", "2"]):
            self.assertEqual(sums(*flags), real, flags)
        # Devices of a worker are added as floats.
        self.assertEqual(sums("--workers", "1", "--servers", "1", "--devices",
                              "2")[0], real[0])

    def test_every_codec_and_reply(self):
        """Each codec with each reply, a half with a number of members each."""
        replies = ["none", "none+reply=dense"]
        codecs = self.codecs()
        for codecs, settings, workers, servers in (
                (codecs[::2], replies, 2, 1), (codecs[1::2], replies, 4, 2),
                (SUMMABLE, ["none+reply=reencode"], 4, 2)):
            network, rules = layers_of(codecs)
            self.compare(settings, workers, servers, network, rules)

    def test_with_the_optimizer_on_servers_and_batch_normalisation(self):
        self.compare(["none+update-on=server", "2bit+update-on=server"],
                     workers=2, servers=2)
        self.compare(["2bit"], workers=2, servers=1, network=RESNET)


if __name__ == "__main__":
    unittest.main()
