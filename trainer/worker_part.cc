#include "trainer/worker_part.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/status_macros.h"
#include "kvstore/states.h"
#include "trainer/resharding.h"

namespace telegrad {
namespace {

// Bounds of texts whose size the reader does not know, for tensors of so many
// elements: residuals, momenta, means; and some bytes for each chunk.
constexpr uint64_t kMostTextBytes = uint64_t{1} << 20;
constexpr uint64_t kMostBytesPerElem = 64;

// Calls `use(name, memory, bytes)` for weights and buffers of a worker, and
// `use_state(name, state, elements)` for what steps them, in the order of the
// file.
template <typename Use, typename UseState>
absl::Status ForEachTensor(std::span<Replica> replicas, const Use& use,
                           const UseState& use_state) {
  for (size_t device = 0; device < replicas.size(); ++device) {
    Replica& replica = replicas[device];
    const auto& parameters = replica.network->parameters();
    const std::string prefix = absl::StrCat("device", device, "/");
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& each = parameters[i];
      RETURN_IF_ERROR(use(prefix + "weight/" + each.name, each.weight,
                          4 * each.num_elements));
      if (i >= replica.states.size()) continue;
      RETURN_IF_ERROR(use_state(prefix + "optimizer/" + each.name,
                                replica.states[i], each.num_elements));
    }
    for (const Parameter& each : replica.network->buffers()) {
      RETURN_IF_ERROR(use(prefix + "buffer/" + each.name, each.weight,
                          4 * each.num_elements));
    }
  }
  return absl::OkStatus();
}

absl::string_view TextOf(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

// Steps so far as u64, then each array as a field of its own.
absl::Status WriteState(const std::string& name, const OptimizerState& state,
                        PartWriter& writer) {
  std::byte steps[8];
  StoreLittleEndian(steps, state.num_steps());
  RETURN_IF_ERROR(writer.Add(name, TextOf({steps, sizeof(steps)})));
  const std::vector<ConstBytes> arrays = state.arrays();
  for (size_t i = 0; i < arrays.size(); ++i) {
    RETURN_IF_ERROR(writer.Add(absl::StrCat(name, "/", i), TextOf(arrays[i])));
  }
  return absl::OkStatus();
}

absl::Status ReadState(const std::string& name, size_t num_elems,
                       OptimizerKind kind, PartReader& reader,
                       OptimizerState& state) {
  std::byte steps[8];
  RETURN_IF_ERROR(reader.Expect(name, sizeof(steps)));
  RETURN_IF_ERROR(reader.Read(steps, sizeof(steps)));
  const auto num_steps = LoadLittleEndian<uint64_t>(steps);
  state = OptimizerState();
  for (size_t i = 0; num_steps > 0 && i < NumStateArrays(kind); ++i) {
    const Buffer array(4 * num_elems);
    RETURN_IF_ERROR(reader.Expect(absl::StrCat(name, "/", i), array.size()));
    RETURN_IF_ERROR(reader.Read(array.data(), array.size()));
    state.Restore(num_steps, i, array.view());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const std::string& name,
                                     uint64_t num_elems,
                                     const PartReader::Field& field,
                                     PartReader& reader) {
  if (field.name != name ||
      field.size > kMostTextBytes + kMostBytesPerElem * num_elems) {
    return absl::DataLossError(absl::StrCat("field '", field.name, "' of ",
                                            field.size, " bytes; '", name,
                                            "' was expected"));
  }
  std::string text(static_cast<size_t>(field.size), '\0');
  RETURN_IF_ERROR(reader.Read(text.data(), text.size()));
  return text;
}

absl::StatusOr<std::string> ReadText(const std::string& name,
                                     uint64_t num_elems, PartReader& reader) {
  ASSIGN_OR_RETURN(const PartReader::Field field, reader.Next());
  return ReadText(name, num_elems, field, reader);
}

absl::Status ReadReplicas(const WorkerPart& part, PartReader& reader) {
  return ForEachTensor(
      part.replicas,
      [&](const std::string& name, float* values, size_t num_bytes) {
        const absl::Status expected = reader.Expect(name, num_bytes);
        return expected.ok() ? reader.Read(values, num_bytes) : expected;
      },
      [&](const std::string& name, OptimizerState& state, size_t num_elems) {
        return ReadState(name, num_elems, part.kind, reader, state);
      });
}

const std::vector<Parameter>& ParametersOf(const WorkerPart& part) {
  return part.replicas[0].network->parameters();
}

std::string CodecField(const Parameter& parameter) {
  return absl::StrCat("codec/", parameter.name);
}

}  // namespace

absl::Status WritePart(const WorkerPart& part, absl::string_view optimizer,
                       PartWriter& writer) {
  RETURN_IF_ERROR(ForEachTensor(
      part.replicas,
      [&](const std::string& name, const float* values, size_t num_bytes) {
        return writer.Add(name, TextOf({values, num_bytes}));
      },
      [&](const std::string& name, const OptimizerState& state, size_t) {
        return WriteState(name, state, writer);
      }));
  const std::vector<Parameter>& parameters = ParametersOf(part);
  for (size_t i = 0; part.alone != nullptr && i < parameters.size(); ++i) {
    const LocalSteps::Anchor anchor = part.alone->anchor(i);
    const std::string name = absl::StrCat("local/", parameters[i].name);
    RETURN_IF_ERROR(writer.Add(name, TextOf(anchor.weights)));
    RETURN_IF_ERROR(WriteState(name + "/outer", anchor.outer, writer));
  }
  if (part.store.states() == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(writer.Add("store/optimizer", optimizer));
  CodecStates* const codecs = part.store.states()->codec_states();
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::string text;
    if (codecs != nullptr) {
      ASSIGN_OR_RETURN(text, codecs->SaveCodec(static_cast<Key>(i)));
    }
    RETURN_IF_ERROR(writer.Add(CodecField(parameters[i]), text));
  }
  return absl::OkStatus();
}

absl::Status ReadTensors(const WorkerPart& part, PartReader& reader) {
  RETURN_IF_ERROR(ReadReplicas(part, reader));
  for (;;) {
    ASSIGN_OR_RETURN(const PartReader::Field field, reader.Next());
    if (field.name.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(reader.Skip(field.size));
  }
}

absl::StatusOr<std::string> ReadAll(const WorkerPart& part, PartReader& reader,
                                    Resharding* resharding) {
  RETURN_IF_ERROR(ReadReplicas(part, reader));
  const std::vector<Parameter>& parameters = ParametersOf(part);
  uint64_t all_elems = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    all_elems += parameters[i].num_elements;
    if (part.alone == nullptr) continue;
    const LocalSteps::Anchor anchor = part.alone->anchor(i);
    const std::string name = absl::StrCat("local/", parameters[i].name);
    RETURN_IF_ERROR(reader.Expect(name, anchor.weights.size));
    RETURN_IF_ERROR(reader.Read(anchor.weights.data, anchor.weights.size));
    RETURN_IF_ERROR(ReadState(name + "/outer", parameters[i].num_elements,
                              OptimizerKind::kNag, reader, anchor.outer));
  }
  std::string optimizer;
  if (part.store.states() != nullptr) {
    CodecStates* const codecs = part.store.states()->codec_states();
    ASSIGN_OR_RETURN(optimizer, ReadText("store/optimizer", all_elems, reader));
    for (size_t i = 0; i < parameters.size(); ++i) {
      const uint64_t num_elems =
          parameters[i].num_elements * (1 + part.replicas.size());
      ASSIGN_OR_RETURN(std::string text,
                       ReadText(CodecField(parameters[i]), num_elems, reader));
      if (codecs == nullptr && !text.empty()) {
        return absl::DataLossError(
            "codecs' states of a worker that does not push this time");
      }
      if (codecs == nullptr) continue;
      const auto key = static_cast<Key>(i);
      if (resharding != nullptr) {
        ASSIGN_OR_RETURN(text, resharding->Recut(*codecs, key, parameters[i],
                                                 std::move(text)));
      }
      RETURN_IF_ERROR(codecs->LoadCodec(key, text));
    }
  }
  ASSIGN_OR_RETURN(const PartReader::Field end, reader.Next());
  if (!end.name.empty()) {
    return absl::DataLossError(absl::StrCat("surplus field ", end.name));
  }
  return optimizer;
}

absl::StatusOr<std::string> ReadCodec(const Parameter& parameter,
                                      PartReader& reader) {
  const std::string name = CodecField(parameter);
  for (;;) {
    ASSIGN_OR_RETURN(const PartReader::Field field, reader.Next());
    // The end has no name, and is none of the tensor's.
    if (field.name.empty() || field.name == name) {
      return ReadText(name, 2 * parameter.num_elements, field, reader);
    }
    RETURN_IF_ERROR(reader.Skip(field.size));
  }
}

}  // namespace telegrad
