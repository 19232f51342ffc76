#!/usr/bin/env python3
"""What the compiled CUDA kernels do with memory.

    check_sass.py OBJECT...

Disassembles the objects of .cu files for each architecture in them and says
which kernel uses local memory, which has no instance that reads or writes 128
bits at once, which stores amid the loads of its tile, and which adds to
global memory without adding up its block's share first. Exit: 0 no complaints, 1 complaints, 77 no cuobjdump (with
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
    "AddFittedKernel", "BeginManyKernel", "ClipKernel", "ColumnKernel",
    "CountCodesKernel", "CountFittedKernel", "CountGapsKernel",
    "CountPackKernel", "DotKernel", "FinishScale", "GatherManyKernel",
    "LargestKernel", "LearnKernel", "PowerKernel", "PowerManyKernel",
    "PutDrawnKernel", "PutKernel", "RandomBasisKernel", "ReadListKernel",
    "SampleKernel", "SampleThresholdKernel", "PutTopKernel",
    "SubtractTopKernel", "TopBoundsKernel", "TopCodesKernel",
    "TopLevelsKernel", "SumDrawnKernel", "SumPackKernel", "TakeDrawnKernel",
    "TakeKernel", "WriteListKernel",
}
# Of families, in which packed sums are decoded by words.
NARROW_IN = {("radix.cu.o", "PackedDecodeKernel"),
             ("radix.cu.o", "PackedDecodeManyKernel")}

# 128-bit loads that an instance has without a store between them: the compiler
# moves none over a store that may be of the same memory.
LOADS_IN_A_ROW = {
    ("radix.cu.o", "EncodeKernel"): 10,
    ("radix.cu.o", "EncodeManyKernel"): 10,
    ("sparse.cu.o", "SurvivorsKernel"): 8,
}
# One addition for each warp or less, or to words of a histogram.
ADDS_ALONE = {"MaxKernel", "SampleKernel"}

FUNCTION = re.compile(r"^\s*Function : (\S+)", re.MULTILINE)
LOCAL = re.compile(r"\b(LDL|STL)\b")
WIDE = re.compile(r"\b(LDG|STG)\S*\.128\b")
WIDE_LOAD = re.compile(r"\bLDG\S*\.128\b")
STORE = re.compile(r"\bSTG\b")
# Without a result, as statistics are added: atomics that give one hand out
# tiles.
ADDITION = re.compile(r"\bREDG?\.")
BARRIER = re.compile(r"\bBAR\.")


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


def loads_in_a_row(instructions):
    """The most wide loads without a store between them."""
    return max(len(WIDE_LOAD.findall(part))
               for part in STORE.split(instructions))


def complaints(file, arch, text):
    """What is wrong with a disassembly."""
    found = functions(text)
    if not found:
        yield f"{file} {arch}: no kernel"
    has_wide = {}
    in_a_row = {}
    for mangled, instructions in found:
        name = name_of(mangled)
        if LOCAL.search(instructions):
            yield f"{file} {arch}: {mangled} uses local memory"
        if ADDITION.search(instructions) and name not in ADDS_ALONE and \
                not BARRIER.search(instructions):
            yield f"{file} {arch}: {mangled} adds without its block's sum"
        has_wide[name] = has_wide.get(name, False) or \
            WIDE.search(instructions) is not None
        in_a_row[name] = max(in_a_row.get(name, 0),
                             loads_in_a_row(instructions))
    for name, is_wide in has_wide.items():
        if not is_wide and name not in NARROW and \
                (file, name) not in NARROW_IN:
            yield f"{file} {arch}: no {name} has 128-bit accesses"
        wanted = LOADS_IN_A_ROW.get((file, name), 0)
        if in_a_row[name] < wanted:
            yield (f"{file} {arch}: {name} loads {in_a_row[name]} times 128 "
                   f"bits in a row, not {wanted}")


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
