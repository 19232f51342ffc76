"""libtelegrad.so by ctypes: nothing is compiled against Python."""
from __future__ import annotations

import _thread
import ctypes
import os
import sys
import threading
from ctypes import (POINTER, Structure, byref, c_char, c_char_p, c_double, c_float,
                    c_int32, c_int64, c_uint32, c_uint64, c_void_p, sizeof)
from typing import Any, Callable, Optional

from .errors import Error, UsageError, make_error

ABI = 2
PENDING = -1
NOT_FOUND = 2
TOO_SMALL = 12
SLICE_S = 0.1  # of each wait: a signal is heard between two


class Status(Structure):
    _fields_ = [("code", c_int32), ("exit_code", c_int32), ("dead", c_char * 1024),
                ("message", c_char * 3064)]


class JobOptions(Structure):
    _fields_ = [("size", c_uint32), ("from_launcher", c_int32), ("role", c_int32),
                ("rank", c_int32), ("num_workers", c_int32), ("num_servers", c_int32),
                ("has_scheduler", c_int32), ("servers_here", c_int32),
                ("num_threads", c_int32), ("insecure", c_int32),
                ("scheduler", c_char_p), ("job_id", c_char_p), ("secret", c_char_p),
                ("secret_bytes", c_uint64), ("transport", c_char_p), ("tls", c_char_p),
                ("bind", c_char_p), ("link", c_char_p), ("join_timeout_s", c_double),
                ("dead_timeout_s", c_double), ("operation_timeout_s", c_double),
                ("hosts_part", c_int32), ("metrics_port", c_int32), ("gdr", c_char_p),
                ("tier1", c_char_p), ("metrics_file", c_char_p),
                ("encryption", c_char_p), ("flight_recorder", c_char_p),
                ("elastic_min", c_int32), ("elastic_max", c_int32), ("gpu", c_int32)]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("num_elems", c_int64), ("dtype", c_int32),
                ("device", c_int32), ("stream", c_uint64)]


class Rows(Structure):
    _fields_ = [("rows", c_void_p), ("num", c_int64)]


class Compression(Structure):
    _fields_ = [("size", c_uint32), ("batch_size", c_int32), ("type", c_char_p),
                ("rules", c_char_p), ("threshold", c_char_p), ("reply", c_char_p),
                ("packing", c_char_p), ("nonfinite", c_char_p), ("min_bytes", c_int64),
                ("warmup_steps", c_int64), ("has_guard", c_int32),
                ("momentum_rate", c_float), ("allow", c_char_p), ("momentum", c_char_p)]


class Optimizer(Structure):
    _fields_ = [("size", c_uint32), ("kind", c_int32), ("learning_rate", c_float),
                ("momentum", c_float), ("weight_decay", c_float),
                ("rescale_grad", c_float), ("beta1", c_float), ("beta2", c_float),
                ("epsilon", c_float), ("reserved", c_int32)]


class StoreOptions(Structure):
    _fields_ = [("size", c_uint32), ("num_devices", c_int32), ("max_staleness", c_int64),
                ("updater", c_void_p), ("updater_data", c_void_p),
                ("drop_slowest", c_int32), ("reserved", c_int32)]


class Stats(Structure):
    _fields_ = [("push_raw_bytes", c_int64), ("push_wire_bytes", c_int64),
                ("pull_raw_bytes", c_int64), ("pull_wire_bytes", c_int64),
                ("num_nonfinite", c_int64), ("num_frames", c_int64),
                ("max_staleness", c_int64), ("mean_staleness", c_double), ("num_late", c_int64)]


class OperationsOptions(Structure):
    _fields_ = [("size", c_uint32), ("cache_capacity", c_int32), ("fusion_bytes", c_int64),
                ("cycle_s", c_double), ("stall_warning_s", c_double),
                ("stall_deadline_s", c_double), ("timeline", c_char_p),
                ("marks_cycles", c_int32), ("autotune", c_int32), ("autotune_log", c_char_p),
                ("autotune_warmup", c_int32), ("autotune_steps", c_int32)]


class OperationRequest(Structure):
    _fields_ = [("size", c_uint32), ("operation", c_int32), ("name", c_char_p),
                ("in", Tensor), ("out", Tensor), ("shape", POINTER(c_int64)),
                ("num_dims", c_int32), ("op", c_int32), ("prescale", c_double),
                ("postscale", c_double), ("splits", POINTER(c_int64)),
                ("num_splits", c_int32), ("root", c_int32), ("process_set", c_int32),
                ("group_size", c_int32), ("group", c_uint64), ("codec", c_char_p)]


_H = c_void_p  # a handle
_S = POINTER(Status)
_T = POINTER(Tensor)
_R = POINTER(Rows)
_K = POINTER(c_uint32)
_P = POINTER(c_int32)
_C = POINTER(c_uint64)
PROTOTYPES = {
    "version": (c_char_p, []),
    "abi": (c_int32, []),
    "set_log_level": (None, [c_int32]),
    "job_options_init": (None, [POINTER(JobOptions), c_uint64]),
    "job_start": (c_int32, [POINTER(JobOptions), POINTER(_H), _S]),
    "job_address": (c_char_p, [_H]),
    "job_role": (c_int32, [_H]),
    "job_join": (c_int32, [_H, _S]),
    "job_serve": (c_int32, [_H, c_double, _S]),
    "job_rank": (c_int32, [_H]),
    "job_num_workers": (c_int32, [_H]),
    "job_num_servers": (c_int32, [_H]),
    "job_metrics": (c_int32, [_H, c_char_p, c_uint64, POINTER(c_uint64), _S]),
    "job_metrics_address": (c_char_p, [_H]),
    "job_dump_flight_record": (c_int32, [_H, c_char_p, c_char_p, c_uint64,
                                         POINTER(c_uint64), _S]),
    "job_plan": (c_int32, [_H, c_char_p, c_uint64, POINTER(c_uint64), _S]),
    "job_barrier": (c_int32, [_H, _S]),
    "job_failure": (c_int32, [_H, _S]),
    "job_fail": (None, [_H, c_int32, c_char_p]),
    "job_close": (c_int32, [_H, c_double, _S]),
    "jobs_close_at_exit": (c_int32, [c_int64, POINTER(_H), POINTER(_H), POINTER(c_double), _S]),
    "job_waits_for": (c_int32, [_H, c_char_p, c_uint64, POINTER(c_uint64), _S]),
    "job_need_all": (c_int32, [_H, c_char_p, c_double, _S]),
    "job_let_in": (c_int32, [_H, _S]),
    "job_reconfigure": (c_int32, [_H, _S]),
    "job_epoch": (c_int64, [_H]),
    "job_elder": (c_int32, [_H]),
    "job_share": (c_int32, [_H, c_char_p, c_uint64, POINTER(_H), _S]),
    "store_options_init": (None, [POINTER(StoreOptions), c_uint64]),
    "store_create": (c_int32, [_H, c_char_p, POINTER(StoreOptions), POINTER(_H), _S]),
    "compression_init": (None, [POINTER(Compression), c_uint64]),
    "store_set_compression": (c_int32, [_H, POINTER(Compression), _S]),
    "optimizer_init": (None, [POINTER(Optimizer), c_uint64]),
    "store_set_optimizer": (c_int32, [_H, POINTER(Optimizer), _S]),
    "store_without_momentum": (c_int32, [_H, c_char_p, _S]),
    "store_init": (c_int32, [_H, c_int64, POINTER(c_char_p), _T, POINTER(c_float),
                             c_int32, _K, _S]),
    "store_init_rows": (c_int32, [_H, c_int64, POINTER(c_char_p), _T, POINTER(c_int64),
                                  POINTER(c_float), c_int32, _K, _S]),
    "store_push_pull": (c_int32, [_H, c_int64, _K, _T, _T, _P, _H, c_uint64, _S]),
    "store_push": (c_int32, [_H, c_int64, _K, _T, _P, _H, c_uint64, _S]),
    "store_pull": (c_int32, [_H, c_int64, _K, _T, _P, _H, c_uint64, _S]),
    "store_push_rows": (c_int32, [_H, c_int64, _K, _T, _R, _P, _H, c_uint64, _S]),
    "store_pull_rows": (c_int32, [_H, c_int64, _K, _T, _R, _P, _H, c_uint64, _S]),
    "store_broadcast": (c_int32, [_H, c_int64, _K, c_int32, _T, _H, c_uint64, _S]),
    "bytes_data": (c_void_p, [_H]),
    "bytes_size": (c_uint64, [_H]),
    "bytes_free": (None, [_H]),
    "store_save_states": (c_int32, [_H, POINTER(_H), _S]),
    "store_save_codec": (c_int32, [_H, c_uint32, POINTER(_H), _S]),
    "store_save_own_codec": (c_int32, [_H, c_uint32, POINTER(_H), _S]),
    "store_load_codec": (c_int32, [_H, c_uint32, c_char_p, c_uint64, _S]),
    "store_save_choice": (c_int32, [_H, POINTER(_H), _S]),
    "store_load_choice": (c_int32, [_H, c_char_p, c_uint64, _S]),
    "store_note_step": (c_int32, [_H, c_double, c_double, _S]),
    "store_after_step": (c_int32, [_H, c_double, c_double, c_double, POINTER(_H), _S]),
    "store_load_states": (c_int32, [_H, c_char_p, c_uint64, _S]),
    "store_catch_up": (c_int32, [_H, POINTER(c_int64), _S]),
    "store_take_all": (c_int32, [_H, c_int32, _S]),
    "store_timeline": (c_int32, [_H, c_int32, POINTER(_H), _S]),
    "store_stats": (c_int32, [_H, POINTER(Stats), _S]),
    "store_report": (c_int32, [_H, c_char_p, c_uint64, POINTER(c_uint64), _S]),
    "store_close": (None, [_H]),
    "group_create": (c_int32, [_H, POINTER(_H), _S]),
    "group_allreduce": (c_int32, [_H, _T, c_int32, _S]),
    "group_allreduce_by": (c_int32, [_H, _T, c_int32, c_char_p, _S]),
    "group_broadcast": (c_int32, [_H, _T, c_int32, _S]),
    "group_allgather": (c_int32, [_H, _T, _T, _S]),
    "group_allgatherv": (c_int32, [_H, _T, _T, _C, _S]),
    "group_reduce_scatter": (c_int32, [_H, _T, _T, _C, c_int32, _S]),
    "group_alltoallv": (c_int32, [_H, _T, _C, _T, _C, _S]),
    "group_barrier": (c_int32, [_H, _S]),
    "group_split": (c_int32, [_H, _P, c_int32, POINTER(_H), _S]),
    "group_send": (c_int32, [_H, _T, c_int32, c_uint32, _S]),
    "group_recv": (c_int32, [_H, _T, c_int32, c_uint32, _P, _S]),
    "group_set_timeout": (c_int32, [_H, c_double, _S]),
    "group_start": (c_int32, [_H, c_int32, _T, _T, c_int32, POINTER(_H), _S]),
    "work_wait": (c_int32, [_H, c_double, _S]),
    "work_free": (None, [_H]),
    "group_rank": (c_int32, [_H]),
    "group_size": (c_int32, [_H]),
    "group_free": (None, [_H]),
    "operations_options_init": (None, [POINTER(OperationsOptions), c_uint64]),
    "operation_request_init": (None, [POINTER(OperationRequest), c_uint64]),
    "operations_create": (c_int32, [_H, POINTER(OperationsOptions), POINTER(_H), _S]),
    "operations_start_timeline": (c_int32, [_H, c_char_p, c_int32, _S]),
    "operations_stop_timeline": (c_int32, [_H, _S]),
    "operations_use_store": (c_int32, [_H, _H, _S]),
    "operations_submit": (c_int32, [_H, POINTER(OperationRequest), POINTER(c_int64), _S]),
    "operations_poll": (c_int32, [_H, c_int64, _P, _S]),
    "operations_wait": (c_int32, [_H, c_int64, c_double, _S]),
    "operations_result": (c_int32, [_H, c_int64, POINTER(c_void_p), POINTER(c_int64),
                                    POINTER(c_int64), _S]),
    "operations_release": (c_int32, [_H, c_int64, _S]),
    "operations_cancel": (c_int32, [_H, c_int64, _S]),
    "operations_add_process_set": (c_int32, [_H, _P, c_int32, _P, _S]),
    "operations_remove_process_set": (c_int32, [_H, c_int32, _S]),
    "operations_free": (None, [_H]),
    "queue_create": (c_int32, [POINTER(_H), _S]),
    "queue_next": (c_int32, [_H, c_double, POINTER(c_uint64), _S]),
    "queue_wait_on": (c_int32, [_H, c_uint64, c_uint64, c_double, _S]),
    "queue_cancel": (None, [_H, c_uint64]),
    "queue_free": (None, [_H]),
    "codec_create": (c_int32, [c_char_p, c_int64, c_char_p, POINTER(_H), _S]),
    "codec_max_bytes": (c_uint64, [_H]),
    "codec_residual": (POINTER(c_float), [_H]),
    "codec_encode": (c_int32, [_H, c_void_p, c_void_p, c_uint64, POINTER(c_uint64),
                               POINTER(c_float), _S]),
    "codec_decode": (c_int32, [_H, c_void_p, c_uint64, c_float, c_void_p, _S]),
    "codec_free": (None, [_H]),
    "codec_few_bits": (c_int32, [c_char_p, _P, _P, _S]),
    "codec_wants_normal": (c_int32, [c_char_p, _P, _S]),
    "codec_standard": (c_char_p, [c_int32]),
    "codec_comes_late": (c_int32, [c_char_p, c_double, _P, _S]),
    "fragment_turns": (c_int32, [POINTER(c_uint64), c_uint64, c_int32, c_int32, _P, _S]),
    "about": (c_int32, [c_char_p, c_uint64, POINTER(c_uint64), _S]),
    "topology": (c_int32, [c_char_p, c_uint64, POINTER(c_uint64), _S]),
    "doctor": (c_int32, [c_char_p, c_uint64, POINTER(c_uint64), _S]),
}


def _open() -> Any:
    """$TELEGRAD_LIBRARY, the package's own, or the system's."""
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtelegrad.so")
    path = os.environ.get("TELEGRAD_LIBRARY") or (
        own if os.path.exists(own) else "libtelegrad.so.2")
    try:
        library = ctypes.CDLL(path)
    except OSError as why:
        raise ImportError(
            f"telegrad: {why}; install the wheel (./telegrad wheel), or set "
            "TELEGRAD_LIBRARY to libtelegrad.so of a build") from None
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, "telegrad_" + name)
        function.restype = result
        function.argtypes = arguments
    if library.telegrad_abi() != ABI:
        raise ImportError(
            f"telegrad: {path} has ABI {library.telegrad_abi()}, this package "
            f"needs {ABI}: install both from one release")
    return library


def _is_for_the_launcher() -> bool:
    """Whether this is loaded on the way to `python -m telegrad.launch`."""
    if sys.argv[:1] != ["-m"]:  # what it is while packages around the module are loaded
        return False
    with open("/proc/self/cmdline", "rb") as file:
        return b"telegrad.launch" in file.read().split(b"\0")


class _Unopened:
    """In place of the library for a launcher, which runs where there is none."""

    def __getattr__(self, name: str) -> Callable[..., bytes]:
        return lambda *_: b""


LIBRARY: Any = _Unopened() if _is_for_the_launcher() else _open()
_local = threading.local()


def status() -> Status:
    """This thread's."""
    found: Optional[Status] = getattr(_local, "status", None)
    if found is None:
        found = _local.status = Status()
    return found


def error_of(found: Status) -> Error:
    dead = found.dead.decode("utf-8", "replace")
    return make_error(found.code, found.exit_code,
                      found.message.decode("utf-8", "replace"),
                      tuple(dead.split("\n")) if dead else ())


def call(name: str, *arguments: Any) -> None:
    """Calls it with this thread's status behind the arguments; raises its error."""
    found = status()
    if getattr(LIBRARY, "telegrad_" + name)(*arguments, byref(found)) != 0:
        raise error_of(found)


def text_of(name: str, *arguments: Any) -> str:
    """What a call writes into a buffer."""
    needed = c_uint64()
    size = 1 << 16
    while True:
        buffer = ctypes.create_string_buffer(size)
        found = status()
        code = getattr(LIBRARY, "telegrad_" + name)(*arguments, buffer, size,
                                                    byref(needed), byref(found))
        if code == 0:
            return buffer.value.decode("utf-8")
        if code != TOO_SMALL:
            raise error_of(found)
        size = needed.value


def bytes_of(name: str, *arguments: Any) -> bytes:
    """What a call made."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    try:
        return ctypes.string_at(LIBRARY.telegrad_bytes_data(handle),
                                LIBRARY.telegrad_bytes_size(handle))
    finally:
        LIBRARY.telegrad_bytes_free(handle)


def encoded(text: Optional[str], what: str = "name") -> Optional[bytes]:
    """As C takes it; None stays.

    Raises:
        UsageError: that `what` is no text.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise UsageError(f"{what}={text!r}: a text is wanted")
    return text.encode("utf-8")


def bytes_in(what: str, given: Any) -> bytes:
    """As C takes them.

    Raises:
        UsageError: that `what` is none.
    """
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise UsageError(f"{what} of {type(given).__name__}: bytes are wanted")


_WANTED = {c_char_p: "a text", c_void_p: "bytes", c_int32: "an integer",
           c_int64: "an integer", c_double: "a number", c_float: "a number"}
# Where Python's name of an option is another one than C's.
_SHOWN = {"has_guard": "guard", "weight_decay": "wd"}


def fill(struct: Structure, **values: Any) -> None:
    """Sets fields of options.

    Raises:
        UsageError: a value of another type, or too large, by name.
    """
    kinds = {name: kind for name, kind, *_ in type(struct)._fields_}
    for field, value in values.items():
        kind = kinds[field]
        shown = _SHOWN.get(field, field[:-2] if field.endswith("_s") else field)
        try:
            setattr(struct, field,
                    encoded(value, shown) if kind is c_char_p else value)
        except TypeError:
            raise UsageError(f"{shown}={value!r}: {_WANTED[kind]} is wanted") from None
        if kind in (c_int32, c_int64) and getattr(struct, field) != value:
            raise UsageError(f"{shown}={value!r}: more than {8 * sizeof(kind)} bits hold")


def wait_in_c_by(wait: Optional[Callable[[Callable[[], Any]], Any]]) -> None:
    """On this thread, which is not the main one, `interruptible` calls `work` by it."""
    _local.wait = wait


def interruptible(work: Callable[[], Any],
                  on_interrupt: Callable[[BaseException], None],
                  each_slice: Optional[Callable[[], None]] = None) -> Any:
    """Runs `work`, which waits in C, while Ctrl-C is heard: Python hears no signal
    inside a call of ctypes. `on_interrupt` makes `work` return; it is given what the
    signal raised. `each_slice` is called again and again meanwhile."""
    if each_slice is None and threading.current_thread() is not threading.main_thread():
        wait = getattr(_local, "wait", None)
        return wait(work) if wait else work()
    done = threading.Event()
    result: Any = None
    error: Optional[BaseException] = None

    def run() -> None:
        nonlocal result, error
        try:
            result = work()
        except BaseException as why:  # of the thread that waits
            error = why
        done.set()

    can_start = True
    try:
        try:
            _thread.start_new_thread(run, ())
        except RuntimeError as why:
            if why.__traceback__ is not None and why.__traceback__.tb_next is not None:
                raise  # not of that call, but of a signal's handler
            can_start = False  # the interpreter ends: CPython 3.12 starts no threads then
        while can_start and not done.wait(SLICE_S):
            if each_slice is not None:
                each_slice()
    except BaseException as why:
        on_interrupt(why)
        done.wait(3)
        raise
    if not can_start:
        return work()
    if error is not None:
        raise error
    return result
