"""Integers where the library reads and writes them."""
from __future__ import annotations

import ctypes


class Numbers:
    """Of 32 bits, by NumPy's protocol, without NumPy."""

    def __init__(self, size: int) -> None:
        self.memory = (ctypes.c_int32 * size)()
        self.__array_interface__ = {
            "version": 3, "typestr": "<i4", "shape": (size,),
            "data": (ctypes.addressof(self.memory), False)}
