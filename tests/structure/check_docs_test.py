#!/usr/bin/env python3
"""Plants unknown flags and foreign paths: each must be found."""
import os
import tempfile
import unittest

import check_docs

HELP = "  --gc-type TYPE  codec\n  --lr RATE\n"


def unknown(text):
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, "docs"))
        path = os.path.join(root, "docs", "guide.md")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return check_docs.unknown_flags(root, HELP)


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


if __name__ == "__main__":
    unittest.main()
