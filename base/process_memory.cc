#include "base/process_memory.h"

#include <malloc.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>

namespace telegrad {

bool ReadProcess(int process, Bytes target, uint64_t address) {
  while (target.size > 0) {
    const iovec local = {target.data, target.size};
    // An address of the other process; not a pointer here.
    const iovec remote = {reinterpret_cast<void*>(address), target.size};
    const ssize_t got = process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (got <= 0) return false;
    const auto part = static_cast<size_t>(got);
    target = {target.data + part, target.size - part};
    address += part;
  }
  return true;
}

bool IsReadableByProcesses(ConstBytes memory) {
  if (memory.size == 0) return true;
  std::byte byte{};
  const auto first = reinterpret_cast<uint64_t>(memory.data);
  return ReadProcess(getpid(), {&byte, 1}, first) &&
         ReadProcess(getpid(), {&byte, 1}, first + memory.size - 1);
}

void ReturnFreeMemory() { malloc_trim(0); }

}  // namespace telegrad
