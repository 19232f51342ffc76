// libFuzzer: states of optimizers, with a check that is right.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/crc32c.h"
#include "kvstore/states.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text("TGRS\x01", 5);
  text.append(reinterpret_cast<const char*>(data), size);
  const uint32_t crc = telegrad::Crc32c(text.data(), text.size());
  text.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  const auto states = telegrad::ParseStates(text);
  if (!states.ok()) return 0;
  // What was read is what would be written, but for what is ignored.
  const auto again = telegrad::ParseStates(telegrad::SerializeStates(*states));
  if (!again.ok() || again->tensors.size() != states->tensors.size()) {
    std::abort();
  }
  for (size_t i = 0; i < states->tensors.size(); ++i) {
    const telegrad::TensorState& a = states->tensors[i];
    const telegrad::TensorState& b = again->tensors[i];
    if (a.name != b.name || a.num_elems != b.num_elems ||
        a.num_steps != b.num_steps || a.arrays.size() != b.arrays.size()) {
      std::abort();
    }
  }
  return 0;
}
