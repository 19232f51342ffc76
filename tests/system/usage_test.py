"""What a user gives beside wrong flags: data, checkpoints, folders, variables, limits; and
what --help says."""

import os
import re
import shutil
import struct
import subprocess
import unittest
import zlib

from harness import BINARY, SHORT, SystemTest

def png(side=8):
    """A grey image, as bytes of a file."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    rows = b"".join(b"\0" + bytes([128] * side) for _ in range(side))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Usage(SystemTest):
    def test_flags_of_tf_cnn_benchmarks_are_taken(self):
        text = self.run_to_end(["--model=mlp", "--num_gpus", "2", "--batch_size=32",
                                "--kv_store=local", "--explain"]).stdout()
        self.assertIn("fc1.weight", text)
        self.refused(["--model", "nonet"], ["--network nonet"])

    # An 18 setting comparison is not lost by the next command.
    def test_results_of_another_command_are_moved_aside(self):
        flags = self.gradients()
        self.run_to_end([*flags, "--compare", "none,2bit"])
        run = self.run_to_end([*flags, "--compare", "none,2bit"])
        self.assertNotIn("moved", run.output())
        run = self.run_to_end([*flags, "--compare", "none,2bit", "--gc-min-bytes",
                               "0"])
        self.assertIn("results of another command in telegrad-out were moved to "
                      + self.path("telegrad-out.1"), run.stderr())
        run = self.run_to_end([*flags, "--gc-type", "int8"])
        self.assertIn("telegrad-out.2", run.stderr())
        for out, names in (("telegrad-out", ["int8"]),
                           ("telegrad-out.1", ["none", "2bit"]),
                           ("telegrad-out.2", ["none", "2bit"])):
            self.assertEqual([each["setting"] for each in self.summary(out)],
                             names)
            self.assertTrue(os.path.exists(self.path(out, "report.html")))
        self.run_to_end([*flags, "--compare", "none,2bit", "--gc-min-bytes", "0",
                         "--out", "telegrad-out.2", "--continue"])

    def test_workers_are_the_launchers(self):
        self.refused(["--workers", "3"],
                     ["--workers 3", "torchrun", "started 2", "leave it out"],
                     env={"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2",
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})

    def test_a_checkpoint_that_does_not_fit_is_told_before_the_start(self):
        flags = ["--network", "mlp", "--num-batches", "3", "--checkpoint",
                 "saved"]
        self.run_to_end([*flags, "--num-epochs", "2"])
        for more, words in ((["--workers", "4"], ["workers '2'", "'4'"]),
                            (["--servers", "2"], ["servers '1'", "'2'"]),
                            (["--num-epochs", "1"],
                             ["2 whole epochs", "--num-epochs 1"])):
            with self.subTest(more[0]):
                self.refused([*flags, "--num-epochs", "2", "--resume", *more]
                             if more[0] != "--num-epochs" else
                             [*flags, "--resume", *more],
                             ["--resume", *words], code=31)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data)

    def test_data_that_cannot_be_are_refused_by_file_and_place(self):
        self.write("empty", b"")
        self.write("short", b"a" * 1000)
        gpt = ["--network", "gpt", "--data"]
        self.refused([*gpt, "text:empty"], ["--data text:empty", "0 bytes"])
        self.refused([*gpt, "text:short"], ["1000 bytes", "129"])
        self.refused([*gpt, "text:."], ["--data text:."])
        record = bytes(3073)
        for part in (1, 2, 3, 4, 5):
            self.write(f"c/data_batch_{part}.bin", 40 * record)
        self.write("c/test_batch.bin", record + record[:-1])
        cifar = ["--network", "resnet20", "--data", "cifar10:c"]
        self.refused(cifar, ["c/test_batch.bin: byte 6145", "record 1"])
        self.write("c/test_batch.bin", record + b"\x0a" + record[1:])
        self.refused(cifar, ["c/test_batch.bin: byte 3073", "label 10"])

    def test_an_image_that_is_none_is_named(self):
        for part in ("train", "val"):
            for name in ("a", "b"):
                for i in range(40):
                    self.write(f"images/{part}/{name}/{i:02}.png", png())
        flags = ["--network", "mlp", "--data", "imagefolder:images",
                 "--image-shape", "1,8,8", "--batch-size", "8", "--num-epochs",
                 "1"]
        self.run_to_end(flags)
        # Without --image-shape, lenet's own.
        text = self.run_to_end(["--network", "lenet", "--data",
                                "imagefolder:images", "--batch-size", "8",
                                "--explain"]).stdout()
        self.assertRegex(text, r"fc1.weight +400000 ")
        self.write("images/train/b/39.png", b"GIF89a")
        run = self.run_to_end(flags, code=2)
        self.assertIn("images/train/b/39.png: byte 0", run.stderr())
        # The first one tells before anything is started.
        self.write("images/val/a/00.png", b"GIF89a")
        self.refused(flags, ["--data imagefolder:images",
                             "images/val/a/00.png: byte 0"])

    def test_what_computes_networks_is_opened_for_networks_alone(self):
        alone = shutil.copy(BINARY, self.folder)  # without its library
        self.run_to_end(["--help"], program=alone)
        self.write("small.csv", b"name,shape,elements\na.w,64,64\n")
        self.run_to_end(["--benchmark", "1", "--network", "profile:small.csv",
                         "--num-batches", "3"], program=alone)
        for flags in SHORT, [*SHORT, "--explain"]:
            run = self.run_to_end(flags, code=2, program=alone)
            self.assertIn("libtelegrad-networks.so", run.stderr())

    def test_emulated_workers_are_not_for_a_launcher(self):
        self.refused(["--emulate-workers", "2"],
                     ["--emulate-workers", "torchrun", "leave it out"],
                     env={"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2",
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})

    def test_the_environment_names_the_transport_unless_a_flag_does(self):
        smoke = {"TELEGRAD_TRANSPORT": "smoke"}
        run = self.run_to_end(["--num-epochs", "1"], code=2, seconds=20,
                              env=smoke)
        self.assertIn("smoke", run.stderr())
        self.run_to_end(["--transport", "inproc"], code=2, seconds=20,
                        env=smoke)
        self.assertNotIn("smoke", self.runs[-1].stderr())

    def test_variables_of_other_programs_are_named(self):
        for transport, name, value in (("ofi", "FI_PROVIDER", "no_such"),
                                       ("ucx", "UCX_TLS", "rc")):
            run = self.run_to_end(
                ["--num-epochs", "1", "--transport", transport], code=2,
                env={name: value})
            self.assertIn(f"{name}={value}", run.stderr())

    def test_too_few_open_files_are_told_with_their_limit(self):
        for flags, limit in ((["--transport", "tcp"], 16),
                             (["--transport", "ucx"], 40)):
            run = self.run_to_end(
                [*flags, *self.gradients(), "--workers", "8", "--servers", "2"],
                code=32, prefix=["prlimit", f"--nofile={limit}"])
            self.assertIn("ulimit -n", run.stderr())
            self.assertIn(f"open files is {limit}", run.stderr())
        # Of any number that is too small: UCX's assertion was a dead peer.
        for limit in (8, 10, 11, 12, 13, 14):
            run = self.start([*self.gradients(), "--transport", "tcp"],
                             prefix=["prlimit", f"--nofile={limit}"])
            if self.wait(run, 120) != 0:
                self.assertEqual(run.process.returncode, 32, run.output())
                self.assertIn(f"open files is {limit}", run.stderr())

    def test_results_that_cannot_be_written_are_an_error(self):
        run = self.start(["--out", "results", *SHORT])
        self.wait_for_training(run)
        shutil.rmtree(self.path("results"))
        with open(self.path("results"), "w", encoding="utf-8"):
            pass
        self.assertEqual(self.wait(run, 120), 2, run.output())
        self.assertIn("results", run.stderr())
        self.assertIn("accuracy", run.stdout())

    def test_help_names_every_flag_network_codec_and_transport(self):
        text = self.run_to_end(["--help"], seconds=20).stdout()
        for word in ("--compare --gc-type --gc-threshold --gc-min-bytes "
                     "--gc-packing --gc-rule --gc-warmup-steps --gc-guard --gc-allow "
                     "--gc-reply --gc-nonfinite --update-on --kv-store "
                     "--network --data --batch-size --num-epochs --lr --mom "
                     "--wd --seed --benchmark --num-batches --gpus --out --jobs --continue "
                     "--workers --servers --workers-serve --threads --chunk-elems "
                     "--job-id --join-timeout --dead-timeout --transport --tls --link "
                     "--bind --secret-file --insecure lenet mlp vgg16 digits "
                     "mnist:DIR none 2bit topk powersgd dist_sync ucx").split():
            self.assertIn(word, text)
        for unit in ("units of the gradient", "0.5:batch", "power of two"):
            self.assertIn(unit, " ".join(text.split()))
        self.assertNotIn("--internal", text)

    # Else ./telegrad demo would refuse them before it builds.
    def test_demo_knows_every_flag_of_the_help(self):
        text = self.run_to_end(["--help"], seconds=20).stdout()
        flags = re.findall(r"^  (?:-\w,)?(--[\w-]+)", text, re.M)
        self.assertGreater(len(flags), 80)
        script = os.path.join(os.path.dirname(__file__), "../../telegrad")
        done = subprocess.run([script, "demo", *flags, "--bogus"], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no flag '--bogus'", done.stderr)

    def demo(self, *flags):
        script = os.path.join(os.path.dirname(__file__), "../../telegrad")
        done = subprocess.run([script, "demo", *flags], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_demo_refuses_names_before_it_builds(self):
        for flags, told in ((["--gc-type", "3bit"], "no codec '3bit'"),
                            (["--gc-type=3bit"], "no codec '3bit'"),
                            (["--compare", "none,3bit+lr=1"], "no codec '3bit'"),
                            (["--network", "nonet"], "no network 'nonet'"),
                            (["--data", "nodata:x"], "no data set 'nodata'")):
            self.assertIn(told, self.demo(*flags))
        text = self.run_to_end(["--help"], seconds=20).stdout()

        def names(head, tail):
            part = text.split(f"{head}:\n")[1].split(f"{tail}:\n")[0]
            found = re.findall(r"^ *(\S+)", part, re.M)
            self.assertGreater(len(found), 7, head)
            return found
        known = ["--compare", ",".join(["auto", "2bit:0.5+lr=1",
                                        *names("Codecs", "KVStores")])]
        for name in names("Networks", "Data"):
            known += ["--network", name]
        for name in names("Data", "Codecs"):
            known += ["--data", name]
        told = self.demo(*known, "--network", "resnet", "--num-layers", "50",
                         "--network", "gpt:layers=2", "--gc-type", "nocodec")
        self.assertIn("no codec 'nocodec'", told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
