"""The commands of the documents for who comes from elsewhere do run."""

import os
import re
import shlex
import unittest

from harness import SystemTest

SHORT = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
         "--num-batches", "2"]

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                    "docs")

# What chose the store is told, by flag.
TOLD = {"--variable_update horovod": ["horovod", "--kv-store allreduce"],
        "--kv-store auto": ["auto: allreduce"]}


def commands(page):
    with open(os.path.join(DOCS, page), encoding="utf-8") as file:
        return re.findall(r"^    telegrad-train (.*)$", file.read(), re.M)


class Moving(SystemTest):
    def test_commands_run(self):
        found = commands("moving.md") + commands("concept_servers.md")
        self.assertGreater(len(found), 12)
        for command in found:
            with self.subTest(command):
                said = self.run_to_end([*SHORT, *shlex.split(command)]).stdout()
                (run,) = self.summary()
                self.assertGreater(run["steps"], 0)
                for flag, words in TOLD.items():
                    for word in words if flag in command else ():
                        self.assertIn(word, said)
                        self.assertIn(word, " ".join(run["decisions"]))
        for flag in TOLD:
            self.assertIn(flag, "\n".join(found))

    def test_what_a_name_stands_for_is_told(self):
        run = self.run_to_end([*SHORT, "--compare",
                               "none+kv-store=P3,none+kv-store=byteps"])
        for text in ("type p3 is dist_sync: slices and priorities are",
                     "type byteps is dist_sync: slices"):
            self.assertIn(text, run.output())

    def test_servers_are_not_left_out_where_they_are_asked_for(self):
        run = self.run_to_end([*SHORT, "--kv-store", "auto", "--servers", "1"])
        for told in run.stdout(), " ".join(self.summary()[0]["decisions"]):
            self.assertIn("auto: ", told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
