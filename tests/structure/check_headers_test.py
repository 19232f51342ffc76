#!/usr/bin/env python3
"""Plants headers that bring what they must not: each must be found."""
import os
import tempfile
import unittest

import check_headers

STORE = "kvstore/kvstore.h"


def found(files, most=3):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return list(check_headers.violations(root, ((STORE, most, ("topology",)),)))


def include(*targets):
    return "#pragma once\n" + "".join(f'#include "{each}"\n' for each in targets)


class CheckHeaders(unittest.TestCase):

    def test_a_stranger_is_found_with_its_way(self):
        self.assertEqual(
            found({STORE: include("kvstore/a.h"), "kvstore/a.h": include("topology/plan.h"),
                   "topology/plan.h": ""}),
            [STORE + ": brings a layer's insides: "
             "kvstore/kvstore.h > kvstore/a.h > topology/plan.h"])

    def test_too_many_are_found(self):
        files = {f"base/{name}.h": "" for name in "abc"}
        wrong = found({STORE: include(*files), **files})
        self.assertEqual(len(wrong), 1)
        self.assertIn("brings 4 headers, more than 3", wrong[0])

    def test_each_counts_once_and_a_circle_ends(self):
        self.assertEqual(found({STORE: include("base/a.h", "base/b.h", "absl/c.h"),
                                "base/a.h": include("base/b.h"),
                                "base/b.h": include("base/a.h")}), [])

    def test_a_header_that_is_gone_is_found(self):
        self.assertEqual(len(found({"base/a.h": ""})), 1)


if __name__ == "__main__":
    unittest.main()
