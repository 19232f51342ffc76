#!/usr/bin/env python3
"""Runs telegrad-topo plan and simulate as a user would."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TOPO = sys.argv.pop(1)


def run(*arguments, **variables):
    return subprocess.run([TOPO, *arguments], capture_output=True, text=True,
                          env={**os.environ, **variables},
                          timeout=60)


# Two RoCE ports and a GPU behind one switch, as telegrad-topo show dumps it.
POSITION = {"switches": ["s0"], "host_bridge": "pci0000:00", "package": 0,
            "numa_node": 0}
MACHINE = {
    "schema": "1", "host": "a",
    "gpus": [{"name": "cuda0", "bus_id": "0000:01:00.0",
              "compute_capability": 90, "position": POSITION}],
    "nics": [{"name": f"mlx5_{i}", "bus_id": f"0000:1{i}:00.0", "is_rdma": True,
              "position": POSITION,
              "ports": [{
                  "transport": "RoCEv2", "link_layer": "Ethernet", "state": 4,
                  "gbps": 100, "gid_index": 3,
                  "gids": [{"index": row, "type": "RoCE v2", "scope": "IPv4",
                            "gid": f"{0:020x}ffffc000020{row}"}
                           for row in (1, 3)]}]} for i in range(2)]}


class Plan(unittest.TestCase):

    def test_json_names_the_decisions(self):
        done = run("plan", "--workers", "4", "--link-gbps", "25", "--json",
                   "--profile", "vgg16")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual(plan["aggregation"], "ring")
        self.assertEqual(plan["codec"], "none")
        self.assertEqual(len(plan["tensors"]), 32)

    def test_a_measured_calibration_turns_compression_on(self):
        template = run("plan", "--print-calibration").stdout
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "speeds.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(template.replace('"assumed"', '"measured"'))
            done = run("plan", "--workers", "2", "--link-gbps", "1", "--profile",
                       "vgg16", "--calibration", path, "--gc-allow",
                       "2bit:reencode,fp16", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["codec"], "2bit:reencode")

    def test_what_auto_may_choose_is_int2_unless_a_flag_allows_more(self):
        def against(*flags):
            done = run("plan", "--workers", "2", "--link-gbps", "1", *flags,
                       "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            return [each["why"] for each in json.loads(done.stdout)["decisions"]
                    if each["what"] == "compression"]
        self.assertEqual(against(), against("--gc-allow", "int2"))
        self.assertTrue(against()[0].endswith(
            "not measured: int2 (telegrad-perf calibrate > FILE, then "
            "--calibration FILE)"))
        self.assertIn("1bit", against("--gc-allow", "all")[0])

    def test_a_calibration_without_int2_needs_no_flag(self):
        known = json.loads(run("plan", "--print-calibration").stdout)
        known["codecs"] = [each for each in known["codecs"]
                           if each["name"] == "fp16"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "speeds.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(known, file)
            flags = ["plan", "--workers", "2", "--link-gbps", "1",
                     "--calibration", path]
            done = run(*flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("not measured: int2", done.stdout)
            asked = run(*flags, "--gc-allow", "int2")
            self.assertEqual(asked.returncode, 2, asked.stdout)
            self.assertIn("'int2'", asked.stderr)

    def test_all_tensors_get_the_chunks_that_are_asked_for(self):
        done = run("plan", "--workers", "2", "--profile", "vgg16", "--json",
                   "--chunk-elements", "524288")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({each["chunk_bytes"]
                          for each in json.loads(done.stdout)["tensors"]},
                         {4 * 524288})
        self.assertEqual(run("plan", "--chunk-elements", "-1").returncode, 2)

    def test_the_environment_names_the_network_unless_a_flag_does(self):
        for variable, flags, network in (
                ("EFA", [], "network EFA: --transport EFA"),
                ("EFA", ["--transport", "IB"], "network IB: --transport IB"),
                ("ucx", [], "network TCP: nothing is known")):
            with self.subTest(variable + " ".join(flags)):
                done = run("plan", "--workers", "2", *flags,
                           TELEGRAD_TRANSPORT=variable)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(network, done.stdout)
        done = run("plan", "--workers", "2", TELEGRAD_TRANSPORT="pigeon")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no network 'pigeon'", done.stderr)

    def test_the_environment_counts_for_machines_as_in_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.json")
            with open(path, "w", encoding="ascii") as file:
                json.dump(MACHINE, file)

            def gpu(*flags, **variables):
                done = run("plan", "--json", "--workers", "2", *flags,
                           **variables)
                self.assertEqual(done.returncode, 0, done.stderr)
                [machine] = json.loads(done.stdout)["machines"]
                return machine["gpus"][0]

            def rails(**variables):
                return [(rail["nic"], rail["gid"], rail["gbps"])
                        for rail in gpu("--from", path, **variables)["rails"]]

            both = [("mlx5_0", 3, 100), ("mlx5_1", 3, 100)]
            self.assertEqual(rails(), both)
            self.assertEqual(rails(TELEGRAD_NICS="=mlx5_1"), both[1:])
            self.assertEqual(rails(TELEGRAD_GID_INDEX="mlx5_1:1"),
                             [both[0], ("mlx5_1", 1, 100)])
            self.assertEqual({rate for _, _, rate in
                              rails(TELEGRAD_LINK_GBPS="25")}, {25})
            self.assertEqual(len(gpu(TELEGRAD_TOPO_FILE=path)["rails"]), 2)
            for wish, memory in (("on", "gdr"), ("off", "staging")):
                self.assertEqual(gpu("--from", path,
                                     TELEGRAD_GDR=wish)["memory"], memory)
        done = run("plan", TELEGRAD_GID_INDEX="x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("TELEGRAD_GID_INDEX", done.stderr)

    def test_wrong_input_exits_2_with_a_sentence(self):
        for arguments, part in (
                (["plan", "--profile", "lenet"], "no gradient profile 'lenet'"),
                (["plan", "--workers", "-1"], "-1 workers"),
                (["plan", "--workers", "2.5"],
                 "--workers: '2.5' is not a whole number"),
                (["plan", "nodes.json"], "'nodes.json' belongs to no flag"),
                (["plan", "--from", "nowhere.json"], "nowhere.json"),
                (["plan", "--calibration", "nowhere.json"], "nowhere.json"),
                (["plan", "--calibration", __file__], __file__),
                (["plan", "--compute-ms", "-1"], "--compute-ms -1: it takes 0 to "),
                (["plan", "--compute-ms", "nan"],
                 "--compute-ms: 'nan' is not a number"),
                (["plan", "--gc-type", "none", "--gc-allow", "fp16"],
                 "--gc-allow has no effect"),
                (["plan", "--workers", "2", "--servers", "1", "--aggregation",
                  "ring"], "--servers 1 has no effect"),
                (["plna", "--workers", "2"],
                 "no command 'plna'; there are show, doctor, plan, simulate;"),
                ([], "give a command: show, doctor, plan, simulate;"),
                (["plan", "--gc-type", "zip"], "no codec 'zip'"),
                (["plan", "--gdr", "maybe"], "--gdr"),
                (["plan", "--workers", "2", "--transport", "x"], "no network"),
                (["simulate", "--workers", "0"], "workers is 0"),
                (["simulate", "--sweep", "colour=red"], "no field 'colour'"),
                (["simulate", "--overlap", "some"], "--overlap"),
                (["simulate", "--transport", "pigeon"], "no network 'pigeon'"),
                (["plan", "--benchmark", "-3"], "--benchmark"),
                (["simulate", "--compute-ms", "-5"], "compute-ms is -5"),
                (["simulate", "--images-per-s", "inf"], "--images-per-s"),
                (["simulate", "--html", "/nowhere/x.html"], "/nowhere/x.html")):
            with self.subTest(arguments):
                done = run(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(part, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_output_that_cannot_be_written_is_no_success(self):
        for arguments in (["plan", "--workers", "2", "--json"],
                          ["plan", "--print-calibration"],
                          ["simulate"], ["doctor"]):
            with self.subTest(arguments), open("/dev/full", "wb") as full:
                done = subprocess.run([TOPO, *arguments], stdout=full,
                                      stderr=subprocess.PIPE, text=True,
                                      timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("standard output cannot be written", done.stderr)


class Simulate(unittest.TestCase):

    def test_one_scenario(self):
        done = run("simulate", "--profile", "resnet50", "--workers", "1",
                   "--images-per-s", "100", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertAlmostEqual(json.loads(done.stdout)[0]["samples_per_s"], 100)

    def test_a_sweep_and_its_page(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.html")
            done = run("simulate", "--sweep", "workers=1:16:x2,codec=none|2bit",
                       "--html", page)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 1 + 5 * 2)
            with open(page, encoding="utf-8") as file:
                self.assertIn("<svg", file.read())

    def test_a_profile_of_ones_own_needs_its_computing_time(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.csv")
            with open(path, "w", encoding="utf-8") as file:
                file.write("name,shape,elements\nw,10x10,100\n")
            self.assertIn("--compute-ms", run("simulate", "--profile",
                                              path).stderr)
            done = run("simulate", "--profile", path, "--compute-ms", "5")
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
