"""--plan: obeyed, as far as can be seen from outside, or refused by name before
any process starts."""

import json
import os
import subprocess
import unittest

from harness import BINARY, SystemTest

TOPO = os.environ["TELEGRAD_TOPO"]
PERF = os.environ["TELEGRAD_PERF"]
# Two tensors: of three quarters of a million elements, and a bias.
PROFILE = "name,shape,elements\nfc.weight,1024x768,786432\nfc.bias,1024,1024\n"
LARGE = PROFILE + "fc2.weight,6144x1024,6291456\n"
PUSHPULL = ["pushpull", "--profile", "small.csv", "--workers", "1",
            "--servers", "1", "--iterations", "5", "--check", "--json"]
TRAIN = ["--benchmark", "1", "--network", "profile:large.csv", "--num-batches", "2"]


class PlanByFile(SystemTest):
    def setUp(self):
        super().setUp()
        with open(self.path("small.csv"), "w", encoding="utf-8") as file:
            file.write(PROFILE)
        with open(self.path("large.csv"), "w", encoding="utf-8") as file:
            file.write(LARGE)

    def plan(self, *flags, profile="small.csv", name="plan.json", workers=1):
        """Writes a plan of this one machine, or for more."""
        text = subprocess.run(
            [TOPO, "plan", "--json", "--workers", str(workers), "--profile", profile,
             *flags], cwd=self.folder, check=True, text=True,
            stdout=subprocess.PIPE).stdout
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return json.loads(text)

    def perf(self, *args):
        run = self.run_to_end(list(args), program=PERF, seconds=120)
        return [json.loads(line) for line in run.stdout().splitlines()][-1]

    def test_a_chunk_is_that_of_the_frames(self):
        frames = {}
        for elements in (65536, 262144):
            self.plan("--chunk-elements", str(elements))
            row = self.perf(*PUSHPULL, "--plan", "plan.json")
            frames[elements] = row["frames"]
        # A push and its answer for each chunk: 12 or 3, and one of the bias.
        self.assertEqual(frames, {65536: 2 * 13, 262144: 2 * 4})
        default = self.perf(*PUSHPULL)["frames"]
        self.assertEqual(default, 2 * 3)

    def test_a_codec_is_that_of_the_bytes(self):
        self.plan("--gc-type", "2bit", "--chunk-elements", "524288")
        small = self.perf(*PUSHPULL, "--plan", "plan.json")
        self.plan("--gc-type", "none", "--chunk-elements", "524288")
        raw = self.perf(*PUSHPULL, "--plan", "plan.json")
        self.assertEqual(small["gc_type"], "2bit")
        self.assertGreater(raw["wire_bytes"], 8 * small["wire_bytes"])

    def test_a_transport_is_that_which_runs(self):
        for transport in ("tcp", "ucx"):
            self.plan("--transport", transport)
            row = self.perf("latency", "--size", "64", "--iterations", "5",
                            "--json", "--plan", "plan.json")
            self.assertEqual(row["transport"], transport)

    def test_an_aggregation_is_the_algorithm_of_an_allreduce(self):
        args = ["allreduce", "--ranks", "4", "--size", "64K", "--iterations",
                "5", "--check", "--json", "--plan", "plan.json"]
        raw = {}
        for way, algorithm in (("ring", "ring"),
                               ("recursive-doubling", "recursive_doubling"),
                               ("halving-doubling", "halving_doubling"),
                               ("tree", "tree")):
            self.plan("--aggregation", way)
            row = self.perf(*args)
            self.assertEqual(row["algorithm"], algorithm)
            raw[way] = row["wire_bytes"]
        # Of 4 ranks: 2 * 3/4 of the data, or twice the data.
        self.assertGreater(raw["recursive-doubling"], 1.2 * raw["ring"])
        self.assertAlmostEqual(raw["halving-doubling"] / raw["ring"], 1, 1)
        self.plan("--aggregation", "dedicated-servers")
        self.refused(args, ["dedicated-servers", "--aggregation ring"], program=PERF)

    def test_a_run_obeys_a_plan_and_its_report_is_one(self):
        self.plan("--gc-type", "2bit", "--chunk-elements", "131072",
                  "--transport", "tcp", profile="large.csv")
        run = self.run_to_end([*TRAIN, "--plan", "plan.json"])
        first = self.summary()[0]
        self.assertEqual(first["setting"], "2bit")
        self.assertIn("tcp", first["transport"])
        self.assertGreater(first["push_raw_bytes"],
                           8 * first["push_wire_bytes"])
        self.assertIn("chunks by the plan: with 2bit", run.stdout())
        # What the report says of tensors is what the plan made of them.
        self.assertEqual({one["codec"] for one in first["tensors"]}, {"2bit"})
        told = sum(one["push_bytes"] for one in first["tensors"])
        self.assertEqual(first["workers"] * first["steps"] * told,
                         first["push_wire_bytes"])
        # The same again by what the run has written.
        os.rename(self.path("telegrad-out", "summary.json"),
                  self.path("first.json"))
        self.run_to_end([*TRAIN, "--plan", "first.json"])
        again = self.summary()[0]
        for name in ("weights_sha256", "push_wire_bytes", "pull_wire_bytes",
                     "setting"):
            self.assertEqual(again[name], first[name], name)
        # What changes one decision is seen.
        self.plan("--gc-type", "none", "--chunk-elements", "131072",
                  "--transport", "tcp", profile="large.csv")
        self.run_to_end([*TRAIN, "--plan", "plan.json"])
        raw = self.summary()[0]
        self.assertEqual(raw["push_raw_bytes"], first["push_raw_bytes"])
        self.assertGreater(raw["push_wire_bytes"],
                           8 * first["push_wire_bytes"])

    def test_flags_that_say_otherwise_are_refused(self):
        self.plan("--gc-type", "2bit", "--chunk-elements", "131072",
                  "--transport", "tcp", "--connections", "3", profile="large.csv")
        for flags, words in (
                (["--transport", "ucx"], ["transport tcp", "--transport ucx"]),
                (["--tls", "tcp"], ["tls ''", "--tls tcp"]),
                (["--connections", "2"], ["connections 3", "--connections 2"]),
                (["--chunk-elems", "65536"], ["131072", "65536"]),
                (["--gc-type", "fp16"], ["2bit", "--gc-type is fp16"]),
                (["--gc-type", "auto"], ["2bit", "--gc-type is auto"]),
                (["--compare", "none,2bit"], ["codec", "--compare"]),
                (["--gc-rule", "bias=none"], ["codec", "--gc-rule"]),
                (["--kv-store", "local"], ["--plan"])):
            with self.subTest(" ".join(flags)):
                self.refused([*TRAIN, "--plan", "plan.json", *flags],
                             ["plan.json" if flags[0] != "--kv-store"
                              else "local", *words])
        self.refused(["--benchmark", "1", "--network", "profile:alexnet",
                      "--plan", "plan.json"], ["tensors", "profile:alexnet"])
        self.refused([*PUSHPULL, "--plan", "plan.json"],
                     ["3 tensors", "--profile"], program=PERF)
        self.plan("--chunk-elements", "65536")
        self.refused([*PUSHPULL, "--plan", "plan.json", "--chunk", "128K"],
                     ["--chunk", "65536"], program=PERF)

    def test_what_is_no_plan_for_this_machine_is_refused(self):
        self.plan("--aggregation", "co-located-servers", workers=2,
                  profile="large.csv")
        self.refused([*TRAIN, "--plan", "plan.json"],
                     ["2 machines with workers", "--workers 1"])
        self.refused(["latency", "--plan", "plan.json"],
                     ["2 machines with workers", "--workers 1"], program=PERF)
        # Of another host.
        shown = json.loads(subprocess.run(
            [TOPO, "show", "--json"], check=True, text=True,
            stdout=subprocess.PIPE).stdout)
        with open(self.path("other.json"), "w", encoding="utf-8") as file:
            json.dump({**shown, "host": "elsewhere"}, file)
        self.plan("--from", "other.json", profile="large.csv")
        self.refused([*TRAIN, "--plan", "plan.json"],
                     ["has no machine", "it is for elsewhere"])
        self.plan("--aggregation", "ring", profile="large.csv")
        self.refused([*TRAIN, "--plan", "plan.json"],
                     ["aggregation ring", "no store"])

    def test_a_file_that_is_no_plan_is_refused(self):
        plan = self.plan(profile="large.csv")
        files = {"missing.json": (None, "cannot be read"),
                 "text.json": ("not json", "not a JSON object"),
                 "cut.json": (json.dumps(plan)[:500], "not a JSON object"),
                 "new.json": (json.dumps({**plan,
                                          "schema": "telegrad-plan-99"}),
                              "telegrad-plan-99"),
                 "changed.json": (json.dumps({**plan, "connections": 9}),
                                  "it was changed"),
                 "empty.json": ("[]", "no run in it has a plan")}
        for name, (text, word) in files.items():
            if text is not None:
                with open(self.path(name), "w", encoding="utf-8") as file:
                    file.write(text)
            for program, args in ((BINARY, TRAIN), (PERF, ["latency"])):
                with self.subTest(name):
                    self.refused([*args, "--plan", name],
                                 [f"--plan {name}", word], program=program)


class ChunkAuto(SystemTest):
    def setUp(self):
        super().setUp()
        with open(self.path("large.csv"), "w", encoding="utf-8") as file:
            file.write(LARGE)

    def test_is_the_planners(self):
        plan = json.loads(subprocess.run(
            [TOPO, "plan", "--json", "--workers", "1", "--profile", "large.csv",
             "--gc-type", "none"], check=True, text=True, cwd=self.folder,
            stdout=subprocess.PIPE).stdout)
        chunks = sum(-(-4 * each["elements"] // each["chunk_bytes"])
                     for each in plan["tensors"])
        args = ["pushpull", "--profile", "large.csv", "--workers", "1",
                "--servers", "1", "--iterations", "1", "--warmup", "1",
                "--json"]
        run = self.run_to_end([*args, "--chunk", "auto"], program=PERF)
        self.assertEqual(json.loads(run.stdout())["frames"], 2 * chunks)
        self.assertIn("telegrad-perf: chunk ", run.stderr())
        run = self.run_to_end(args, program=PERF)
        self.assertNotEqual(json.loads(run.stdout())["frames"], 2 * chunks)

    def test_says_what_it_gives_up_where_it_does(self):
        args = ["--benchmark", "1", "--network", "profile:large.csv",
                "--num-batches", "1", "--chunk", "auto"]
        run = self.run_to_end([*args, "--compare", "2bit,fp16"])
        self.assertIn("with 2bit the weights' bits may depend", run.stdout())
        self.assertEqual([any("bits may depend" in each
                              for each in one["decisions"])
                          for one in self.summary()], [True, False])
        self.run_to_end(["--chunk", "auto", "--kv-store", "local"], code=2)
        self.assertIn("sends nothing", self.runs[-1].stderr())
        self.run_to_end(["--chunk", "some"], code=2)
        self.assertIn("--chunk-elems some", self.runs[-1].stderr())


if __name__ == "__main__":
    unittest.main(verbosity=2)
