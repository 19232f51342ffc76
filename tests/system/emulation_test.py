"""--emulate-workers: workers and servers of one process have the bits of real
ones, with every codec and every reply."""

import unittest

from harness import SystemTest

FLAGS = ["--num-epochs", "1", "--batch-size", "16", "--gc-min-bytes", "0"]
MLP = ["--network", "mlp", "--data", "digits", "--num-batches", "4"]
RESNET = ["--network", "resnet20", "--data", "digits:rgb32", "--num-batches",
          "2"]
# Codes that can be added: their sums are a reply of its own.
SUMMABLE = {"2bit", "1bit", "int8shared", "int4shared", "randomk", "powersgd"}


class Emulation(SystemTest):
    def codecs(self):
        text = self.run_to_end(["--help"]).stdout()
        part = text.split("Codecs:\n")[1].split("KVStores:\n")[0]
        names = [line.split()[0] for line in part.splitlines() if line.strip()]
        self.assertGreaterEqual(len(names), 18)
        self.assertLessEqual(SUMMABLE, set(names))
        return names

    def compare(self, settings, workers, servers, network=MLP):
        flags = [*FLAGS, *network, "--servers", str(servers), "--compare",
                 ",".join(settings)]
        self.run_to_end([*flags, "--workers", str(workers)], seconds=400)
        real = self.summary()
        run = self.run_to_end([*flags, "--emulate-workers", str(workers)],
                              seconds=400)
        self.assertIn("emulated in one process", run.stdout())
        emulated = self.summary()
        self.assertEqual([one["setting"] for one in emulated], settings)
        for one, other in zip(real, emulated):
            with self.subTest(one["setting"]):
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

    def test_two_workers_with_every_codec_and_reply(self):
        settings = []
        for name in self.codecs():
            settings.append(name)
            if name == "none":
                continue
            settings.append(f"{name}+reply=dense")
            if name in SUMMABLE:
                settings.append(f"{name}+reply=reencode")
        self.compare(settings, workers=2, servers=1)

    def test_four_workers_and_two_servers(self):
        settings = self.codecs()
        settings += [f"{name}+reply=reencode" for name in sorted(SUMMABLE)]
        self.compare(settings, workers=4, servers=2)

    def test_with_the_optimizer_on_servers_and_batch_normalisation(self):
        self.compare(["none+update-on=server", "2bit+update-on=server"],
                     workers=2, servers=2)
        self.compare(["2bit"], workers=2, servers=1, network=RESNET)


if __name__ == "__main__":
    unittest.main()
