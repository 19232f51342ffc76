#!/usr/bin/env python3
"""Plants comments of each kind that needs the line before it: each must be found,
and comments that stand alone must pass."""
import contextlib
import io
import os
import tempfile
import unittest

import check_words


def found(text, path="kvstore/a.h"):
    """What is printed for a file with this text, without its name."""
    return run(text, path)[1]


def run(text, path="kvstore/a.h"):
    """Whether the check fails, and what it prints for the file."""
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, os.path.dirname(path)))
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            failed = check_words.main(root)
    lines = out.getvalue().splitlines()
    prefix = path + ":"
    return failed, [line[len(prefix):] for line in lines if line.startswith(prefix)]


class CheckWords(unittest.TestCase):

    def test_each_beginning_is_found_above_and_behind(self):
        for words in ("Of a step", "of these", "The same of answers.", "as well",
                      "As well: more", "Also of a child", "That it was told",
                      "that have ended", "Likewise of one", "Those in --out.",
                      "whose replies are measured", "and this", "So is its size",
                      "in which it rises", "By whom it is read", "For which it waits"):
            with self.subTest(words):
                self.assertEqual(found(f"// {words}\nint a;\n"), [f"1: words: {words}"])
                self.assertEqual(found(f"int b;\nint a;  // {words}\n"),
                                 [f"2: words: {words}"])

    def test_comments_that_stand_alone_pass(self):
        self.assertEqual(found(
            "// Seconds of a step.\nint a;  // by rank\n"
            "int b;  // Offers that are open\n// Which codec a tensor gets.\n"
            "// Thatched, officially.\n// In order of use: Listen, Send.\n"), [])

    def test_only_the_first_line_of_a_comment_counts(self):
        self.assertEqual(found("// The seconds\n// of a step,\n//\n// of all.\nint a;\n"
                               "int b;  // the seconds\n        // of a step\n"), [])

    def test_a_comment_after_another_one_is_found(self):
        self.assertEqual(found("int a;  // the seconds\n// Of a step.\nint b;\n"
                               "int c;  // bytes\nint d;  // of a frame\n"
                               "// Frames.\n\n// Of a step.\n"),
                         ["2: words: Of a step.", "5: words: of a frame",
                          "8: words: Of a step."])

    def test_literals_are_no_comments(self):
        self.assertEqual(found('auto a = "// of a step";\n'
                               'auto b = R"(\n// of a step\n)";\n'), [])

    def test_tests_are_not_counted(self):
        self.assertEqual(found("// Of a step.\n", "tests/a.cc"), [])

    def test_one_fails_the_check(self):
        self.assertTrue(run("// Of a step.\nint a;\n")[0])
        self.assertFalse(run("// Seconds of a step.\nint a;\n")[0])


if __name__ == "__main__":
    unittest.main()
