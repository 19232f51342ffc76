"""What the laboratory says before, beside and after runs: docs/laboratory.md."""

import collections
import json
import os
import re
import unittest

from harness import SHORT, SystemTest

RESULTS = ["metrics.jsonl", "report.html", "summary.json"]


class Laboratory(SystemTest):
    def report(self):
        with open(self.path("telegrad-out", "report.html")) as file:
            return file.read()

    def assert_explained(self, text, run):
        part = text.split(f"\n{run['setting']}\n")[1].split("\n\n")[0]
        for tensor in run["tensors"]:
            line, = [line for line in part.splitlines()
                     if line.split()[:1] == [tensor["tensor"]]]
            cells = line.split()
            self.assertEqual(cells[1:4],
                             [str(tensor["elements"]),
                              str(tensor["push_bytes"]),
                              str(tensor["pull_bytes"])])
            self.assertEqual(cells[5], tensor["codec"])

    def test_explain_knows_emulated_workers(self):
        flags = ["--network", "linear", "--num-batches", "2", "--num-epochs",
                 "1", "--emulate-workers", "8", "--servers", "2", "--gc-type",
                 "2bit", "--gc-min-bytes", "0"]
        text = self.run_to_end([*flags, "--explain"]).stdout()
        self.assertIn("8 workers, 2 servers in one process", text)
        self.assertRegex(text, r"(?m)^  bytes of a step: .* .ratio 1")
        self.assertRegex(text, r"(?m)^  memory: .* in one process")
        self.assertRegex(text, r"(?m)^  step: [\d.]+ [mu]?s of computing expected")
        self.run_to_end(flags)
        run, = self.summary()
        self.assertTrue(run["tensors"])
        self.assert_explained(text, run)

    def test_explain_says_what_a_run_then_does(self):
        flags = [*SHORT, "--compare", "none,2bit,topk:0.01", "--gc-min-bytes",
                 "4KiB", "--gc-rule", "fc3=int8", "--link", "1gbit"]
        text = self.run_to_end([*flags, "--explain"]).stdout()
        self.assertFalse(os.path.exists(self.path("telegrad-out")))
        self.assertEqual(len(re.findall(r"^  step: [\d.]+ [mu]?s expected",
                                        text, re.M)), 3, text)
        self.assertIn(" reply ", text)
        self.assertNotIn("answer", text)
        # A flag that nobody gave is no reason.
        self.assertNotIn("--chunk-elems", text)
        self.assertNotIn("--gc-type", text)
        self.assertRegex(text, r"fc3.weight .* int8 .* rule fc3=int8")
        self.assertRegex(text, r"fc1.bias .* none .* below 4096 bytes")
        self.run_to_end(flags)
        for run in self.summary():
            self.assert_explained(text, run)
            # Sizes that do not vary are what was sent; before the first step
            # frames without a payload agree on scales.
            if run["setting"] == "topk:0.01":
                continue
            scaled = [one for one in run["tensors"] if one["codec"] == "2bit"]
            for way in ("push", "pull"):
                told = run["steps"] * sum(one[f"{way}_bytes"]
                                          for one in run["tensors"])
                more = run[f"{way}_wire_bytes"] - run["workers"] * told
                self.assertIn(more, (0, 64 * run["workers"] * len(scaled)),
                              (run["setting"], way))

    def test_explain_knows_profiles_and_stores_of_all_kinds(self):
        for flags in (["--benchmark", "1", "--network", "profile:resnet50",
                       "--gc-type", "sparseloco"],
                      [*SHORT, "--compare", "2bit+kv-store=allreduce,"
                       "2bit+local-steps=4,int8+update-on=server"],
                      [*SHORT, "--kv-store", "local", "--devices", "2"]):
            with self.subTest(flags):
                text = self.run_to_end([*flags, "--explain"]).stdout()
                self.assertIn("Nothing is started.", text)

    def test_explain_knows_the_parts_that_a_launcher_gives(self):
        env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "3",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        text = self.run_to_end([*SHORT, "--servers", "1", "--explain"],
                               env=env).stdout()
        self.assertIn("2 workers, 1 server,", text)
        run = self.run_to_end([*SHORT, "--servers", "3", "--explain"], code=2,
                              env=env)
        self.assertIn("--servers 3 of 3 ranks leaves no worker", run.stderr())

    def assert_server_stages(self, folder, files):
        """Each round of three has them for each chunk, within the workers' steps."""
        events = {}
        for name in files:
            with open(os.path.join(folder, name)) as file:
                events[name] = json.load(file)
        server = events.pop(files[0])
        self.assertEqual({event["pid"] for event in server}, {100000})
        self.assertIn("server0", [event["args"]["name"] for event in server
                                  if event["name"] == "process_name"])
        spans = [event for event in server if event["ph"] == "X"]
        counts = collections.Counter((event["tid"], event["name"]) for event in spans)
        rows = {tid for tid, _ in counts}
        self.assertEqual(len(rows), 6)  # of mlp's tensors, a chunk each
        for row in rows:
            self.assertEqual(
                {stage: counts[row, stage] for stage in
                 ("receive", "check", "sum", "send")},
                {"receive": 6, "check": 3, "sum": 3, "send": 6})
        others = [event for each in events.values() for event in each
                  if event["ph"] == "X"]
        first = min(event["ts"] for event in others)
        last = max(event["ts"] + event["dur"] for event in others)
        for span in spans:  # on one clock, to a millisecond
            self.assertTrue(first - 1e3 <= span["ts"] <= last + 1e3, span)

    def test_a_timeline_has_the_stages_of_each_worker(self):
        self.run_to_end([*SHORT, "--gc-type", "2bit", "--timeline", "traces"])
        files = sorted(os.listdir(self.path("traces")))
        workers = [f"2bit-seed0-worker{rank}.json" for rank in (0, 1)]
        self.assertEqual(files, ["2bit-seed0-server0.json", *workers])
        self.assert_server_stages(self.path("traces"), files)
        for rank, name in enumerate(workers):
            with open(self.path("traces", name)) as file:
                events = json.load(file)
            stages = {event["name"] for event in events if event["ph"] == "X"}
            self.assertLessEqual(
                {"forward and backward", "queued", "encode", "send",
                 "network and server", "decode", "apply"}, stages)
            self.assertEqual({event["pid"] for event in events}, {rank})
        run, = self.summary()
        step = run["timeline"][0]
        self.assertEqual((step["row"], step["begin_s"]), ("step", 0))
        for span in run["timeline"]:
            self.assertTrue(0 <= span["begin_s"] <= span["end_s"]
                            <= step["end_s"], span)
        self.assertIn("<h2>One step</h2>", self.report())
        with open(self.path("file"), "w"):
            pass
        run = self.run_to_end([*SHORT, "--timeline", "file"], code=2)
        self.assertIn("--timeline file:", run.stderr())

    def test_what_if_has_an_error_where_the_link_was_run(self):
        run = self.run_to_end([*SHORT, "--compare", "none,2bit", "--link",
                               "1gbit", "--what-if", "100mbit,1gbit,10gbit"])
        rows = [line.split() for line in run.stdout().splitlines()
                if re.match(r"(none|2bit) +(100mbit|1gbit|10gbit) ", line)]
        self.assertEqual([row[:2] for row in rows],
                         [[setting, link] for setting in ("none", "2bit")
                          for link in ("100mbit", "1gbit", "10gbit")])
        for row in rows:
            self.assertGreater(float(row[2]), 0, row)
            if row[1] == "1gbit":
                self.assertGreater(float(row[4]), 0, row)
                self.assertRegex(row[5], r"^[+-]\d+$")
            else:
                self.assertEqual(row[4:], ["-", "-"])
        slow, _, fast = [float(row[2]) for row in rows[:3]]
        self.assertGreater(slow, fast)
        self.assertIn("<h2>What if</h2>", self.report())

    def test_what_if_counts_the_latency_of_the_link(self):
        run = self.run_to_end([*SHORT, "--link", "100mbit,20ms",
                               "--what-if", "1gbit,100mbit"])
        rows = [line.split() for line in run.stdout().splitlines()
                if re.match(r"\S+ +(100mbit|1gbit)", line)]
        self.assertEqual([row[1] for row in rows],
                         ["100mbit", "100mbit,20ms", "1gbit"])
        without, own, _ = [float(row[2]) for row in rows]
        self.assertGreater(own, without + 40 - 1)  # a push and an answer
        self.assertGreater(float(rows[1][4]), 0)
        self.assertEqual(rows[0][4:], ["-", "-"])

    def test_the_report_has_its_sections(self):
        compare = ["--compare", "none,2bit+momentum=off"]
        self.run_to_end([*SHORT, *compare, "--target", "0.05"])
        page = self.report()
        places = [page.find(f"<h2>{section}</h2>") for section in (
            "Verdict", "What explains the numbers", "Accuracy for bytes",
            "To an accuracy", "One step", "Bytes by tensor",
            "Codecs by tensor, over time", "Plan", "Environment")]
        self.assertNotIn(-1, places)
        self.assertEqual(places, sorted(places))
        self.assertNotIn("set by us", page[:places[-1]])
        none, two_bit = self.summary()
        facts = {one["what"] for one in none["environment"]}
        self.assertLessEqual({"libtorch", "system"}, facts)
        self.assertEqual(none["warnings"], [])
        hint, = [one for one in two_bit["warnings"] if one.startswith("hint: ")]
        self.assertIn("leave --gc-momentum off out", hint)
        self.assertIn(hint, page)
        self.assertEqual((none["compressed_share"], none["num_tensors"]),
                         (0, 6))
        self.assertEqual(two_bit["num_compressed"] + two_bit["num_small"], 6)
        self.assertIn(f"{two_bit['num_compressed']} of 6 tensors went", page)
        self.run_to_end([*SHORT, *compare, "--continue"])
        self.assertEqual(self.summary(), [none, two_bit])

    def test_what_the_guard_did_is_in_the_summary_and_the_report(self):
        run = self.run_to_end([*SHORT[:-1], "100", "--gc-type",
                               "threshold:0.0000001", "--seed", "0,1"])
        for one in self.summary():
            said = [line for line in one["decisions"]
                    if line.startswith("guard: ")]
            self.assertTrue(said, run.stdout())
            for line in said:
                self.assertIn(line, run.stdout())
                self.assertIn(line, self.report())

    def test_the_processor_decides_which_kernels_openblas_takes(self):
        def blas(**env):
            self.run_to_end([*SHORT, "--emulate-workers", "1"], env=env)
            return {one["what"]: one["value"]
                    for one in self.summary()[0]["environment"]}.get("BLAS", "")
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            chosen = "avx2" in file.read() and blas()
        if not chosen:
            self.skipTest("another processor, or no OpenBLAS")
        self.assertRegex(chosen, "^OpenBLAS, (Haswell|Zen|SkylakeX)$")
        self.assertEqual(blas(OPENBLAS_CORETYPE="Nehalem"), "OpenBLAS, Nehalem")

    def test_log_json_is_objects_alone(self):
        run = self.run_to_end([*SHORT, "--compare", "none,2bit", "--log-json",
                               "--disp-batches", "2"])
        events = [json.loads(line) for line in run.stdout().splitlines()]
        kinds = [event["event"] for event in events]
        self.assertEqual(kinds[-2:], ["result", "result"])
        self.assertGreaterEqual(kinds.count("progress"), 4)
        last = [event for event in events if event["event"] == "progress"][-1]
        self.assertGreater(last["samples_per_s"], 0)
        self.assertEqual([event["setting"] for event in events[-2:]],
                         [one["setting"] for one in self.summary()])
        self.assertEqual(sorted(os.listdir(self.path("telegrad-out"))), RESULTS)


if __name__ == "__main__":
    unittest.main()
