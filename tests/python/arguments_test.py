#!/usr/bin/env python3
"""Wrong arguments of the C interface: each has a status that names what is wrong."""
import ctypes
import unittest
from ctypes import byref

from telegrad import _library
from telegrad._library import (LIBRARY, PROTOTYPES, Compression, JobOptions, Optimizer, Rows,
                               Status, StoreOptions, Tensor)

# Without a handle these have nothing to do, or need none.
TAKE_NULL = {"job_start", "job_close", "queue_create", "topology", "doctor",
             "about"}


class Arguments(unittest.TestCase):
    def refused(self, name, *arguments):
        status = Status()
        code = getattr(LIBRARY, "telegrad_" + name)(*arguments, byref(status))
        self.assertNotEqual(code, 0, name)
        self.assertEqual(code, status.code, name)
        return status.message.decode()

    def store(self):
        store = ctypes.c_void_p()
        _library.call("store_create", None, b"local", None, byref(store))
        self.addCleanup(LIBRARY.telegrad_store_close, store)
        return store

    def test_null_is_named_by_each_call(self):
        for name, (_, types) in PROTOTYPES.items():
            if not types or types[-1] is not ctypes.POINTER(Status) or name in TAKE_NULL:
                continue
            zeros = [0 if issubclass(kind, ctypes._SimpleCData)
                     and isinstance(kind().value, (int, float)) else None
                     for kind in types[:-1]]
            self.assertIn(" is null", self.refused(name, *zeros), name)
        for name in ("job_start", "queue_create"):
            nothing = [None] * (len(PROTOTYPES[name][1]) - 1)
            self.assertIn(" is null", self.refused(name, *nothing))

    def test_a_codec_that_is_not_there(self):
        setting = Compression()
        LIBRARY.telegrad_compression_init(byref(setting), ctypes.sizeof(setting))
        setting.type = b"3bit"
        self.assertIn("no codec '3bit'; choose one of none, 2bit",
                      self.refused("store_set_compression", self.store(), byref(setting)))

    def test_a_struct_that_nobody_initialised(self):
        store = self.store()
        for name, struct, first in (("job_start", JobOptions, ()),
                                    ("store_create", StoreOptions, (None, b"local")),
                                    ("store_set_compression", Compression, (store,)),
                                    ("store_set_optimizer", Optimizer, (store,))):
            out = () if name.startswith("store_set") else (byref(ctypes.c_void_p()),)
            for size in (0, 3):
                self.assertIn(f"a struct of size {size}: its _init function",
                              self.refused(name, *first, byref(struct(size)), *out))

    def test_stats_without_a_place(self):
        self.assertIn("stats is null", self.refused("store_stats", self.store(), None))

    def test_devices_of_a_key_are_alike(self):
        store, options = ctypes.c_void_p(), StoreOptions()
        LIBRARY.telegrad_store_options_init(byref(options), ctypes.sizeof(options))
        options.num_devices = 2
        _library.call("store_create", None, b"local", byref(options), byref(store))
        self.addCleanup(LIBRARY.telegrad_store_close, store)
        for num, dtype in ((9, 0), (10, 1)):
            pair = (Tensor * 2)(Tensor(None, 10, 0, -1, 0), Tensor(None, num, dtype, -1, 0))
            self.assertIn(f"tensor w has 10 elements of dtype 0 on its first device and {num} "
                          f"of {dtype}", self.refused(
                              "store_init", store, 1, (ctypes.c_char_p * 1)(b"w"), pair, None,
                              0, (ctypes.c_uint32 * 1)()))

    def test_tensors_without_data_or_of_another_size(self):
        store, keys = self.store(), (ctypes.c_uint32 * 1)()
        memory = (ctypes.c_float * 10)()
        right = Tensor(ctypes.addressof(memory), 10, 0, -1, 0)
        _library.call("store_init", store, 1, (ctypes.c_char_p * 1)(b"w"), byref(right),
                      None, 0, keys)
        for wrong, text in ((Tensor(None, 10, 0, -1, 0), "without data"),
                            (Tensor(right.data, 9, 0, -1, 0), "tensor w has 40 bytes"),
                            (Tensor(right.data, 10, 77, -1, 0), "dtype 77")):
            self.assertIn(text, self.refused("store_push_pull", store, 1, keys,
                                             byref(wrong), byref(right), None, None, 1))
        self.assertIn("without data", self.refused(
            "store_push_rows", store, 1, keys, byref(Tensor(None, 10, 0, -1, 0)),
            byref(Rows(None, -1)), None, None, 1))

    def store_with(self, updater, name=b"local"):
        store, options = ctypes.c_void_p(), StoreOptions()
        LIBRARY.telegrad_store_options_init(byref(options), ctypes.sizeof(options))
        options.updater = ctypes.cast(updater, ctypes.c_void_p)
        options.updater_data = 77
        if name != b"local":
            return self.refused("store_create", None, name, byref(options), byref(store))
        _library.call("store_create", None, name, byref(options), byref(store))
        self.addCleanup(LIBRARY.telegrad_store_close, store)
        return store

    def test_an_updater_steps_the_weight_or_ends_its_operation(self):
        codes, seen, keys = [0, 9, 0], [], (ctypes.c_uint32 * 1)()
        floats = ctypes.POINTER(ctypes.c_float)

        @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, floats, floats,
                          ctypes.c_int64)
        def step(data, key, gradient, weight, num_elems):
            seen.append((data, key, gradient[0], weight[9], num_elems))
            for i in range(num_elems):
                weight[i] -= gradient[i] / 4
            return codes[len(seen) - 1]

        store = self.store_with(step)
        memory = (ctypes.c_float * 10)(*[8] * 10)
        tensor = Tensor(ctypes.addressof(memory), 10, 0, -1, 0)
        name = (ctypes.c_char_p * 1)(b"w")
        self.assertIn("an updater (StoreOptions::updater) needs initial values", self.refused(
            "store_init", store, 1, name, byref(tensor), None, 0, keys))
        _library.call("store_init", store, 1, name, byref(tensor), None, 1, keys)
        rest = (1, keys, byref(tensor), byref(tensor), None, None, 0)
        _library.call("store_push_pull", store, *rest)  # 8 of 8
        self.assertEqual(list(memory), [6] * 10)
        self.assertIn("updater of tensor w: it returned 9",
                      self.refused("store_push_pull", store, *rest))
        memory[:] = [4] * 10
        _library.call("store_push_pull", store, *rest)
        self.assertEqual(list(memory), [5] * 10)
        self.assertEqual(seen, [(77, 0, 8, 8, 10), (77, 0, 6, 6, 10), (77, 0, 4, 6, 10)])
        for name in (b"dist_sync", b"dist_async", b"allreduce"):
            self.assertIn("takes no updater: servers run no function",
                          self.store_with(step, name))

    def test_a_tensor_without_elements_needs_no_address(self):
        store, keys = self.store(), (ctypes.c_uint32 * 1)()
        nothing = Tensor(None, 0, 0, -1, 0)
        _library.call("store_init", store, 1, (ctypes.c_char_p * 1)(b"w"), byref(nothing),
                      None, 1, keys)
        _library.call("store_push_pull", store, 1, keys, byref(nothing), byref(nothing), None,
                      None, 0)
        self.assertIn("a tensor of -1 elements", self.refused(
            "store_push_pull", store, 1, keys, byref(Tensor(None, -1, 0, -1, 0)),
            byref(nothing), None, None, 0))


if __name__ == "__main__":
    unittest.main()
