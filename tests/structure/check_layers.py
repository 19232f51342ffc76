#!/usr/bin/env python3
"""Checks the rules of structure from the sources.

    check_layers.py ROOT

Prints one line per violation, `path:line: rule: text`; exits 1 if there is any.
"""
import os
import re
import sys

# Which layers each layer may include; every layer may include itself.
BELOW = {
    "base": (),
    "kernels": ("base",),
    "compression": ("kernels", "base"),
    "transport": ("kernels", "base"),
    "topology": ("kernels", "base"),
    "kvstore": ("compression", "transport", "topology", "kernels", "base"),
    "trainer": ("kvstore", "compression", "transport", "topology", "kernels",
                "base"),
    # What users can include, and nothing else.
    "examples": ("kvstore", "compression", "transport", "topology", "kernels",
                 "base"),
}
# The C interface; Python stands on that alone.
BELOW["python"] = BELOW["trainer"]
EVERYTHING = tuple(BELOW)
for top in ("perf", "tests"):
    BELOW[top] = EVERYTHING + ("perf", "tests")

# Rooms: folders of a layer with rules of their own. Who may include the layer
# may include them; the rest of their layer only where it names them.
BELOW["kvstore/job/launch"] = ("transport", "base")
BELOW["kvstore/job/control"] = ("kvstore/job/launch", "transport", "base")
BELOW["kvstore/job/flight"] = ("transport", "base")
BELOW["kvstore/job/path"] = ("kvstore/job/control", "kvstore/job/flight", "transport", "topology",
                             "base")
BELOW["kvstore/collective"] = ("transport", "topology", "kernels", "base")
BELOW["kvstore/operations"] = ("kvstore", "kvstore/collective", "kvstore/engine/device",
                               "kvstore/job/path", "kernels", "base")
BELOW["kvstore"] += ("kvstore/job", "kvstore/collective")
ENGINE = ("kvstore", "compression", "topology", "kernels", "base")
BELOW["kvstore/engine/device"] = ENGINE
BELOW["kvstore/engine/codec"] = ("kvstore/engine/device", "kvstore/engine/state") + ENGINE
BELOW["kvstore/engine/state"] = ("kvstore/engine/codec", "kvstore/engine/device") + ENGINE
BELOW["kvstore/engine/rows"] = ("kvstore/engine/codec",) + ENGINE
STORE = ("kvstore", "kvstore/engine") + BELOW["kvstore"]
BELOW["kvstore/ps/wire"] = STORE
BELOW["kvstore/ps/server"] = ("kvstore/ps/wire",) + STORE
BELOW["kvstore/ps/worker"] = ("kvstore/ps/wire", "kvstore/ps/server") + STORE
BELOW["kvstore/ps/hosts"] = ("kvstore/ps",) + STORE
for name in ("local", "nccl"):
    BELOW["kvstore/" + name] = STORE
BELOW["kvstore/tier_one"] = ("kvstore/nccl",) + STORE
BELOW["kvstore/tuning"] = STORE
BELOW["kvstore/program"] = ("kvstore/tuning", "kvstore") + BELOW["kvstore"]
TRAINER = BELOW["trainer"]
BELOW["trainer/data"] = BELOW["trainer/networks"] = TRAINER
BELOW["trainer/report"] = ("trainer/networks",) + TRAINER
BELOW["trainer/flags"] = ("trainer/data", "trainer/networks", "trainer/report") + TRAINER
RUN = ("trainer/flags",) + BELOW["trainer/flags"]
BELOW["trainer/checkpoint"] = ("trainer/run",) + RUN
BELOW["trainer/run"] = ("trainer/checkpoint",) + RUN
BELOW["trainer/launch"] = ("trainer/checkpoint", "trainer/run") + RUN
BELOW["trainer"] = ("trainer/launch",) + BELOW["trainer/launch"]
# Rooms that only their own layer may include, and perf and tests.
CLOSED = ("kvstore/engine", "kvstore/ps", "kvstore/local", "kvstore/nccl",
          "kvstore/tier_one")

SOURCES = (".h", ".cc", ".cu", ".cuh")

# Where the environment may be read: once, at the start, into options; and
# where UCX and NCCL read it, to see what is the user's.
GETENV_FILES = re.compile(
    r"^(trainer/main\.cc|trainer/flags/options\.cc|perf/main\.cc|perf/options\.cc"
    r"|kernels/prefetch\.cc|python/c/job\.cc|kvstore/job/launch/placement\.cc|base/vendor/ucx\.cc|transport/ucx/config\.cc|transport/ofi/provider\.cc|kvstore/collective/nccl/environment\.cc|topology/options\.cc|kvstore/program/server_main\.cc"
    r"|tests/.*)$")
# What a machine has is looked at in topology, and decided there. Elsewhere /sys
# is read for an error's text, and for how much memory a benchmark may take.
SYSFS_FILES = re.compile(
    r"^(topology/.*|tests/.*|trainer/networks/gpu_faults\.cc|perf/network/push_pull_memory\.cc)$")
# A layer's own table, and that of one of its folders.
CONDITIONAL_FILES = re.compile(
    r"^([a-z]+/([a-z_]+/){0,2}registry\.cc|kernels/dispatch\.cc)$")
FACTORY_USERS = re.compile(r"^[a-z]+/(registry|dispatch)\.cc$")
TORCH_FILES = re.compile(r"^(trainer/networks/.*|tests/trainer/.*"
                         r"|perf/trainer_cost/plain_loop\.cc)$")
CUDA_INCLUDE = re.compile(
    r"^(kernels/[a-z0-9_]+\.h|kernels/cuda/[a-z_]+\.(?:h|cuh)|cuda[a-z0-9_]*\.h"
    r"|device_launch_parameters\.h|c[a-z]+|type_traits|limits"
    r"|math_constants\.h|cub/.*|std[a-z]+\.h)$")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITIONAL = re.compile(
    r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*\bTELEGRAD_(?:WITH|HAVE)_")
GETENV = re.compile(r"(?<![\w.>])(?:std::|::)?(?:secure_)?getenv\s*\(")
SYSFS = re.compile(r'"[^"\n]*(?<!/proc)(?<!/proc/)(?<!\w)/?sys/(?:class|bus|devices|module|kernel|fs)\b')
TYPE = re.compile(r"(?:struct|class|enum class) ([A-Z]\w*)(?: final)?(?: : [^;]*)? \{")
THROW = re.compile(r"\bthrow\b")


COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)


def without_comments_and_strings(text, keeps_strings=False):
    """The text with comments and the insides of literals blanked out."""
    def blank(match):
        if keeps_strings and match.group()[0] != "/":
            return match.group()
        return re.sub(r"[^\n]", " ", match.group())

    return COMMENT_OR_LITERAL.sub(blank, text)


def layer_of(path):
    """The innermost room, or the layer, that a path is in."""
    while "/" in path and path not in BELOW:
        path = path.rpartition("/")[0]
    return path


def may_include(layer, aim):
    """Whether the files of `layer` may include those of the room `aim`. A folder
    stands for all rooms in it, but a layer not for its own."""
    if aim == layer or aim in BELOW[layer]:
        return True
    above = aim.rpartition("/")[0]
    return bool(above) and above != layer.split("/")[0] and may_include(layer, above)


def source_files(root):
    for layer in sorted(name for name in BELOW if "/" not in name):
        for folder, folders, names in os.walk(os.path.join(root, layer)):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for name in sorted(names):
                if name.endswith(SOURCES):
                    path = os.path.join(folder, name)
                    yield os.path.relpath(path, root).replace(os.sep, "/")


def check_include(root, path, quote, target):
    """Yields (rule, text) for one #include of `path`."""
    layer = layer_of(path)
    if layer == "kernels" and path.endswith(".cu") and not CUDA_INCLUDE.match(target):
        yield "cuda-include", f"a .cu file may not include {target}"
    if re.match(r"(torch|ATen|c10|caffe2)/", target) and not TORCH_FILES.match(
            path):
        yield "torch", f"{target} is for trainer/networks and its peer only"
    top = target.split("/")[0]
    if quote == "<":
        if top in BELOW and os.path.exists(os.path.join(root, target)):
            yield "root-relative", f"<{target}> is ours: use quotes"
        return
    if target.startswith(".") or "/../" in target or "/" not in target:
        yield "root-relative", f'"{target}" is not relative to the root'
        return
    if top not in BELOW:
        return
    if not os.path.isfile(os.path.join(root, target)):
        yield "root-relative", f'"{target}" does not exist'
        return
    aim = layer_of(target)
    is_table = FACTORY_USERS.match(path) and top == layer
    if not is_table and not may_include(layer, aim):
        yield "arrow", f"{layer} may not include {aim} ({target})"
    inner = os.path.dirname(target)
    is_private = ("/" in inner and inner != aim
                  or aim.startswith(CLOSED) and layer.split("/")[0] != top)
    same_folder = (os.path.dirname(path) + "/").startswith(inner + "/")
    if is_private and not same_folder and not is_table and layer not in (
            "tests", "perf") and top not in ("tests", "perf"):
        yield "private", f"{target} is private to {inner}/"


def check_file(root, path):
    """Yields (line number, rule, text) for one file."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    lines = text.splitlines()
    code = without_comments_and_strings(text).splitlines()
    # Highway includes -inl.h files once per target, under its own guard.
    if path.endswith(".h") and not path.endswith("-inl.h") and not any(
            re.match(r"\s*#\s*pragma\s+once\b", line) for line in code):
        yield 1, "pragma-once", "no #pragma once"
    for number, (line, bare) in enumerate(zip(lines, code), 1):
        include = INCLUDE.match(line)
        # A comment blanks the '#' out; a quoted path only its inside.
        if include and bare.lstrip().startswith("#"):
            for rule, message in check_include(root, path, *include.groups()):
                yield number, rule, message
        if CONDITIONAL.match(bare) and not CONDITIONAL_FILES.match(path):
            yield number, "conditional", "#if on a backend belongs in registry.cc"
        if GETENV.search(bare) and not GETENV_FILES.match(path):
            yield number, "getenv", "the environment is read in main or options"
        if THROW.search(bare):
            yield number, "throw", "we throw nothing"
    if SYSFS_FILES.match(path):
        return
    said = without_comments_and_strings(text, keeps_strings=True)
    for number, line in enumerate(said.splitlines(), 1):
        if SYSFS.search(line):
            yield number, "sysfs", "topology looks at /sys and decides"


def types_of(root, path):
    """Yields (line number, qualified name) of types of one header that are not
    inside another, for namespaces that are written one to a line."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        code = without_comments_and_strings(file.read()).splitlines()
    spaces = []
    depth = 0  # of braces
    for number, line in enumerate(code, 1):
        space = re.match(r"namespace( [A-Za-z0-9_:]+)? \{$", line)
        if space:
            spaces.append((space.group(1) or "").strip())
        depth += line.count("{") - line.count("}")
        del spaces[max(depth, 0):]
        defined = TYPE.match(line)
        if defined:
            yield number, "::".join(spaces + [defined.group(1)])


def doubled_types(root):
    """Two layers may not give one name to different types: programs that hold
    both would mix their functions up without a word."""
    first = {}
    for path in source_files(root):
        if not path.endswith(".h") or path.startswith(("tests/", "perf/")):
            continue
        for number, name in types_of(root, path):
            if first.setdefault(name, path) != path:
                yield path, number, "doubled", f"{name} is in {first[name]} too"


def violations(root):
    found = []
    for path in source_files(root):
        for number, rule, text in check_file(root, path):
            found.append((path, number, rule, text))
    return found + list(doubled_types(root))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = violations(sys.argv[1])
    for path, number, rule, text in found:
        print(f"{path}:{number}: {rule}: {text}")
    files = sum(1 for _ in source_files(sys.argv[1]))
    print(f"{files} files, {len(found)} violations")
    sys.exit(1 if found or files == 0 else 0)


if __name__ == "__main__":
    main()
