#include "kvstore/states.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr char kMagic[] = "TGRS";
constexpr uint16_t kVersion = 1;
constexpr size_t kHeadBytes = 16;
constexpr size_t kTensorBytes = 24;
constexpr size_t kCrcBytes = 4;

template <typename T>
T Read(absl::string_view text, size_t at) {
  return LoadLittleEndian<T>(
      reinterpret_cast<const std::byte*>(text.data() + at));
}

template <typename T>
void Append(T value, std::string& text) {
  std::byte bytes[sizeof(T)];
  StoreLittleEndian(bytes, value);
  text.append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("optimizer states: ", what));
}

// Takes one tensor off the front of `text`.
absl::StatusOr<TensorState> ReadTensor(absl::string_view& text) {
  if (text.size() < kTensorBytes || text[0] != 'T') {
    return Damaged("no tensor where one should be");
  }
  const auto num_arrays = Read<uint8_t>(text, 1);
  const auto name_bytes = Read<uint16_t>(text, 2);
  TensorState tensor;
  tensor.num_elems = Read<uint64_t>(text, 8);
  tensor.num_steps = Read<uint64_t>(text, 16);
  text.remove_prefix(kTensorBytes);
  const uint64_t most = text.size() / 4;
  if (num_arrays > kMaxStateArrays || name_bytes > text.size() ||
      (num_arrays > 0 && tensor.num_elems > most) ||
      num_arrays * tensor.num_elems * 4 > text.size() - name_bytes) {
    return Damaged("a tensor is longer than the text");
  }
  tensor.name = std::string(text.substr(0, name_bytes));
  text.remove_prefix(name_bytes);
  for (int i = 0; i < num_arrays; ++i) {
    const size_t num_bytes = 4 * tensor.num_elems;
    Buffer& array = tensor.arrays.emplace_back(num_bytes);
    if (num_bytes > 0) std::memcpy(array.data(), text.data(), num_bytes);
    text.remove_prefix(num_bytes);
  }
  return tensor;
}

}  // namespace

absl::StatusOr<std::string> CodecStates::RecutCodec(Key, const OldCodecs&) {
  return absl::UnimplementedError("the store is one worker's");
}

absl::StatusOr<double> CodecStates::HeldNorm(Key, const OldCodecs&) {
  return absl::UnimplementedError("the store is one worker's");
}

size_t NumStateArrays(OptimizerKind kind) {
  const bool is_adam =
      kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
  return is_adam ? 2 : 1;
}

std::string SerializeStates(const OptimizerStates& states) {
  std::string text = kMagic;
  Append(kVersion, text);
  Append(static_cast<uint8_t>(states.kind), text);
  Append(uint8_t{0}, text);
  Append(static_cast<uint32_t>(states.tensors.size()), text);
  Append(uint32_t{0}, text);
  for (const TensorState& tensor : states.tensors) {
    text.push_back('T');
    Append(static_cast<uint8_t>(tensor.arrays.size()), text);
    Append(static_cast<uint16_t>(tensor.name.size()), text);
    Append(uint32_t{0}, text);
    Append(tensor.num_elems, text);
    Append(tensor.num_steps, text);
    text += tensor.name;
    for (const Buffer& array : tensor.arrays) {
      if (array.size() == 0) continue;
      text.append(reinterpret_cast<const char*>(array.data()), array.size());
    }
  }
  Append(Crc32c(text.data(), text.size()), text);
  return text;
}

absl::StatusOr<OptimizerStates> ParseStates(absl::string_view text) {
  if (text.empty()) {
    return Damaged("the file is empty, or worker/0 could not read it");
  }
  if (text.size() < kHeadBytes + kCrcBytes || text.substr(0, 4) != kMagic) {
    return Damaged("the file is none that a store has saved");
  }
  const absl::string_view whole = text.substr(0, text.size() - kCrcBytes);
  if (Crc32c(whole.data(), whole.size()) !=
      Read<uint32_t>(text, whole.size())) {
    return Damaged("the text fails its check");
  }
  const auto version = Read<uint16_t>(text, 4);
  const auto kind = Read<uint8_t>(text, 6);
  if (version != kVersion || kind > kMaxOptimizerKind) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer states of version ", version, ", optimizer ",
                     kind, "; this build reads version ", kVersion,
                     ", optimizers 0 to ", kMaxOptimizerKind));
  }
  OptimizerStates states;
  states.kind = static_cast<OptimizerKind>(kind);
  const auto num_tensors = Read<uint32_t>(text, 8);
  absl::string_view rest = whole.substr(kHeadBytes);
  for (uint32_t i = 0; i < num_tensors; ++i) {
    ASSIGN_OR_RETURN(TensorState tensor, ReadTensor(rest));
    states.tensors.push_back(std::move(tensor));
  }
  if (!rest.empty()) return Damaged("more than its tensors");
  return states;
}

absl::Status CheckStates(const OptimizerStates& states, OptimizerKind kind,
                         const std::vector<TensorSpec>& tensors) {
  if (states.kind != kind || states.tensors.size() != tensors.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("states of ", states.tensors.size(), " tensors with ",
                     ToString(states.kind), " for a store of ", tensors.size(),
                     " with ", ToString(kind)));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorState& state = states.tensors[i];
    const bool has_arrays = state.arrays.size() ==
                            (state.num_steps == 0 ? 0 : NumStateArrays(kind));
    if (state.name == tensors[i].name &&
        state.num_elems == tensors[i].num_elems && has_arrays) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("states of tensor '", state.name, "' with ",
                     state.num_elems, " elements in ", state.arrays.size(),
                     " arrays after ", state.num_steps, " steps, for tensor ",
                     tensors[i].name, " with ", tensors[i].num_elems));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
