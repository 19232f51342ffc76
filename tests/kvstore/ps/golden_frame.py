"""Computes the checks of wire_test.cc's golden frame, independently of C++."""
import struct


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


header = struct.pack(
    "<4sBBHQQIIIIHHHhBBBBBBh", b"TGR1", 3, 10, 1, 0x0102030405060708, 9, 10,
    11, 12, 5, 13, 14, 15, -7, 1, 1, 2, 0, 0, 0, -6)
assert len(header) == 56
payload_crc = struct.pack("<I", crc32c(header + b"hello"))
header_crc = struct.pack("<I", crc32c(header + payload_crc))
print((payload_crc + header_crc).hex())
