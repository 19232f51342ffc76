"""telegrad-launch as text: hosts, placement, verdicts, variables, printed files, its page."""
import contextlib
import importlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# The folder alone: the rest of telegrad need not be there.
sys.path.insert(0, os.path.join(ROOT, "python", "telegrad"))
launch = importlib.import_module("launch.main")
from launch import (agent_words, exposition, hosts, options, plan, status,  # noqa: E402
                    submit, timelines, verdict)
from launch.errors import Refused  # noqa: E402
from launch.hosts import Host  # noqa: E402
from launch.verdict import Ended  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "launch.md")


def parsed(text):
    return options.parse(shlex.split(text))


class Hosts(unittest.TestCase):
    def test_files_have_slots_in_the_ways_that_people_write(self):
        for text, expected in (
                ("n1\nn2\n", [("n1", 0), ("n2", 0)]),
                ("# all\nn1 slots=4  # big\n\nn2:2\n", [("n1", 4), ("n2", 2)]),
                ("n1 slots=2 max_slots=4\nme@n2\n", [("n1", 2), ("me@n2", 0)]),
                ("n1\nn1\nn2\n", [("n1", 2), ("n2", 0)]),
                ("n1:2\nn1:1\n[fe80::1]\n", [("n1", 3), ("[fe80::1]", 0)]),
                ("n1 4\n", [("n1", 4)])):
            self.assertEqual(hosts.parse_hosts(text, "hosts"), [Host(*each) for each in expected])

    def test_what_is_no_host_is_named_with_its_line(self):
        for line in ("-oProxyCommand=x", "n1 slots=x", "n1;rm", "n1 cpu=3", "$(x)"):
            with self.assertRaisesRegex(Refused, r"hosts, line 2: .* is no host"):
                hosts.parse_hosts(f"n1\n{line}\n", "hosts")
        with self.assertRaisesRegex(Refused, "hosts has no hosts"):
            hosts.parse_hosts("#\n", "hosts")
        self.assertEqual(hosts.read_hosts("n1:4,u@n2,[fd00::1]:2"),
                         [Host("n1", 4), Host("u@n2"), Host("[fd00::1]", 2)])
        with self.assertRaisesRegex(Refused, "'n2=4' is no host"):
            hosts.read_hosts("n1:4,n2=4")
        with self.assertRaisesRegex(Refused, "-H nowhere: No such file.*-H n1:4,n2:4"):
            hosts.read_hosts("nowhere")

    def test_slurms_lists_are_expanded(self):
        for text, expected in (
                ("n1", ["n1"]), ("n[1-3]", ["n1", "n2", "n3"]),
                ("gpu[07-10,12],cpu1", ["gpu07", "gpu08", "gpu09", "gpu10", "gpu12", "cpu1"]),
                ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
                ("a[1]b,c", ["a1b", "c"])):
            self.assertEqual(hosts.expand(text), expected)
        for text in ("n[1-", "n[a-b]", "n[3-1]", "n[1-99999999]", "-x", "a b"):
            with self.assertRaisesRegex(Refused, "list of Slurm's nodes"):
                hosts.expand(text)
        self.assertEqual(hosts.repeated("2(x3),1"), [2, 2, 2, 1])

    def test_allocations_say_where_they_are(self):
        with tempfile.TemporaryDirectory() as folder:
            def file(text):
                path = os.path.join(folder, str(len(os.listdir(folder))))
                with open(path, "w") as out:
                    out.write(text)
                return path
            for environ, system, cluster, expected in (
                    ({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2,1",
                      "SLURM_NTASKS": "3"}, "Slurm", "slurm", [("n1", 2), ("n2", 1)]),
                    ({"SLURM_JOB_NODELIST": "n[1-2]"}, "Slurm", "slurm", [("n1", 0), ("n2", 0)]),
                    ({"PE_HOSTFILE": file("n1 2 main.q@n1 UNDEFINED\nn2 1 main.q@n2 <NULL>\n")},
                     "Grid Engine", "sge", [("n1", 2), ("n2", 1)]),
                    ({"LSB_DJOB_HOSTFILE": file("n1\nn1\nn2\n")}, "LSF", "hostfile",
                     [("n1", 2), ("n2", 0)]),
                    ({"LSB_HOSTS": "n1 n2 n2"}, "LSF", "hostfile", [("n1", 0), ("n2", 2)]),
                    ({"PBS_NODEFILE": file("n1\nn2\n")}, "PBS", "hostfile",
                     [("n1", 0), ("n2", 0)])):
                found = hosts.allocation(environ)
                self.assertEqual((found.system, found.cluster), (system, cluster))
                self.assertEqual(found.hosts, [Host(*each) for each in expected])
        self.assertIsNone(hosts.allocation({"HOME": "/"}))
        with self.assertRaisesRegex(Refused, "/nowhere: No such file"):
            hosts.allocation({"PBS_NODEFILE": "/nowhere"})

    def test_workers_of_a_host_follow_one_another(self):
        free, full = [Host("a"), Host("b"), Host("c")], [Host("a", 2), Host("b", 1), Host("c")]
        for where, workers, per_host, expected in (
                (free, None, None, [0, 1, 2]), (free, 5, None, [0, 0, 1, 1, 2]),
                (free, 2, None, [0, 1]), (full, None, None, [0, 0, 1, 2]),
                (full, 3, None, [0, 0, 1]), (full, 4, 3, [0, 0, 0, 1]),
                (free, None, 2, [0, 0, 1, 1, 2, 2])):
            self.assertEqual(hosts.place(where, workers, per_host), expected)
        with self.assertRaisesRegex(Refused, "-n 5: 3 hosts have room for 4 workers"):
            hosts.place(full, 5, None)


class Verdict(unittest.TestCase):
    def test_who_knows_most_decides(self):
        for codes, expected in (
                ([0, 0], 0), ([], 0), ([0, 7], 7), ([-9, 20, 20], 20), ([-15, 33], 33),
                ([-9, -15], 137), ([20, 31], 20), ([33, 42], 42), ([143, 33], 33),
                ([1, -15], 1), ([-9, 0], 137)):
            ended = [Ended("x", code) for code in codes]
            self.assertEqual(verdict.verdict(ended), expected, codes)

    def test_codes_are_those_of_the_user_guide(self):
        with open(os.path.join(ROOT, "docs", "user_guide.md")) as file:
            rows = dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", file.read(), re.MULTILINE))
        for code, reason in verdict.REASONS.items():
            self.assertEqual(rows[str(code)], reason)

    def test_ends_are_told_in_words(self):
        self.assertEqual(verdict.how(Ended("worker 1@n2", -9)),
                         "worker 1@n2 was killed by 137 (SIGKILL)")
        self.assertEqual(verdict.how(Ended("server 0", 31)), "server 0 ended with 31 (mismatch)")


class Words(unittest.TestCase):
    def processes(self, text, names=("n1", "n2")):
        its = parsed(text)
        its.cluster = "ssh"
        made = plan.Plan(its, [Host(name) for name in names], False, {"UCX_TLS": "tcp", "X": "1"})
        return made.processes(plan.Meeting("n1", 21000, "job"))

    def test_programs_of_telegrad_get_what_lets_them_join(self):
        words = self.processes("-n 2 -- telegrad-train --gc-type int2")[0].words
        self.assertEqual(words, ["telegrad-train", "--gc-type", "int2", "--bind", "auto",
                                 "--secret-file", agent_words.SECRET_FILE])
        words = self.processes("-n 2 -- telegrad-train --bind=ib0 --secret_file s")[0].words
        self.assertEqual(words, ["telegrad-train", "--bind=ib0", "--secret_file", "s"])
        self.assertEqual(self.processes("-n 2 -- python3 t.py --bind")[1].words,
                         ["python3", "t.py", "--bind"])

    def test_roles_and_hosts(self):
        found = self.processes("-n 2 -s 2 --server-program telegrad-server -- telegrad-train")
        self.assertEqual([(each.name, each.host, each.words[0]) for each in found], [
            ("scheduler", 0, "telegrad-server"), ("worker 0", 0, "telegrad-train"),
            ("worker 1", 1, "telegrad-train"), ("server 0", 0, "telegrad-server"),
            ("server 1", 1, "telegrad-server")])
        self.assertEqual({each.variables.get("UCX_TLS") for each in found}, {"tcp"})
        self.assertFalse([each for each in found if "X" in each.variables])
        names = [each.name for each in self.processes("-n 3 -s 1 -- telegrad-server")]
        self.assertEqual(names, ["scheduler", "server 0"])

    def test_ranks_of_telegrad_perf_have_no_roles(self):
        found = self.processes("-n 2 -s 1 -- telegrad-perf pushpull")
        self.assertEqual([each.variables["RANK"] for each in found], ["0", "1", "2"])
        self.assertEqual({each.variables["WORLD_SIZE"] for each in found}, {"3"})
        self.assertFalse([each for each in found if "DMLC_ROLE" in each.variables])
        self.assertIn("--servers", found[0].words)

    def test_variables_are_written_in_three_ways(self):
        self.assertEqual(options.variables(["A=b:c", "D:e=f", "HOME", "G="], {"HOME": "/h"}),
                         {"A": "b:c", "D": "e=f", "HOME": "/h", "G": ""})
        for text in ("1A=b", "A B=c", "=x"):
            with self.assertRaisesRegex(Refused, "NAME=VALUE is wanted"):
                options.variables([text], {})

    def test_the_agent_and_the_launcher_mean_the_same(self):
        with open(os.path.join(ROOT, "python/telegrad/launch/agent.py")) as file:
            self.assertIn(f'SECRET_FILE = "{agent_words.SECRET_FILE}"', file.read())


class Printed(unittest.TestCase):
    COMMANDS = {
        "job.sbatch": "--print slurm -n 8 --restart 3 --workers-per-host 4 --name run1 -- "
                      "telegrad-train --gc-type 'topk:0.01' --out 'a b'",
        "job.qsub": "--print=sge -n 4 -s 2 -- telegrad-train --gc-type int2",
        "job.kubernetes.yaml": "--print kubernetes --image registry/telegrad:0.2 -n 4 -s 1 "
                               "--restart 2 --env A=yes -- telegrad-train --gc-type int2",
        "job.compose.yaml": "--print compose --image registry/telegrad:0.2 -n 2 -s 1 "
                            "--name two --env 'B=1 2' -- telegrad-train --gc-type int2",
    }

    def text(self, command):
        its = parsed(command)
        its.this_command = ["folder", *shlex.split(command)]
        return submit.text(its)

    def test_files_are_as_recorded(self):
        for name, command in self.COMMANDS.items():
            path = os.path.join(HERE, "launch", name)
            if os.environ.get("TELEGRAD_RECORD"):
                with open(path, "w") as file:
                    file.write(self.text(command))
            with open(path) as file:
                self.assertEqual(self.text(command), file.read(), name)

    def test_no_file_has_a_secret(self):
        for command in self.COMMANDS.values():
            text = self.text(command)
            self.assertNotRegex(text, r"[0-9a-fA-F]{32}|[A-Za-z0-9+/]{40}")

    def test_what_a_form_cannot_have_is_refused(self):
        with self.assertRaisesRegex(Refused, "only Telegrad's take the last ranks"):
            self.text("--print kubernetes --image x -n 2 -s 1 -- python3 t.py")
        for command, words in (("--print kubernetes -- true", "--image is wanted"),
                               ("--print compose --image x --name A_ -- true", "--name 'A_'"),
                               ("--print pbs -- true", "invalid choice"),
                               ("--elastic 4:x -- true", "'4:x' is no MIN"),
                               ("--elastic 2 -- telegrad-train", "has its own"),
                               ("--no-such-flag", "no flag '--no-such-flag' ("),
                               ("--clustr ssh -- true", "did you mean --cluster?"),
                               ("--num-worker=2 -- true", "did you mean --num-workers?")):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
                parsed(command)
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(words, said.getvalue())


class Page(unittest.TestCase):
    def setUp(self):
        with open(PAGE) as file:
            self.page = file.read()

    def test_its_commands_are_understood(self):
        lines = re.findall(r"^    (telegrad-launch .*)$", self.page, re.MULTILINE)
        self.assertGreater(len(lines), 8)
        for line in lines:
            parsed(line.partition(" ")[2].partition(" > ")[0])

    def test_its_table_has_all_flags(self):
        table = self.page.partition("## Flags")[2].partition("## What")[0]
        told = set(re.findall(r"`(--?[A-Za-z-]+)", table))
        there = {flag for action in options.parser()._actions for flag in action.option_strings
                 if flag not in ("-h", "--help", "--version")}
        self.assertEqual(told, there)


class Status(unittest.TestCase):
    PAGE = """# TYPE telegrad_steps_total counter
telegrad_steps_total{node="n1",role="worker",rank="0"} 100
telegrad_memory_bytes{node="n1",kind="now"} 3e+08
telegrad_push_wire_bytes_total{node="n1",role="worker",rank="0",codec="2bit"} 1e+06
telegrad_push_raw_bytes_total{node="n1",role="worker",rank="0",codec="2bit"} 1.5e+07
telegrad_waited_for_seconds_total{node="n1",role="server",rank="0",worker="0"} 9
telegrad_waited_for_seconds_total{node="n1",role="server",rank="0",worker="1"} 1
no line of the format
"""

    def seen(self, at, text):
        return status.members_of([exposition.samples_of(text)], at)

    def test_rates_are_of_the_time_between(self):
        rows = status.rows_of(self.seen(3.0, self.PAGE.replace("} 100", "} 150")
                                        .replace("} 1e+06", "} 3e+06")),
                              self.seen(1.0, self.PAGE))
        self.assertEqual(rows[0], ["n1", "worker/0", "150", "25", "1 MB/s", "-", "5.0", "-",
                                   "300 MB", ""])
        self.assertEqual([row[1] for row in rows], ["worker/0", "server/0"])

    def test_who_is_slow_is_named(self):
        later = self.seen(2.0, self.PAGE.replace('"0"} 9', '"0"} 19'))
        self.assertEqual(status.slow_ones(later, self.seen(1.0, self.PAGE)),
                         {"worker/0": "last in 100 % of waits"})
        warned = self.seen(3.0, self.PAGE + 'telegrad_stragglers_total{node="n1",role="worker",'
                           'rank="0",who="worker/1",cause="compute"} 1\n')
        self.assertEqual(status.slow_ones(warned, self.seen(2.0, self.PAGE))["worker/1"],
                         "slow: compute")

    def test_files_and_places(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "a.prom"), "w", encoding="ascii") as file:
                file.write(self.PAGE)
            text = io.StringIO()
            self.assertEqual(status.show([folder], text), 0)
            self.assertIn("worker/0", text.getvalue())
        for wrong in ("n1:http", "n1:0", ":70000"):
            with self.assertRaisesRegex(Refused, "HOST:PORT"):
                status.Places([wrong])
        with self.assertRaisesRegex(Refused, "--metrics-port"):
            status.show(["/none/such"])


class Timelines(unittest.TestCase):
    """Two workers and a server; one step of 1 ms, after which each has the sum."""

    @staticmethod
    def trace(name, pid, stage, times, ahead):
        row = {"ph": "M", "name": "thread_name", "pid": pid, "tid": 3,
               "args": {"name": "w, chunk 0"}}
        return name, [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}, row,
                      *({"ph": "X", "name": stage, "pid": pid, "tid": 3, "ts": begin + ahead,
                         "dur": end - begin} for begin, end in times)]

    def folder_of(self, server_ahead, worker_ahead):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, events in (
                # A step before it, of which the server has noted nothing.
                self.trace("worker0", 0, "network and server", [(0, 300), (1000, 1400)], 0),
                self.trace("worker1", 1, "network and server", [(1100, 1500)], worker_ahead),
                self.trace("server0", 100000, "sum", [(1200, 1300)], server_ahead)):
            with open(os.path.join(folder.name, f"2bit-seed0-{name}.json"), "w",
                      encoding="utf-8") as file:
                json.dump(events, file)
        return folder.name

    def merged(self, folder):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(timelines.merge_folder(folder), 0)
        with open(os.path.join(folder, "2bit-seed0-all.json"), encoding="utf-8") as file:
            events = json.load(file)
        return said.getvalue(), {each["pid"]: each["ts"] for each in events if each["ph"] == "X"}

    def test_clocks_that_may_be_alike_stay(self):
        said, starts = self.merged(self.folder_of(0, 50))
        self.assertIn("worker0, worker1, server0; clocks set back: none", said)
        self.assertEqual(starts, {0: 1000, 1: 1150, 100000: 1200})

    def test_clocks_that_differ_are_set_alike(self):
        said, starts = self.merged(self.folder_of(5e6, -7e6))
        self.assertIn("server0 by 5000.", said)
        for pid, start in ((0, 1000), (1, 1100), (100000, 1200)):
            self.assertLessEqual(abs(starts[pid] - start), 400)

    def test_what_is_there_of_a_job_that_ended_early_is_merged(self):
        folder = self.folder_of(0, 0)
        os.remove(os.path.join(folder, "2bit-seed0-worker0.json"))
        said, starts = self.merged(folder)
        self.assertEqual(starts, {1: 1100, 100000: 1200}, said)
        for text in ("[", "{}", "[1]", '[{"name": "thread_name"}]'):
            with open(os.path.join(folder, "a-worker0.json"), "w", encoding="utf-8") as file:
                file.write(text)
            with self.assertRaisesRegex(Refused, "a-worker0.json is no trace"), \
                    contextlib.redirect_stdout(io.StringIO()):
                timelines.merge_folder(folder)
    @staticmethod
    def ring(name, pid, most, spans):
        """As kvstore/trace_ring.h has it: (what, key, chunk, begin, end), times in ns."""
        head = json.dumps({"pid": pid, "process": name, "zero_us": 1e6,
                           "names": ["w"]}).encode() + b"  "
        ring = bytearray(48 * most)
        for number, span in enumerate(spans):
            timelines._SPAN.pack_into(ring, 48 * (number % most), *span)
        return timelines._HEAD.pack(b"telegrad trace 1", 40 + len(head), most,
                                    len(spans)) + head + ring

    def test_the_last_steps_of_who_was_killed_are_merged(self):
        folder = self.folder_of(0, 0)
        spans = [(b"network and server", 0, 0, 1000 * step, 1000 * step + 400)
                 for step in range(7)]
        spans += [(b"wait", 0xffffffff, 0xffffffff, 7000, 7100),
                  (b"", 0, 0, 0, 0), (b"encode", 0, 1, 50, 40)]  # half written
        for name in ("worker0", "worker1"):
            path = os.path.join(folder, f"2bit-seed0-{name}")
            os.remove(os.path.join(folder, f"2bit-seed0-{name}.json"))
            with open(f"{path}.last", "wb") as file:
                file.write(self.ring(name, int(name[-1]), 8, spans))
        said, _ = self.merged(folder)
        self.assertIn("the last steps of worker0, worker1, which had no good end", said)
        with open(os.path.join(folder, "2bit-seed0-all.json"), encoding="utf-8") as file:
            events = json.load(file)
        mine = [each for each in events if each["pid"] == 1]
        self.assertEqual([(each["name"], each["ts"], each["dur"]) for each in mine
                          if each["ph"] == "X"],
                         [("network and server", 1e6 + step, 0.4) for step in range(2, 7)]
                         + [("wait", 1e6 + 7, 0.1)])
        self.assertEqual([each["args"]["name"] for each in mine if each["ph"] == "M"],
                         ["worker1", "w, chunk 0", "step"])

    def test_a_ring_that_is_none_is_refused(self):
        whole = self.ring("worker0", 0, 2, [(b"send", 0, 0, 1, 2)])
        for data in (b"", whole[:20], whole[:-1], b"x" + whole[1:],
                     whole[:16] + b"\xff" * 8 + whole[24:], whole.replace(b"{", b"[", 1),
                     whole.replace(b"zero_us", b"zero-us")):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "a-server0.last"), "wb") as file:
                    file.write(data)
                with self.assertRaisesRegex(Refused, "a-server0.last is no trace"):
                    timelines.merge_folder(folder)

    def test_chunks_of_a_cut_job_are_aligned_one_by_one(self):
        """Of one chunk the server has summed a step more, of another one less."""
        def trace(stage, rows, ahead, is_ring=True):
            return timelines.Trace([{"pid": 0}], {
                (row, stage): [(begin + ahead, begin + ahead + length) for begin in starts]
                for row, (starts, length) in rows.items()}, is_ring)
        steps = [10_000.0 * step for step in range(5)]
        worker = trace("network and server", {"a": (steps[:3], 500), "b": (steps[:4], 500)}, 0)
        for ahead in (0.0, 3000.0):
            server = trace("sum", {"a": ([each + 200 for each in steps[:4]], 50),
                                   "b": ([each + 200 for each in steps[:3]], 50)}, ahead)
            found = timelines.offsets_of({"worker0": worker, "server0": server})["server0"]
            self.assertLessEqual(abs(found - ahead), 250)

    def test_a_folder_without_traces_is_refused(self):
        folder = self.folder_of(0, 0)
        with self.assertRaisesRegex(Refused, "no traces"):
            timelines.merge_folder(os.path.join(folder, "none"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
