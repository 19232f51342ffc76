#!/usr/bin/env python3
"""Known answers of MXNet's rules (docs/codecs.md), computed by hand, through
`telegrad.Codec`; and what the package refuses. Needs no NumPy and no torch."""
import array
import logging
import math
import os
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import telegrad


class Floats:
    """float32 by NumPy's protocol alone: any object that has it is an array."""

    def __init__(self, values, typestr="<f4", shape=None, strides=None):
        self.array = array.array("f", values)
        self.__array_interface__ = {
            "version": 3, "typestr": typestr, "shape": shape or (len(self.array),),
            "data": (self.array.buffer_info()[0], False), "strides": strides}

    def __iter__(self):
        return iter(self.array)


def bits(values):
    return [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]


def run(codec, gradient):
    """(payload in hex, residual, decoded) of one step."""
    payload, threshold = codec.encode(Floats(gradient))
    decoded = codec.decode(payload, threshold, Floats([7] * codec.num_elems))
    return payload.hex(), list(codec.residual), list(decoded)


class KnownAnswers(unittest.TestCase):
    def test_a_two_steps_of_nineteen(self):
        codec = telegrad.Codec("2bit:0.5", 19)
        payload, residual, decoded = run(codec, [
            .5, -.5, .49999997, -.49999997, .25, -.25, 0, -0., 1.25, -1.25, .75, -.75,
            .125, 3, -3, .5, -.5, .5, .375])
        self.assertEqual(payload, "e000ee3bb0000000")
        self.assertEqual(bits(residual), [
            0, 0, 0x3effffff, 0xbeffffff, 0x3e800000, 0xbe800000, 0, 0, 0x3f400000,
            0xbf400000, 0x3e800000, 0xbe800000, 0x3e000000, 0x40200000, 0xc0200000, 0, 0,
            0, 0x3ec00000])
        self.assertEqual(decoded, [.5, -.5, 0, 0, 0, 0, 0, 0, .5, -.5, .5, -.5, 0, .5,
                                   -.5, .5, -.5, .5, 0])
        payload, residual, decoded = run(codec, [
            0, 0, 3e-8, -3e-8, .25, -.25, .5, -.5, 0, 0, .25, -.25, .375, 0, 0, -.5, .5,
            -.5, .125])
        self.assertEqual(payload, "0eeeeefaec000000")
        self.assertEqual(residual, [0] * 8 + [.25, -.25, 0, 0, 0, 2, -2, 0, 0, 0, 0])
        self.assertEqual(decoded, [0, 0, .5, -.5, .5, -.5, .5, -.5, .5, -.5, .5, -.5, .5,
                                   .5, -.5, -.5, .5, -.5, .5])

    def test_a2_sums_are_of_float32(self):
        codec = telegrad.Codec("2bit:0.5", 1)
        codec.residual[0] = .49999997
        payload, residual, _ = run(codec, [2e-8])  # 00 with doubles
        self.assertEqual((payload, residual), ("c0000000", [0]))

    def test_b_and_b2_of_mxnets_nightly_test(self):
        rest = .5 - struct.unpack("<f", struct.pack("<f", .4))[0]
        for steps, answers in (
                ([.4, rest, .2, .3],
                 [("00000000", 0x3ecccccd), ("fff00000", 0), ("00000000", 0x3e4ccccd),
                  ("fff00000", 0)]),
                ([.4, .2, .2, .2],
                 [("00000000", 0x3ecccccd), ("fff00000", 0x3dccccd0),
                  ("00000000", 0x3e99999a), ("fff00000", 0)])):
            codec = telegrad.Codec("2bit:0.5", 6)
            for step, (want, want_bits) in zip(steps, answers):
                payload, residual, _ = run(codec, [step] * 6)
                self.assertEqual((payload, bits(residual)), (want, [want_bits] * 6))

    def test_c_of_the_first_pull_request(self):
        codec = telegrad.Codec("2bit:4", 10)
        for i, value in enumerate([-3, 1, -1, 5, -2, 2, 3, -7, -2, -100]):
            codec.residual[i] = value
        payload, residual, decoded = run(codec, [-6, -2, 3, 1, 10, 5, -3, 2, -8, 0])
        self.assertEqual(payload, "83f2a000")
        self.assertEqual(residual, [-5, -1, 2, 2, 4, 3, 0, -1, -6, -96])
        self.assertEqual(decoded, [-4, 0, 0, 4, 4, 4, 0, -4, -4, -4])

    def test_d_one_bit(self):
        gradient = [2, -2, .5, -.5, 0, 1, -1, .25, 3, -3]
        for threshold, answers in (
                (0, [("a5800000", [1, -1, -.5, .5, 1, 0, 0, -.75, 2, -2]),
                     ("98800000", [0, 0, .5, -.5, 0, 1, 1, .25, 1, -1])]),
                (.5, [("84800000", [1, -1, 1.5, .5, 1, 0, 0, 1.25, 2, -2]),
                      ("a9800000", [0, 0, .5, 1.5, 0, 1, 1, .25, 1, -1])])):
            codec = telegrad.Codec(f"1bit:{threshold}", 10)
            for step, (want, want_residual) in zip([gradient, [0] * 10], answers):
                payload, residual, _ = run(codec, step)
                # The step of 1.0 follows the bits.
                self.assertEqual((payload, residual), (want + "0000803f", want_residual))

    def test_e_not_finite(self):
        codec = telegrad.Codec("2bit:0.5", 4, nonfinite="propagate")
        payload, residual, _ = run(codec, [math.nan, math.inf, -math.inf, 1])
        self.assertEqual(payload, "3b000000")
        self.assertTrue(math.isnan(residual[0]))
        self.assertEqual(residual[1:], [math.inf, -math.inf, .5])


class Refusals(unittest.TestCase):
    def test_a_codec_that_is_none_names_those_that_are(self):
        with self.assertRaisesRegex(telegrad.UsageError, "3bit.*2bit"):
            telegrad.Codec("3bit", 4)

    def test_an_array_of_another_size_type_or_layout(self):
        codec = telegrad.Codec("2bit:0.5", 4)
        for wrong, text in ((Floats([1] * 5), "4 float32.*has 5"),
                            (Floats([1] * 4, typestr="<f8"), "4 float64"),
                            (Floats([1] * 4, strides=(8,)), "contiguous"),
                            ([1, 2, 3, 4], "list is no array")):
            with self.subTest(text), self.assertRaisesRegex(telegrad.UsageError, text):
                codec.encode(wrong)

    def test_what_is_not_finite_unless_it_is_wanted(self):
        with self.assertRaisesRegex(telegrad.NumericFault, "1 elements.*first is 2"):
            telegrad.Codec("2bit:0.5", 4).encode(Floats([1, 1, math.nan, 1]))

    def test_bytes_that_nobody_encoded(self):
        codec = telegrad.Codec("topk:0.5", 64)
        payload, threshold = codec.encode(Floats(range(64)))
        for wrong in (payload[:-1], payload + b"x", b"\xff" * len(payload)):
            with self.assertRaises(telegrad.Error):
                codec.decode(wrong, threshold, Floats([0] * 64))

    def test_errors_carry_exit_codes(self):
        with self.assertRaises(ValueError) as caught:
            telegrad.Job(num_workers=-3)
        self.assertEqual((caught.exception.exit_code, caught.exception.dead), (2, ()))
        store = telegrad.Store(None, "local")
        with self.assertRaisesRegex(telegrad.UsageError, "1 names for 0 rates"):
            store.init(["w"], [Floats([0])], rates=[])
        with self.assertRaisesRegex(telegrad.UsageError, "local.*auto"):
            store.set_compression(type="auto")
        with self.assertRaisesRegex(telegrad.UsageError, "fp16.*auto"):
            store.set_compression(type="2bit", allow="fp16")

    def test_nothing_is_lost_when_an_error_ends_the_process(self):
        with tempfile.NamedTemporaryFile("r") as log:
            script = ("import atexit, sys\natexit.register(print, 'handled')\n"
                      "import telegrad\nlog = open(sys.argv[1], 'w')\n"
                      "log.write('last line')\nraise telegrad.PeerDied('x', exit_code=20)")
            run = subprocess.run([sys.executable, "-B", "-c", script, log.name], timeout=60,
                                 check=False, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (20, "handled\n"), run.stderr)
            self.assertEqual(log.read(), "last line")

    def test_an_error_at_a_prompt_is_no_end(self):
        run = subprocess.run([sys.executable, "-B", "-i", "-c", "import telegrad"], timeout=60,
                             input="raise telegrad.PeerDied('x')\nexit()\n", check=False,
                             capture_output=True, text=True)
        self.assertIn("PeerDied: x", run.stderr)
        self.assertEqual(run.returncode, 0, run.stderr)


class Machine(unittest.TestCase):
    def test_topology_and_doctor_are_objects(self):
        self.assertEqual(telegrad.topology()["schema"], "1")
        self.assertIn("findings", telegrad.doctor())

    def test_codecs_are_listed_with_their_options(self):
        found = {codec["name"]: codec for codec in telegrad.codecs()}
        self.assertEqual(found["none"]["bits"], 32)
        self.assertLess(found["2bit"]["bits"], 2.01)
        (block, *_), = [codec["options"] for name, codec in found.items() if name == "int8"]
        self.assertTrue(block["low"] <= block["default"] <= block["high"], block)
        for name in found:
            telegrad.Codec(name, 64)
        with self.assertRaisesRegex(telegrad.UsageError, ", ".join(list(found)[:3])):
            telegrad.Codec("3bit", 64)


class Said(unittest.TestCase):
    def python(self, *words, **environment):
        return subprocess.run([sys.executable, "-B", *words], timeout=60, check=False,
                              env=dict(os.environ, **environment), capture_output=True,
                              text=True)

    def test_the_module_says_what_is_here(self):
        text = self.python("-m", "telegrad").stdout
        for pattern in (rf"(?m)^version +{telegrad.__version__}$", "(?m)^transport +tcp: ",
                        "(?m)^torch +", "(?m)^codec +2bit: 2 bits"):
            self.assertRegex(text, pattern)
        for module in ("telegrad", "telegrad.run"):
            self.assertEqual(self.python("-m", module, "--version").stdout.strip(),
                             telegrad.__version__)
        self.assertEqual(self.python("-m", "telegrad", "doctor").returncode, 0)

    def test_levels_have_names(self):
        say = ("import telegrad, logging\nfrom telegrad._log import LOGGER\n"
               "LOGGER.info('one'); LOGGER.warning('two')\n")
        for level, shown in (("info", "telegrad: one\ntelegrad: two\n"), ("off", ""),
                             ("WARNING", "telegrad: two\n"), ("", "telegrad: one\n"
                                                              "telegrad: two\n")):
            run = self.python("-c", say, TELEGRAD_LOG_LEVEL=level)
            self.assertEqual((run.returncode, run.stderr), (0, shown), level)
        run = self.python("-c", "import telegrad", TELEGRAD_LOG_LEVEL="loud")
        self.assertRegex(run.stderr, "TELEGRAD_LOG_LEVEL='loud': one of debug, info")
        for wrong in ("loud", 7, None):
            with self.assertRaisesRegex(telegrad.UsageError, "level="):
                telegrad.set_log_level(wrong)
        telegrad.set_log_level("info")

    def test_handlers_of_the_user_take_the_lines(self):
        run = self.python("-c", "import logging, telegrad\n"
                          "logging.basicConfig(format='%(name)s %(levelname)s %(message)s')\n"
                          "from telegrad._log import LOGGER\nLOGGER.info('one')\n")
        self.assertEqual(run.stderr, "telegrad INFO one\n")

    def test_a_scheduler_that_is_waited_for_is_named_by_logging(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        said, others = [], []

        class Starts(logging.Handler):
            def emit(self, record):
                said.append((record.levelname, record.getMessage()))
                others.append(telegrad.Job(address, role=telegrad.SCHEDULER,
                                           servers_here=1))

        handler = Starts()
        logger = logging.getLogger("telegrad")
        logger.addHandler(handler)
        try:
            telegrad.Job(address).join().close()
        finally:
            logger.removeHandler(handler)
        others[0].serve()
        others[0].close()
        self.assertEqual([level for level, _ in said], ["WARNING"], said)
        self.assertIn(f"waiting for the scheduler, which rank 0 or a process of its own "
                      f"runs, at {address}, ", said[0][1])

    def test_limits_of_the_environment(self):
        make = "import telegrad\ntelegrad.Job(join_timeout=%s).join().close()\n"
        for name in ("JOIN", "OPERATION"):
            run = self.python("-c", make % "None", **{f"TELEGRAD_{name}_TIMEOUT": "soon"})
            self.assertRegex(run.stderr, f"TELEGRAD_{name}_TIMEOUT='soon': seconds are wanted")
        run = self.python("-c", make % "9", TELEGRAD_JOIN_TIMEOUT="soon")
        self.assertEqual((run.returncode, run.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
