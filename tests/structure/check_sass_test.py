#!/usr/bin/env python3
"""Plants what must not be in a disassembly: each must be found."""
import unittest

import check_sass

ENCODE = "_ZN8telegrad4cuda12_GLOBAL__N_112EncodeKernelILb1EEEvPKfPfm"
NARROW_ENCODE = ENCODE.replace("Lb1", "Lb0")
WIDE = "  /*0010*/  LDG.E.128.CONSTANT R4, [R2.64] ;\n"
PLAIN = "  /*0010*/  LDG.E.CONSTANT R4, [R2.64] ;\n"
SPILL = "  /*0020*/  STL [R1], R0 ;\n"


def text(*kernels):
    return "".join(f"\t\tFunction : {name}\n{instructions}"
                   for name, instructions in kernels)


def complaints(*kernels, file="two_bit.cu.o"):
    return list(check_sass.complaints(file, "sm_80", text(*kernels)))


class CheckSass(unittest.TestCase):
    def test_one_wide_instance_is_enough(self):
        self.assertEqual(
            complaints((NARROW_ENCODE, PLAIN), (ENCODE, WIDE)), [])

    def test_no_wide_instance(self):
        found = complaints((NARROW_ENCODE, PLAIN), (ENCODE, PLAIN))
        self.assertEqual(
            found, ["two_bit.cu.o sm_80: no EncodeKernel has 128-bit accesses"])

    def test_local_memory(self):
        found = complaints((ENCODE, WIDE + SPILL))
        self.assertEqual(
            found, [f"two_bit.cu.o sm_80: {ENCODE} uses local memory"])

    def test_stores_amid_the_loads_of_a_tile(self):
        store = WIDE.replace("LDG", "STG")
        self.assertEqual(
            complaints((ENCODE, WIDE + store + 10 * WIDE + store),
                       file="radix.cu.o"), [])
        found = complaints((ENCODE, 2 * WIDE + store + 8 * WIDE),
                           file="radix.cu.o")
        self.assertEqual(found, [
            "radix.cu.o sm_80: EncodeKernel loads 8 times 128 bits in a row, "
            "not 10"])

    def test_additions_without_a_sum_of_the_block(self):
        add = "  /*0010*/  REDG.E.ADD.64.STRONG.GPU [R2.64], R4 ;\n"
        barrier = "  /*0010*/  BAR.SYNC.DEFER_BLOCKING 0x0 ;\n"
        self.assertEqual(complaints((ENCODE, WIDE + barrier + add)), [])
        self.assertEqual(
            complaints((ENCODE, WIDE + add)),
            [f"two_bit.cu.o sm_80: {ENCODE} adds without its block's sum"])

    def test_nothing_to_read(self):
        self.assertEqual(complaints(), ["two_bit.cu.o sm_80: no kernel"])

    def test_a_narrow_kernel_of_one_family_only(self):
        decode = ENCODE.replace("12EncodeKernel", "18PackedDecodeKernel")
        self.assertEqual(complaints((decode, PLAIN), file="radix.cu.o"), [])
        self.assertEqual(len(complaints((decode, PLAIN))), 1)


if __name__ == "__main__":
    unittest.main()
