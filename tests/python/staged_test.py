#!/usr/bin/env python3
"""Tensors of GPUs through pinned host memory: the order of events, copies and waits, by
streams that stand for CUDA's and tensors that say they are on a GPU."""
import contextlib
import os
import types
import unittest
from unittest import mock

import workers

try:
    import torch
except ImportError as why:
    workers.skip(f"PyTorch is not there: {why}")

from telegrad.torch import BackendOptions, _staged
from telegrad.torch._process_group import ProcessGroupTelegrad
from telegrad.torch._staged import Staged


class OnGpu(torch.Tensor):
    """Host memory that says it is elsewhere."""
    device = torch.device("cuda", 0)
    is_cuda = True

    @staticmethod
    def of(values):
        return torch.Tensor._make_subclass(OnGpu, torch.tensor(values))


class Cuda:
    """Notes what streams are given, and which one copies go to."""

    def __init__(self):
        self.log, self.current = [], "caller's"
        cuda = self

        class Event:
            def record(self, stream):
                cuda.log.append(("record", stream))

        class Stream:
            def __init__(self, device):
                self.device = device

            def wait_event(self, event):
                cuda.log.append(("wait for event", cuda.name(self)))

            def synchronize(self):
                cuda.log.append(("synchronize", cuda.name(self)))

        self.Event, self.Stream = Event, Stream

    def name(self, stream):
        return f"own of {stream.device}"

    def current_stream(self, device):
        return f"caller's of {device}"

    @contextlib.contextmanager
    def stream(self, stream):
        self.log.append(("copy", self.name(stream)))
        yield


CALLER, OWN = "caller's of cuda:0", "own of cuda:0"


class ThroughPinnedMemory(unittest.TestCase):
    def test_copies_come_behind_the_callers_stream_and_back_before_the_end(self):
        cuda = Cuda()
        tensor, out = OnGpu.of([1., 2.]), OnGpu.of([0., 0.])
        host = torch.tensor([5., 5.])

        def method(given, others, number):
            cuda.log.append("method")
            self.assertFalse(given[0].is_cuda)
            self.assertIs(others[1], host)
            self.assertEqual(number, 3)
            others[0].copy_(given[0] * number)
            return 7

        call = Staged(method, [out], ([tensor], [out, host], 3), cuda)
        self.assertEqual(cuda.log, [("record", CALLER)])
        tensor.add_(1)  # what the caller's stream does meanwhile is not waited for
        self.assertEqual(call(), 7)
        self.assertEqual(cuda.log[1:], [
            ("wait for event", OWN), ("copy", OWN), ("copy", OWN), ("synchronize", OWN),
            "method", ("copy", OWN), ("synchronize", OWN)])
        self.assertEqual(out.tolist(), [6., 9.])

    def test_one_tensor_twice_is_one_copy_and_others_stay(self):
        cuda = Cuda()
        tensor = OnGpu.of([1., 2.])

        def method(first, second):
            self.assertIs(first, second)
            first.mul_(2)

        Staged(method, [], (tensor, tensor), cuda)()
        self.assertEqual(tensor.tolist(), [1., 2.])
        self.assertEqual(cuda.log.count(("copy", OWN)), 1)
        Staged(method, [tensor], (tensor, tensor), cuda)()
        self.assertEqual(tensor.tolist(), [2., 4.])

    def test_an_error_of_the_method_leaves_the_tensors(self):
        tensor = OnGpu.of([1., 2.])

        def method(given):
            given.zero_()
            raise RuntimeError("no")

        with self.assertRaisesRegex(RuntimeError, "no"):
            Staged(method, [tensor], (tensor,), Cuda())()
        self.assertEqual(tensor.tolist(), [1., 2.])

    def test_it_is_said_once(self):
        _staged._said.clear()
        with self.assertLogs("telegrad", "INFO") as logs:
            _staged.say_once("this PyTorch is without NCCL")
            _staged.say_once("this PyTorch is without NCCL")
        self.assertEqual(len(logs.output), 1)
        self.assertIn("pinned host memory: this PyTorch is without NCCL", logs.output[0])

    def test_nccl_has_nothing_that_is_to_be_sealed(self):
        def takes_nccl(**options):
            group = types.SimpleNamespace(_ordered=None, _options=BackendOptions(**options))
            return ProcessGroupTelegrad._takes_nccl(group, "broadcast")

        with mock.patch("torch.distributed.is_nccl_available", lambda: True):
            with mock.patch.dict(os.environ, TELEGRAD_ENCRYPTION="on"):
                self.assertFalse(takes_nccl())
                self.assertTrue(takes_nccl(encryption="auto"))
            self.assertTrue(takes_nccl())
            self.assertFalse(takes_nccl(encryption="auth"))


if __name__ == "__main__":
    unittest.main()
