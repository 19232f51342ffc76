#!/usr/bin/env python3
"""What package indexes show is complete, and its links work there: pyproject.toml and
the page that it names.
"""
import pathlib
import re
import sys
import unittest

import check_wheel

try:
    import tomllib
except ImportError:
    print("skipped: tomllib comes with CPython 3.11")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


class Metadata(unittest.TestCase):
    def test_the_licence_is_an_expression_and_a_file(self):
        self.assertEqual(PROJECT["license"], "Apache-2.0")
        for name in PROJECT["license-files"]:
            self.assertTrue((ROOT / name).is_file(), name)
        self.assertFalse([each for each in PROJECT["classifiers"] if each.startswith("License")])

    def test_author_keywords_and_addresses_are_there(self):
        self.assertTrue(PROJECT["authors"][0]["name"])
        self.assertIn("pytorch", PROJECT["keywords"])
        self.assertTrue(PROJECT["urls"])
        for name, address in PROJECT["urls"].items():
            self.assertRegex(address, r"^https://", name)
            self.assertLessEqual(len(name), 32)

    def test_classifiers_name_system_topic_and_tested_versions(self):
        text = "\n".join(PROJECT["classifiers"])
        for version in {each.rstrip("t") for each in check_wheel.WANTED}:
            self.assertIn(f"Programming Language :: Python :: {version}", PROJECT["classifiers"])
        for kind in ("Operating System", "Topic", "Development Status", "Intended Audience"):
            self.assertIn(f"{kind} :: ", text)
        self.assertEqual(PROJECT["requires-python"], f">={check_wheel.WANTED[0]}")

    def test_links_of_the_page_are_absolute(self):
        page = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
        self.assertEqual(check_wheel.relative_links(page), [])
        self.assertFalse(re.search(r"\./telegrad\b", page), "is not in the package")

    def test_a_relative_link_is_found(self):
        page = "[a](docs/a.md) [b](https://b/c) ![c](../c.png) [d](#d) <img src='e.png'>\n[f]: f.md"
        self.assertEqual(check_wheel.relative_links(page),
                         ["docs/a.md", "../c.png", "#d", "e.png", "f.md"])


if __name__ == "__main__":
    unittest.main()
