#!/usr/bin/env python3
"""That translate.py rewrites what it knows and refuses all else."""
import unittest

from translate import NotUnderstood, translated


class TranslateTest(unittest.TestCase):
    def test_launches(self):
        self.assertEqual(translated("k<<<1, 2>>>(x);"),
                         "k | ::telegrad::simt::Grid(1, 2).With(x);")

    def test_launches_of_templates_over_several_lines(self):
        text = ("Add<true, A<B<int>>>\n    <<<f(n, (m + 1) / 2), kThreads, 0,\n"
                "       s>>>(\n        x,\n        y);\nnext();\n")
        made = translated(text)
        self.assertEqual(
            "".join(made.split()),
            "Add<true,A<B<int>>>|::telegrad::simt::Grid(f(n,(m+1)/2),kThreads,"
            "0,s).With(x,y);next();")
        self.assertEqual(made.count("\n"), text.count("\n"))

    def test_shared_variables(self):
        made = translated("__shared__ uint32_t words[kA][kB *\n kC];\nx;")
        self.assertIn("auto& words = ::telegrad::simt::Shared<uint32_t "
                      "[kA][kB * kC]>(&place_of_words);", made)
        self.assertEqual(made.count("\n"), 2)
        self.assertIn("Shared<float4 >", translated("__shared__ float4 one;"))

    def test_comments_and_strings_stay(self):
        text = '// a <<< b >>>(c) __shared__\nf("<<<"); /* __shared__ int x; */'
        self.assertEqual(translated(text), text)

    def test_refuses_what_it_does_not_understand(self):
        for text in ("k<<<1, 2;", "k<<<1, (2>>>(x);", "k<<<1, 2>>>;",
                     "<<<1, 2>>>(x);", "extern __shared__ int x[];",
                     "__shared__ int x, y = 1;", "__shared__ Word (&x)[2];"):
            with self.subTest(text), self.assertRaises(NotUnderstood):
                translated(text)


if __name__ == "__main__":
    unittest.main()
