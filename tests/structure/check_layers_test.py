#!/usr/bin/env python3
"""Plants one violation of each rule in a clean tree: each must be found."""
import os
import tempfile
import unittest

import check_layers

CLEAN = {
    "base/a.h": "#pragma once\n// throw, getenv(x) in words only\n",
    "kernels/op.h": '#pragma once\n#include "base/a.h"\n',
    "kernels/dispatch.cc": '#include "kernels/cpu/op.h"\n#if TELEGRAD_WITH_CUDA\n#endif\n',
    "kernels/cpu/op.h": '#pragma once\n#include "kernels/op.h"\n',
    "kernels/cpu/vectors-inl.h": "#ifndef HWY_TOGGLE\n#endif\n",
    "kernels/cuda/launch.h": "#pragma once\n",
    "kernels/cuda/op.cu": '#include <cstdint>\n#include "kernels/op.h"\n'
                          '#include "kernels/cuda/launch.h"\n',
    "compression/codec.h": '#pragma once\n#include "kernels/op.h"\n',
    "transport/transport.h": "#pragma once\n",
    "transport/registry.cc": '#include "transport/ucx/context.h"\n',
    "kvstore/job/launch/placement.cc": 'const char* x = getenv("A");\n',
    "kvstore/job/control/job.h": '#pragma once\n#include "transport/transport.h"\n',
    "transport/ucx/context.h": "#pragma once\n",
    "transport/ucx/registry.cc": "#if TELEGRAD_WITH_UCX\n#endif\n",
    "topology/plan.h": '#pragma once\n#include "base/a.h"\n',
    "topology/detect/net.cc": 'Read("/sys/class/net");\n',
    "base/poller.cc": '#include <sys/epoll.h>\n// as "/sys/class/net" says\n'
                      'Read("/proc/sys/kernel/random/boot_id");\n',
    "kvstore/store.h": '#pragma once\n#include "compression/codec.h"\n'
                       '#include "transport/transport.h"\n',
    "kvstore/engine/codec/chunk.h": '#pragma once\n#include "kvstore/store.h"\n',
    "kvstore/ps/worker/worker.cc": '#include "kvstore/engine/codec/chunk.h"\n',
    "kvstore/ps/worker/worker.h": "#pragma once\n",
    "kvstore/tuning/plan.h": '#pragma once\n#include "kvstore/store.h"\n'
                             '#include "kvstore/job/control/job.h"\n',
    "trainer/networks/lenet.cc": "#include <torch/torch.h>\n",
    "perf/trainer_cost/plain_loop.cc": "#include <torch/torch.h>\n",
    "trainer/main.cc": '#include "kvstore/store.h"\n#include "kvstore/tuning/plan.h"\n',
    "perf/main.cc": '#include "trainer/report.h"\n',
    "examples/own.cc": '#include "kvstore/store.h"\n#include "kvstore/job/control/job.h"\n',
    "trainer/own.h": "#pragma once\nnamespace telegrad {\nclass Report : public X {\n};\n}\n",
    "transport/other.h": "#pragma once\nnamespace telegrad::ucx {\nstruct Report {\n};\n}\n",
    "trainer/report.h": '#pragma once\nconst char* kText = R"(throw " getenv()";\n'
                        "constexpr int kBig = 1'000'000;\n",
    "tests/kernels/op_test.cc": '#include "kernels/cpu/op.h"\n',
}

# name: (rule, path, text)
PLANTED = {
    "upward arrow": ("arrow", "base/b.cc", '#include "kernels/op.h"\n'),
    "kernels on compression": (
        "arrow", "kernels/b.cc", '#include "compression/codec.h"\n'),
    "compression on transport": (
        "arrow", "compression/b.cc", '#include "transport/transport.h"\n'),
    "transport on compression": (
        "arrow", "transport/b.cc", '#include "compression/codec.h"\n'),
    "topology on transport": (
        "arrow", "topology/b.cc", '#include "transport/transport.h"\n'),
    "topology on compression": (
        "arrow", "topology/b.h", '#pragma once\n#include "compression/codec.h"\n'),
    "kvstore on trainer": (
        "arrow", "kvstore/b.cc", '#include "trainer/report.h"\n'),
    "two types of one name": (
        "doubled", "trainer/twice.h",
        "#pragma once\nnamespace telegrad {\nstruct Report {\n};\n}  // namespace telegrad\n"),
    "two types of one name behind a function": (
        "doubled", "trainer/twice.h",
        "#pragma once\nnamespace telegrad {\ninline void F() {\n}\n"
        "struct Report {\n};\n}  // namespace telegrad\n"),
    "kvstore on its tuning": (
        "arrow", "kvstore/b.cc", '#include "kvstore/tuning/plan.h"\n'),
    "engine on transport": (
        "arrow", "kvstore/engine/codec/b.cc", '#include "transport/transport.h"\n'),
    "server on its workers": (
        "arrow", "kvstore/ps/server/b.cc", '#include "kvstore/ps/worker/worker.h"\n'),
    "trainer on a store's own rooms": (
        "private", "trainer/b.cc", '#include "kvstore/ps/worker/worker.h"\n'),
    "transport on the job": (
        "arrow", "transport/ucx/b.cc", '#include "kvstore/job/control/job.h"\n'),
    "trainer on tests": ("arrow", "trainer/b.cc", '#include "tests/t.h"\n'),
    "private header of another layer": (
        "private", "kvstore/b.cc", '#include "transport/ucx/context.h"\n'),
    "example on the trainer": (
        "arrow", "examples/b.cc", '#include "trainer/report.h"\n'),
    "example on a private header": (
        "private", "examples/b.cc", '#include "transport/ucx/context.h"\n'),
    "example on the stores' engine": (
        "private", "examples/b.cc", '#include "kvstore/engine/codec/chunk.h"\n'),
    "private header of a sister folder": (
        "private", "transport/inproc/b.cc",
        '#include "transport/ucx/context.h"\n'),
    "private header in the layer's folder": (
        "private", "transport/b.cc", '#include "transport/ucx/context.h"\n'),
    "private header in another layer's table": (
        "private", "kvstore/registry.cc",
        '#include "transport/ucx/context.h"\n'),
    "conditional outside a table": (
        "conditional", "transport/ucx/b.cc", "#if TELEGRAD_WITH_UCX\n#endif\n"),
    "ifdef outside a table": (
        "conditional", "kvstore/b.cc", "#ifdef TELEGRAD_WITH_CUDA\n#endif\n"),
    "defined() outside a table": (
        "conditional", "base/b.h",
        "#pragma once\n# if defined(TELEGRAD_HAVE_UCX)\n#endif\n"),
    "header without pragma once": ("pragma-once", "base/b.h", "int x;\n"),
    "pragma once only in a comment": (
        "pragma-once", "base/b.h", "// #pragma once\n"),
    "include beside the file": ("root-relative", "base/b.cc", '#include "a.h"\n'),
    "include of a parent folder": (
        "root-relative", "base/b.cc", '#include "../base/a.h"\n'),
    "include of a missing file": (
        "root-relative", "base/b.cc", '#include "base/none.h"\n'),
    "own header in angle brackets": (
        "root-relative", "kernels/b.cc", "#include <base/a.h>\n"),
    "Abseil in CUDA": (
        "cuda-include", "kernels/cuda/b.cu", '#include "absl/status/status.h"\n'),
    "container in CUDA": (
        "cuda-include", "kernels/cuda/b.cu", "#include <vector>\n"),
    "base in CUDA": (
        "cuda-include", "kernels/cuda/b.cu", '#include "base/a.h"\n'),
    "torch in the loop": (
        "torch", "trainer/loop.cc", "#include <torch/torch.h>\n"),
    "ATen below the trainer": (
        "torch", "kvstore/b.cc", '#include "ATen/ATen.h"\n'),
    "getenv in a library": (
        "getenv", "kvstore/b.cc", 'auto x = std::getenv("HOME");\n'),
    "getenv after a digit separator": (
        "getenv", "base/b.cc", 'int x = 1\'000; auto y = getenv("A"); int z = 1\'0;\n'),
    "a look at /sys that could decide": (
        "sysfs", "transport/ucx/b.cc", 'Read("/sys/class/infiniband");  // "a"\n'),
    "a look at /sys behind a root": (
        "sysfs", "kvstore/b.cc", 'Read(root / "sys/class/net");\n'),
    "throw": ("throw", "base/b.cc", "void F() { throw 1; }\n"),
    "throw after a comment": (
        "throw", "base/b.cc", "/* \" */ void F() { throw 1; } // \"\n"),
}


def write_tree(root, files):
    for path, text in files.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


class CheckLayers(unittest.TestCase):

    def test_a_clean_tree_has_no_violation(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, CLEAN)
            self.assertEqual(check_layers.violations(root), [])

    def test_each_planted_violation_is_found(self):
        for name, (rule, path, text) in PLANTED.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as root:
                write_tree(root, {**CLEAN, "tests/t.h": "#pragma once\n"})
                write_tree(root, {path: text})
                found = [(p, r) for p, _, r, _ in check_layers.violations(root)]
                self.assertEqual(found, [(path, rule)])

    def test_the_line_is_named(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, CLEAN)
            write_tree(root, {"base/b.cc": "\n\n#include <cstdio>\nthrow 1;\n"})
            self.assertEqual([n for _, n, _, _ in check_layers.violations(root)],
                             [4])


if __name__ == "__main__":
    unittest.main()
