#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/endian.h"
#include "kvstore/engine/codec/settings.h"

// What encoders and sums keep of a tensor between rounds, as bytes that a file
// or a frame can hold: little-endian, docs/checkpoints.md tells every byte.
namespace telegrad {

class StateWriter {
 public:
  template <typename T>
  void Put(T value) {
    std::byte bytes[sizeof(T)];
    StoreLittleEndian(bytes, value);
    PutBytes({bytes, sizeof(T)});
  }
  void PutBytes(ConstBytes bytes);
  void PutSettings(const ChunkSettings& settings);
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// Reads bytes that anybody may have written: what is not there reads as 0, and
// Finish tells it.
class StateReader {
 public:
  explicit StateReader(absl::string_view text) : rest_(text) {}
  template <typename T>
  T Take() {
    const ConstBytes bytes = TakeBytes(sizeof(T));
    return bytes.size == 0 ? T{} : LoadLittleEndian<T>(bytes.data);
  }
  // None where fewer are left.
  ConstBytes TakeBytes(uint64_t size);
  // A scale that can be, of a mode that the caller checks.
  ChunkSettings TakeSettings();
  // DataLoss where something was missing or no number of its kind, or more is
  // there.
  absl::Status Finish() const;

 private:
  absl::string_view rest_;
  bool is_wrong_ = false;
};

// A tensor's: sections, each of an encoder or of a chunk's sum.
struct CodecSections {
  uint64_t rounds = 0;  // rounds that have ended
  std::vector<absl::string_view> sections = {};
};
std::string CodecSectionsText(uint64_t rounds,
                              const std::vector<std::string>& sections);
// DataLoss for damage, and unless there are `num_sections`; InvalidArgument for
// another version. What it names lies in `text`.
absl::StatusOr<CodecSections> ReadCodecSections(absl::string_view text,
                                                size_t num_sections);

}  // namespace telegrad
