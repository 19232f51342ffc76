#!/usr/bin/env python3
"""README's first example, as its reader runs it: the tables of README and of the first
tutorial are those of the program. Accuracy may differ by half a point, since processors
round products differently; bytes by 2 %; times are not compared."""
import pathlib
import re
import unittest

import harness

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACCURACY, BYTES = 0, range(3, 9)  # columns behind the setting


def table_in(text):
    """{setting: numbers of its row} of the first closing table in `text`."""
    head = re.search(r"^ *setting +accuracy %.*\n *-+\n", text, re.M)
    rows = {}
    for line in text[head.end():].splitlines():
        name, *cells = line.split() or [""]
        if not re.match(r"\d", cells[0] if cells else ""):
            break
        rows[name] = [None if cell == "-" else float(cell) for cell in cells]
    return rows


class Readme(harness.SystemTest):
    def test_its_tables_are_those_of_a_run(self):
        run = self.run_to_end(["--compare", "none,int2"], seconds=500)
        shown = table_in(run.stdout())
        self.assertEqual(list(shown), ["none", "int2"])
        for page in ("README.md", "docs/tutorial_first_run.md"):
            stated = table_in((ROOT / page).read_text(encoding="utf-8"))
            self.assertEqual(list(stated), list(shown), page)
            for setting, numbers in stated.items():
                found = shown[setting]
                self.assertEqual(len(found), len(numbers), page)
                self.assertAlmostEqual(found[ACCURACY], numbers[ACCURACY], delta=0.5, msg=page)
                for i in BYTES:
                    self.assertAlmostEqual(found[i], numbers[i], delta=0.02 * found[i],
                                           msg=(page, setting, i))


if __name__ == "__main__":
    unittest.main()
