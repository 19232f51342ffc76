#include "trainer/checkpoint/worker_part.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "base/status_macros.h"
#include "kvstore/states.h"
#include "trainer/checkpoint/resharding.h"
#include "trainer/run/device_room.h"
#include "trainer/run/replica_steps.h"

namespace telegrad {
namespace {

// Bounds of texts whose size the reader does not know, for tensors of so many
// elements: residuals, momenta, means; and some bytes for each chunk.
constexpr uint64_t kMostTextBytes = uint64_t{1} << 20;
constexpr uint64_t kMostBytesPerElem = 64;

// Calls `use(name, network, memory, elements)` for weights and buffers of a
// worker, and `use_state(name, replica, index)` for what steps them, in the
// order of the file.
template <typename Use, typename UseState>
absl::Status ForEachTensor(std::span<Replica> replicas, const Use& use,
                           const UseState& use_state) {
  for (size_t device = 0; device < replicas.size(); ++device) {
    Replica& replica = replicas[device];
    Network& network = *replica.network;
    const auto& parameters = network.parameters();
    const std::string prefix = absl::StrCat("device", device, "/");
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& each = parameters[i];
      RETURN_IF_ERROR(use(prefix + "weight/" + each.name, network, each.weight,
                          each.num_elements));
      if (i >= replica.states.size()) continue;
      RETURN_IF_ERROR(use_state(prefix + "optimizer/" + each.name, replica, i));
    }
    for (const Parameter& each : network.buffers()) {
      RETURN_IF_ERROR(use(prefix + "buffer/" + each.name, network, each.weight,
                          each.num_elements));
    }
  }
  return absl::OkStatus();
}

absl::string_view TextOf(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

// Memory [n] f32 of the network's device, by way of the host's.
absl::Status WriteArray(const std::string& name, Network& network,
                        const float* from, size_t n, PartWriter& writer) {
  std::vector<float> values(n);
  network.Read(from, n, values.data());
  RETURN_IF_ERROR(network.status());
  return writer.Add(name, TextOf({values.data(), 4 * n}));
}

absl::Status ReadArray(const std::string& name, Network& network, float* to,
                       size_t n, PartReader& reader) {
  RETURN_IF_ERROR(reader.Expect(name, 4 * n));
  std::vector<float> values(n);
  RETURN_IF_ERROR(reader.Read(values.data(), 4 * n));
  network.Write(values.data(), n, to);
  return network.status();
}

// Steps so far as u64, then each array as a field of its own.
absl::Status WriteState(const std::string& name, Network& network,
                        const OptimizerState& state, PartWriter& writer) {
  std::byte steps[8];
  StoreLittleEndian(steps, state.num_steps());
  RETURN_IF_ERROR(writer.Add(name, TextOf({steps, sizeof(steps)})));
  const std::vector<ConstBytes> arrays = state.arrays();
  for (size_t i = 0; i < arrays.size(); ++i) {
    RETURN_IF_ERROR(WriteArray(absl::StrCat(name, "/", i), network,
                               reinterpret_cast<const float*>(arrays[i].data),
                               arrays[i].size / 4, writer));
  }
  return absl::OkStatus();
}

absl::Status ReadState(const std::string& name, Network& network,
                       size_t num_elems, OptimizerKind kind, PartReader& reader,
                       OptimizerState& state) {
  std::byte steps[8];
  RETURN_IF_ERROR(reader.Expect(name, sizeof(steps)));
  RETURN_IF_ERROR(reader.Read(steps, sizeof(steps)));
  const auto num_steps = LoadLittleEndian<uint64_t>(steps);
  for (size_t i = 0; i < NumStateArrays(kind); ++i) {
    ASSIGN_OR_RETURN(Buffer array, MakeRoom(network, 4 * num_elems));
    if (num_steps > 0) {
      RETURN_IF_ERROR(ReadArray(absl::StrCat(name, "/", i), network,
                                array.as<float>(), num_elems, reader));
    }
    state.Restore(num_steps, i, std::move(array));
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
      [&](const std::string& name, Network& network, float* values, size_t n) {
        return ReadArray(name, network, values, n, reader);
      },
      [&](const std::string& name, Replica& replica, size_t i) {
        Network& network = *replica.network;
        return ReadState(name, network, network.parameters()[i].num_elements,
                         KindOf(replica, i, part.kind), reader,
                         replica.states[i]);
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
      [&](const std::string& name, Network& network, const float* values,
          size_t n) { return WriteArray(name, network, values, n, writer); },
      [&](const std::string& name, Replica& replica, size_t i) {
        return WriteState(name, *replica.network, replica.states[i], writer);
      }));
  Network& first = *part.replicas[0].network;
  const std::vector<Parameter>& parameters = ParametersOf(part);
  for (size_t i = 0; part.alone != nullptr && i < parameters.size(); ++i) {
    const LocalSteps::Anchor anchor = part.alone->anchor(i);
    const std::string name = absl::StrCat("local/", parameters[i].name);
    RETURN_IF_ERROR(WriteArray(name, first, anchor.weights,
                               parameters[i].num_elements, writer));
    RETURN_IF_ERROR(WriteState(name + "/outer", first, anchor.outer, writer));
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
  Network& first = *part.replicas[0].network;
  const std::vector<Parameter>& parameters = ParametersOf(part);
  uint64_t all_elems = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    all_elems += parameters[i].num_elements;
    if (part.alone == nullptr) continue;
    const LocalSteps::Anchor anchor = part.alone->anchor(i);
    const std::string name = absl::StrCat("local/", parameters[i].name);
    RETURN_IF_ERROR(ReadArray(name, first, anchor.weights,
                              parameters[i].num_elements, reader));
    RETURN_IF_ERROR(ReadState(name + "/outer", first,
                              parameters[i].num_elements, OptimizerKind::kNag,
                              reader, anchor.outer));
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
