#!/usr/bin/env python3
"""Plants one thing of each kind that is too large: each must be found, and what
is just small enough must pass."""
import os
import tempfile
import unittest

import check_size


def function(lines, head="int Long()"):
    return f"{head} {{\n" + "  Call(1, [] { return 2; });\n" * (lines - 2) + "}\n"


def klass(methods, more=""):
    return ("#pragma once\nnamespace telegrad {\nclass Wide final : public Base<int> {\n"
            " public:\n  Wide();\n  ~Wide() override;\n"
            "  Wide(const Wide&) = delete;\n"
            "  Wide& operator=(const Wide&) = delete;\n" + more +
            "".join(f"  virtual int F{i}(std::function<void(int)> f) const = 0;\n"
                    for i in range(methods - 1)) +
            "  bool has_any() const { return any_(1); }\n"
            "  std::function<bool(int)> any_;\n"
            "  int guarded_ GUARDED_BY(mutex_) = Start(1);\n"
            "  struct Inner {\n    int G();\n  };\n};\n}  // namespace telegrad\n")


def found(files, larger=None):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return [(path, rule, text) for path, _, rule, text
                in check_size.violations(root, larger or {})]


class CheckSize(unittest.TestCase):

    def test_what_is_just_small_enough_passes(self):
        self.assertEqual(found({
            "base/a.cc": "namespace {\n" + function(60) + "}\n",
            "base/b.h": klass(30),
            "base/plain.cc": "\n" * 400,
            "base/big_thing.cc": "void BigThing::F() {}\n" + "\n" * 599,
        }), [])

    def test_long_functions_are_found(self):
        for head in ("int Long()", "absl::StatusOr<Map<int, Set<int>>> A::Long(int a,\n  int b)",
                     "A::A() : b_(1), c_{2}", "bool operator==(const A& a, const A& b)",
                     "template <typename T>\nrequires std::is_integral_v<T> void Long(T t)",
                     "TEST(Suite, Name)"):
            with self.subTest(head):
                extra = head.count("\n")
                text = "namespace telegrad {\nnamespace {\n" + function(61 - extra, head) + "}\n}\n"
                self.assertEqual([(path, rule) for path, rule, _ in
                                  found({"kernels/a.cc": text})],
                                 [("kernels/a.cc", "function")])

    def test_a_long_function_of_a_class_is_found(self):
        text = "class A {\n public:\n  explicit A(int a) : a_(a) {}\n" + function(61) + "};\n"
        self.assertEqual([rule for _, rule, _ in found({"perf/a.cc": text})],
                         ["function"])

    def test_a_long_table_is_no_function(self):
        text = "const Table kTable[] = {\n" + "    {1, F(2), [] { return 3; }},\n" * 80 + "};\n"
        self.assertEqual(found({"base/a.cc": text}), [])

    def test_wide_classes_are_found(self):
        self.assertEqual(
            found({"transport/a.h": klass(31)}),
            [("transport/a.h", "class", "Wide has 31 methods, at most 30")])

    def test_long_files_are_found(self):
        self.assertEqual([rule for _, rule, _ in found({
            "base/plain.cc": "\n" * 401,
            "base/big_thing.h": "\n" * 401,
            "base/big_thing.cc": "void BigThing::F() {}\n" + "\n" * 600,
            "base/other.cc": "void BigThing::F() {}\n" + "\n" * 400,
        })], ["file"] * 4)

    def test_an_exception_holds_up_to_its_size(self):
        larger = {("transport/a.h", "class", "Wide"): 32}
        self.assertEqual(found({"transport/a.h": klass(32)}, larger), [])
        self.assertEqual(len(found({"transport/a.h": klass(33)}, larger)), 1)

    def test_blank_lines_and_comments_are_not_counted(self):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "base"))
            with open(os.path.join(root, "base", "a.cc"), "w", encoding="utf-8") as file:
                file.write("// one\n\nint a;  // two\n/* three\nfour */\n"
                           "const char* b = \"// five\";\nauto c = R\"(\nsix)\";\n")
            self.assertEqual(check_size.code_lines(root)["base"], 4)


if __name__ == "__main__":
    unittest.main()
