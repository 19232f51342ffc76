"""Memory as an exchange finds it when others ran just before."""
import contextlib
import mmap

HUGE_PAGE = 2 << 20
# Of one host, in gradients as float32: gradient, sum, residual, what a server
# has of all workers, and what is in sockets.
COPIES = 8
MOST_SHARE = 0.6  # of what is free


def available_bytes():
    with open("/proc/meminfo", encoding="utf-8") as file:
        for line in file:
            name, value = line.split(":")
            if name == "MemAvailable":
                return 1024 * int(value.split()[0])
    return 0


def needed_bytes(hosts, elements, available):
    wanted = hosts * COPIES * 4 * elements
    return int(min(wanted, MOST_SHARE * available)) // HUGE_PAGE * HUGE_PAGE


def touch(hosts, elements):
    """Has the system find so much memory, and frees it: a virtual machine may
    give free memory back to its host, and then gets it again page by page (0.4
    GB/s seen), which made the first large exchange take twice as long."""
    size = needed_bytes(hosts, elements, available_bytes())
    if size == 0:
        return
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as all:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            all.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, mmap.PAGESIZE):
            all[at] = 1
