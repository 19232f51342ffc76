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


def commands(page):
    with open(os.path.join(DOCS, page), encoding="utf-8") as file:
        return re.findall(r"^    telegrad-train (.*)$", file.read(), re.M)


class Moving(SystemTest):
    def test_commands_run(self):
        found = commands("moving.md") + commands("concept_servers.md")
        self.assertGreater(len(found), 12)
        for command in found:
            with self.subTest(command):
                self.run_to_end([*SHORT, *shlex.split(command)])
                (run,) = self.summary()
                self.assertGreater(run["steps"], 0)

    def test_what_a_name_stands_for_is_told(self):
        for flags, text in (
                (["--kv-store", "P3"], "type p3 is dist_sync: slices and priorities are"),
                (["--kv-store", "byteps"], "type byteps is dist_sync: slices")):
            self.assertIn(text, self.run_to_end([*SHORT, *flags]).output())

    def test_what_chose_the_store_is_told(self):
        for flags, words in (
                (["--kv-store", "auto"], ["auto: allreduce"]),
                (["--kv-store", "auto", "--servers", "1"], ["auto: "]),
                (["--variable_update", "horovod"],
                 ["horovod", "--kv-store allreduce"])):
            run = self.run_to_end([*SHORT, *flags])
            told = " ".join(self.summary()[0]["decisions"])
            for word in words:
                self.assertIn(word, run.stdout())
                self.assertIn(word, told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
