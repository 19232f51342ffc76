"""A link between this host and an emulated one that loses, repeats, delays or alters packets.

It is a pair of TUN devices and a thread that carries packets between them. What it alters has a
right checksum of TCP again, as of a switch whose memory is bad.
"""

import ctypes
import fcntl
import os
import random
import select
import struct
import threading

import hosts

HERE, THERE = "10.78.0.1", "10.78.0.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
TCP = 6


def device(host):
    """A TUN device of that host, or of this one; its descriptor."""
    made = []

    def make():
        if host:  # of this thread alone
            with open(f"/run/netns/{host}") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                    raise OSError(ctypes.get_errno(), "setns")
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"faulty", IFF_TUN | IFF_NO_PI))
        made.append(tun)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    enter = ["nsenter", f"--net=/run/netns/{host}"] if host else []
    for words in (["addr", "add", f"{THERE if host else HERE}/24", "dev", "faulty"],
                  ["link", "set", "faulty", "up"]):
        hosts.run(*enter, "ip", *words)
    return made[0]


def altered(packet, chance):
    """A bit of what a TCP segment carries is another one; the checksum fits."""
    packet = bytearray(packet)
    start = (packet[0] & 15) * 4
    data = start + (packet[start + 12] >> 4) * 4
    at = chance.randrange(data, len(packet))
    word = at - (at - start) % 2  # of the checksum
    if word + 1 == len(packet):
        at = word = word - 2
    before, = struct.unpack_from(">H", packet, word)
    packet[at] ^= 1 << chance.randrange(8)
    after, = struct.unpack_from(">H", packet, word)
    total = (~struct.unpack_from(">H", packet, start + 16)[0] & 0xFFFF) + (~before & 0xFFFF) + after
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into(">H", packet, start + 16, ~total & 0xFFFF)
    return bytes(packet)


class FaultyLink:
    """`lose`, `repeat`, `delay`: of each packet, how likely; `alter`: every n-th of
    the long ones, but from and to the port `spare`."""

    LONG = 1000  # bytes of a packet

    def __init__(self, host, seed=7, lose=0, repeat=0, delay=0, alter=0, spare=0):
        self.chances = {"lost": lose, "repeated": repeat, "late": delay}
        self.alter, self.spare, self.chance = alter, spare, random.Random(seed)
        self.count = dict.fromkeys(["all", "long", "altered", *self.chances], 0)
        self.devices = [device(None), device(host)]
        self.reads, self.writes = os.pipe()
        self.thread = threading.Thread(target=self.carry)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.writes)
        self.thread.join()
        for each in (self.reads, *self.devices):
            os.close(each)

    def fate(self):
        where = self.chance.random()
        for fate, likely in self.chances.items():
            if where < likely:
                return fate
            where -= likely
        return "carried"

    def is_long(self, packet):
        ports = struct.unpack_from(">HH", packet, (packet[0] & 15) * 4)
        return len(packet) >= self.LONG and packet[9] == TCP and self.spare not in ports

    def carry(self):
        late = {each: None for each in self.devices}
        while True:
            ready, _, _ = select.select([self.reads, *self.devices], [], [])
            if self.reads in ready:
                return
            for source in ready:
                sink = self.devices[source == self.devices[0]]
                packet = os.read(source, 65536)
                fate = self.fate()
                self.count["all"] += 1
                if fate in self.count:
                    self.count[fate] += 1
                if self.alter and self.is_long(packet):
                    self.count["long"] += 1
                    if self.count["long"] % self.alter == 0:
                        packet = altered(packet, self.chance)
                        self.count["altered"] += 1
                if fate == "late" and late[sink] is None:
                    late[sink] = packet  # it leaves behind the next one
                    continue
                for each in {"lost": [], "repeated": [packet] * 2}.get(fate, [packet]):
                    os.write(sink, each)
                if late[sink] is not None:
                    os.write(sink, late[sink])
                    late[sink] = None
