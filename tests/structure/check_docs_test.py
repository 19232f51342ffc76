#!/usr/bin/env python3
"""Plants unknown flags and foreign paths: each must be found."""
import os
import tempfile
import unittest
from unittest import mock

import check_docs

HELP = "  --gc-type TYPE  codec\n  --lr RATE\n"


def unknown(text):
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, "docs"))
        path = os.path.join(root, "docs", "guide.md")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return check_docs.unknown_flags(root, HELP)


def write(root, files):
    for path, text in files.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


class CheckDocs(unittest.TestCase):

    def test_known_flags_pass(self):
        self.assertEqual(unknown("telegrad-train --gc-type 2bit \\\n  --lr=1\n"), [])

    def test_an_unknown_flag_is_found_where_it_stands(self):
        for text, line in (("telegrad-train --gc-typ 2bit", 1),
                           ("./telegrad demo --gc-typ 2bit", 1),
                           ("mpirun --foreign telegrad-train --gc-typ x", 1),
                           ("\ntelegrad-train --lr 1 \\\n  --gc-typ x", 3),
                           ("Use `--gc-typ x` here", 1),
                           ("| `--lr`, `--gc-typ` | a table |", 1)):
            with self.subTest(text):
                self.assertEqual(
                    unknown(text),
                    [f"docs/guide.md:{line}: --gc-typ is not in --help"])

    def test_a_wrong_default_is_found(self):
        shown = "  -v,--rate,--lr FLOAT:FLOAT in [0 - 1]=0.05  rate\n  --mom FLOAT=0.9\n  --out TEXT\n"
        with tempfile.TemporaryDirectory() as root:
            write(root, {"docs/guide.md": "| flag | default | meaning |\n|---|---|---|\n"
                         "| `--lr`, `--mom` | 5e-2, 0.8 | rates |\n| `--out` | `here` | |\n\n"
                         "| `--mom` | 7 | of another table |\n"})
            self.assertEqual(check_docs.wrong_defaults(root, shown),
                             ["docs/guide.md:3: the default of --mom is 0.9, not '0.8'"])

    def test_flags_of_other_programs_are_left_alone(self):
        self.assertEqual(unknown("cmake --preset dev\ngit log --all\n"), [])

    def test_a_foreign_path_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            for name in ("a.md", "b.cc"):
                for text in ("see /wo" + "rk/x", "../sha" + "red/data"):
                    path = os.path.join(root, name)
                    with open(path, "w", encoding="utf-8") as file:
                        file.write("\n" + text)
                    self.assertEqual(
                        check_docs.places(root),
                        [f"{name}:2: speaks of the place it was made in"])
                    os.remove(path)

    def test_long_lines_are_found(self):
        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "a.md")
            with open(path, "w", encoding="utf-8") as file:
                file.write("é" * 100 + "\n" + "| b " * 26 + "\nsee https://" +
                           "c" * 100 + "\n" + "d" * 101 + "\n")
            self.assertEqual(
                check_docs.long_lines(root),
                ["a.md:2: more than 100 columns", "a.md:4: more than 100 columns"])

    def test_a_result_that_no_document_names_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            for path, text in (("docs/results.md", "see `a.jsonl`"),
                               ("perf/results/a.jsonl", ""),
                               ("perf/results/b.jsonl", "")):
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            self.assertEqual(
                check_docs.uncited_results(root),
                ["perf/results/b.jsonl: no document names this file"])

    def test_a_broken_link_and_a_page_without_one_are_found(self):
        with tempfile.TemporaryDirectory() as root:
            write(root, {"docs/README.md": "[a](a.md#x) [w](https://w.w/x)\n[no](no.md)",
                         "docs/a.md": "[up](../b.cc) `[code](x)`", "b.cc": "",
                         "docs/lost.md": ""})
            self.assertEqual(
                check_docs.broken_links(root),
                ["docs/README.md:2: no.md does not exist",
                 "docs/lost.md: docs/README.md does not link to it"])

    def test_code_that_is_not_the_programs_is_found(self):
        page, program = next(iter(check_docs.PROGRAM_OF.items()))
        for blocks, complaints in ((["a;\nb;", "c;"], 0), (["a;\nc;"], 2),
                                   (["a;", "B;"], 1), (["c;", "a;"], 1), ([], 1)):
            with (self.subTest(blocks), tempfile.TemporaryDirectory() as root,
                  mock.patch.object(check_docs, "PROGRAM_OF", {page: program})):
                write(root, {program: "  a;\n  b;\nc;\n",
                             page: "".join(f"```cpp\n{b}\n```\n" for b in blocks)})
                self.assertEqual(len(check_docs.foreign_code(root)), complaints)


if __name__ == "__main__":
    unittest.main()
