#!/usr/bin/env python3
"""What the compiled CUDA kernels do with memory.

    check_sass.py OBJECT...

Disassembles the objects of .cu files for each architecture in them and says
which kernel uses local memory, and which has no instance that reads or writes
128 bits at once. Exit: 0 no complaints, 1 complaints, 77 no cuobjdump (with
nvdisasm) on the PATH or in /usr/local/cuda/bin.
"""
import os
import re
import shutil
import subprocess
import sys

SKIPPED = 77
# Kernels whose arrays are not as long as a gradient, or whose threads each have
# a word of packed codes.
NARROW = {
    "AddFittedKernel", "ClipKernel", "ColumnKernel", "CountCodesKernel",
    "CountFittedKernel", "CountGapsKernel", "CountPackKernel", "DotKernel",
    "FinishScale", "LargestKernel", "LearnKernel", "PowerKernel",
    "PutDrawnKernel", "PutKernel", "RandomBasisKernel", "ReadListKernel",
    "SampleKernel", "SampleThresholdKernel", "SharedSumDecodeKernel",
    "SumCodesKernel", "SumDrawnKernel", "SumPackKernel", "TakeDrawnKernel",
    "TakeKernel", "WriteListKernel",
}
# Of families, in which packed sums are decoded by words.
NARROW_IN = {("radix.cu.o", "PackedDecodeKernel")}

FUNCTION = re.compile(r"^\s*Function : (\S+)", re.MULTILINE)
LOCAL = re.compile(r"\b(LDL|STL)\b")
WIDE = re.compile(r"\b(LDG|STG)\S*\.128\b")


def name_of(mangled):
    """The last part of a nested name: lengths stand before parts."""
    rest, name = mangled.removeprefix("_ZN"), mangled
    while length := re.match(r"\d+", rest):
        begin = length.end()
        end = begin + int(length.group())
        name, rest = rest[begin:end], rest[end:]
    return name


def functions(text):
    """(mangled name, instructions) of a disassembly."""
    parts = FUNCTION.split(text)
    return list(zip(parts[1::2], parts[2::2]))


def complaints(file, arch, text):
    """What is wrong with a disassembly."""
    found = functions(text)
    if not found:
        yield f"{file} {arch}: no kernel"
    has_wide = {}
    for mangled, instructions in found:
        name = name_of(mangled)
        if LOCAL.search(instructions):
            yield f"{file} {arch}: {mangled} uses local memory"
        has_wide[name] = has_wide.get(name, False) or \
            WIDE.search(instructions) is not None
    for name, is_wide in has_wide.items():
        if not is_wide and name not in NARROW and \
                (file, name) not in NARROW_IN:
            yield f"{file} {arch}: no {name} has 128-bit accesses"


def architectures(cuobjdump, path):
    listed = subprocess.run([cuobjdump, "-lelf", path], text=True,
                            capture_output=True, check=True).stdout
    return sorted(set(re.findall(r"\b(sm_\d+[a-z]?)\b", listed)))


def find_cuobjdump():
    """Its path, or None where it or its nvdisasm is missing."""
    path = os.environ["PATH"] + ":/usr/local/cuda/bin"
    os.environ["PATH"] = path
    tools = [shutil.which(tool) for tool in ("cuobjdump", "nvdisasm")]
    return tools[0] if all(tools) else None


def main(paths):
    paths = [path for path in paths if path.endswith(".cu.o")]
    cuobjdump = find_cuobjdump()
    if cuobjdump is None or not paths:
        print("skipped: " + ("no cuobjdump with nvdisasm; CUDA's toolkit and "
                             "pip install nvidia-cuda-cuobjdump "
                             "nvidia-cuda-nvdisasm have them"
                             if paths else "no CUDA kernels were compiled"))
        return SKIPPED
    num_wrong = num_read = 0
    for path in paths:
        for arch in architectures(cuobjdump, path):
            text = subprocess.run([cuobjdump, "-sass", "-arch", arch, path],
                                  text=True, capture_output=True,
                                  check=True).stdout
            num_read += len(functions(text))
            for complaint in complaints(os.path.basename(path), arch, text):
                print(complaint)
                num_wrong += 1
    print(f"{num_read} kernels read, {num_wrong} complaints")
    return 1 if num_wrong or num_read == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
