#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace telegrad {

// Copies `target.size` bytes at `address` of another process of this machine
// into `target`, once, without its doing. False: it is gone, has no such
// memory, or the kernel does not permit it (ptrace(2), process_vm_readv(2)).
bool ReadProcess(int process, Bytes target, uint64_t address);

// Whether a process that may can read our `memory` so: what a device's driver
// has mapped cannot be, at its first and last byte.
bool IsReadableByProcesses(ConstBytes memory);

// Gives what is free in malloc's arenas back to the system; a few milliseconds.
// An arena keeps what its threads have freed, in a training some 3 MB, also
// when they have ended; there are up to 8 for each processor.
void ReturnFreeMemory();

}  // namespace telegrad
