#!/usr/bin/env python3
"""Plants files that name a transport: each must be found."""
import os
import tempfile
import unittest

import check_transports


def found(files, judge=check_transports.violations):
    with tempfile.TemporaryDirectory() as root:
        files = {"transport/pipe/pipe_transport.h": "", **files}
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return judge(root, known=("kvstore/old.cc",))


class CheckTransports(unittest.TestCase):

    def test_a_name_elsewhere_is_found(self):
        for path in ("kvstore/a.cc", "trainer/b/c.h", "kvstore/job/d.cc"):
            self.assertEqual(found({path: 'if (name == "pipe") {}'}),
                             [(path, "pipe")])

    def test_its_own_folder_and_the_tables_may(self):
        self.assertEqual(found({"transport/pipe/a.cc": '"pipe"',
                                "transport/registry.cc": '"pipe"',
                                "kvstore/old.cc": '"pipe"'}), [])

    def test_an_exception_that_is_not_needed_is_found(self):
        for files in ({}, {"kvstore/old.cc": '// "pipe"'}):
            self.assertEqual(found(files, check_transports.idle),
                             ["kvstore/old.cc"])
        self.assertEqual(found({"kvstore/old.cc": 'a == "pipe"'},
                               check_transports.idle), [])

    def test_comments_and_other_words_are_none(self):
        self.assertEqual(found({"kvstore/a.cc": '// "pipe"\n/* "pipe" */ "piper"',
                                "transport/choose/a.cc": 'b("no pipe");'}), [])


if __name__ == "__main__":
    unittest.main()
