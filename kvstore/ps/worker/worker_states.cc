#include "kvstore/ps/worker/worker_states.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/state/codec_state.h"
#include "kvstore/ps/server/chunk_state.h"

namespace telegrad {
namespace {

absl::Status NotWhole(absl::string_view name, uint32_t chunk) {
  return absl::InvalidArgumentError(
      absl::StrCat("state of tensor ", name, ", chunk ", chunk,
                   ", does not go with that of the chunks before"));
}

}  // namespace

absl::Status WorkerStates::CheckIdle() const {
  RETURN_IF_ERROR(failure_.status());
  if (config_.optimizer.update_on == UpdateOn::kWorker) {
    return absl::FailedPreconditionError(
        "states of a store whose optimizer is on the workers");
  }
  return tensors_.CheckIdle("states");
}

absl::StatusOr<std::string> WorkerStates::Save() {
  RETURN_IF_ERROR(CheckIdle());
  RETURN_IF_ERROR(group_.Gather("states", "").status());
  std::string text;
  if (group_.rank() == 0) {
    absl::StatusOr<OptimizerStates> states = Fetch();
    if (!states.ok()) {
      failure_.FailJob(states.status());  // the others wait for us
      return states.status();
    }
    text = SerializeStates(*states);
  }
  RETURN_IF_ERROR(group_.Gather("states saved", "").status());
  return text;
}

absl::Status WorkerStates::CheckCodec(Key key) const {
  if (traits_.is_async) {
    return absl::UnimplementedError(absl::StrCat(
        "what codecs keep in a store of type ", traits_.type,
        ", whose workers have no rounds together, cannot be saved yet"));
  }
  RETURN_IF_ERROR(CheckKey(key, tensors_.size()));
  const WorkerTensor& tensor = tensors_[key];
  return tensor.turns.CheckIdle("state", tensor.spec());
}

absl::StatusOr<std::string> WorkerStates::SaveOwnCodec(Key key) {
  RETURN_IF_ERROR(CheckCodec(key));
  const WorkerTensor& tensor = tensors_[key];
  ASSIGN_OR_RETURN(const std::string own, tensor.codec->Save());
  return CodecSectionsText(tensor.turns.rounds(), {own});
}

absl::StatusOr<std::string> WorkerStates::SaveCodec(Key key) {
  RETURN_IF_ERROR(failure_.status());
  RETURN_IF_ERROR(CheckCodec(key));
  WorkerTensor& tensor = tensors_[key];
  std::vector<std::string> sections;
  ASSIGN_OR_RETURN(sections.emplace_back(), tensor.codec->Save());
  for (const auto& chunk : tensor.chunks) {
    if (group_.rank() != 0) break;
    const Chunk& plan = chunk->plan();
    const FrameHeader ask{.type = FrameType::kAskState,
                          .step = kCodecState,
                          .key = key,
                          .chunk = plan.index};
    ASSIGN_OR_RETURN(const Buffer answer, questions_.Ask(ask, "", plan.server));
    sections.emplace_back(answer.as<char>(), answer.size());
  }
  return CodecSectionsText(tensor.turns.rounds(), sections);
}

absl::Status WorkerStates::LoadCodec(Key key, absl::string_view text) {
  RETURN_IF_ERROR(failure_.status());
  RETURN_IF_ERROR(CheckCodec(key));
  WorkerTensor& tensor = tensors_[key];
  const size_t num_sums = group_.rank() == 0 ? tensor.chunks.size() : 0;
  ASSIGN_OR_RETURN(const CodecSections read,
                   ReadCodecSections(text, 1 + num_sums));
  RETURN_IF_ERROR(tensor.codec->Load(read.sections[0]));
  for (size_t i = 0; i < num_sums; ++i) {
    const Chunk& plan = tensor.chunks[i]->plan();
    const FrameHeader give{.type = FrameType::kSetState,
                           .step = kCodecState,
                           .key = key,
                           .chunk = plan.index};
    RETURN_IF_ERROR(
        questions_.Ask(give, std::string(read.sections[1 + i]), plan.server)
            .status());
  }
  tensor.turns.set_rounds(read.rounds);
  return absl::OkStatus();
}

absl::StatusOr<Recut> WorkerStates::RecutOf(Key key,
                                            const OldCodecs& old) const {
  RETURN_IF_ERROR(failure_.status());
  RETURN_IF_ERROR(CheckCodec(key));
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i <= key; ++i) {
    specs.push_back(tensors_[i].spec());
  }
  const auto layout = [&](int servers) -> absl::StatusOr<TensorLayout> {
    ASSIGN_OR_RETURN(std::vector<TensorLayout> plan,
                     MakeShardPlan(specs, servers, config_.chunk_elems,
                                   config_.compression));
    return std::move(plan.back());
  };
  Recut recut{.spec = specs.back(), .config = &engine_};
  ASSIGN_OR_RETURN(recut.from, layout(old.num_servers));
  ASSIGN_OR_RETURN(recut.to, layout(group_.num_servers()));
  return recut;
}

absl::StatusOr<std::string> WorkerStates::RecutCodec(Key key,
                                                     const OldCodecs& old) {
  ASSIGN_OR_RETURN(const Recut recut, RecutOf(key, old));
  return RecutCodecs(recut, old, group_.rank() == 0);
}

absl::StatusOr<double> WorkerStates::HeldNorm(Key key, const OldCodecs& old) {
  ASSIGN_OR_RETURN(const Recut recut, RecutOf(key, old));
  return telegrad::HeldNorm(recut, old);
}

absl::StatusOr<OptimizerStates> WorkerStates::Fetch() {
  OptimizerStates states{.kind = config_.optimizer.kind, .tensors = {}};
  for (size_t key = 0; key < tensors_.size(); ++key) {
    const TensorSpec& spec = tensors_[key].spec();
    states.tensors.push_back({.name = spec.name,
                              .num_elems = spec.num_elems,
                              .num_steps = 0,
                              .arrays = {}});
    RETURN_IF_ERROR(FetchTensor(static_cast<Key>(key), states.tensors.back()));
  }
  return states;
}

absl::Status WorkerStates::FetchTensor(Key key, TensorState& state) {
  size_t num_arrays = 1;  // until a server says it
  for (const auto& chunk : tensors_[key].chunks) {
    const Chunk& plan = chunk->plan();
    for (size_t i = 0; i < num_arrays; ++i) {
      FrameHeader ask{.type = FrameType::kAskState,
                      .step = i,
                      .key = key,
                      .chunk = plan.index};
      ASSIGN_OR_RETURN(const Buffer answer,
                       questions_.Ask(ask, "", plan.server));
      ASSIGN_OR_RETURN(const ChunkState part,
                       ReadChunkState(answer.view(), plan.num_elems));
      if (plan.index == 0 && i == 0) {
        state.num_steps = part.num_steps;
        num_arrays = part.num_arrays;
        for (size_t n = 0; n < num_arrays; ++n) {
          state.arrays.emplace_back(4 * state.num_elems);
        }
      }
      if (part.num_steps != state.num_steps ||
          part.num_arrays != state.arrays.size()) {
        return NotWhole(state.name, plan.index);
      }
      if (part.num_arrays == 0) break;
      std::memcpy(state.arrays[i].as<float>() + plan.begin, part.values.data,
                  part.values.size);
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerStates::Load(absl::string_view text) {
  RETURN_IF_ERROR(CheckIdle());
  RETURN_IF_ERROR(group_.Gather("states", "").status());
  absl::Status status;
  if (group_.rank() == 0) {
    std::vector<TensorSpec> tensors;
    for (size_t key = 0; key < tensors_.size(); ++key) {
      tensors.push_back(tensors_[key].spec());
    }
    const absl::StatusOr<OptimizerStates> states = ParseStates(text);
    status = states.status();
    if (status.ok()) {
      status = CheckStates(*states, config_.optimizer.kind, tensors);
    }
    if (status.ok()) {
      status = Send(*states);
      if (!status.ok()) failure_.FailJob(status);
    }
  }
  // What is refused is refused by all.
  ASSIGN_OR_RETURN(
      const std::vector<std::string> verdicts,
      group_.Gather("states loaded", std::string(status.message())));
  if (!status.ok() || verdicts[0].empty()) return status;
  return absl::InvalidArgumentError(absl::StrCat("worker/0: ", verdicts[0]));
}

absl::Status WorkerStates::Send(const OptimizerStates& states) {
  for (size_t key = 0; key < states.tensors.size(); ++key) {
    const TensorState& state = states.tensors[key];
    for (const auto& chunk : tensors_[key].chunks) {
      const Chunk& plan = chunk->plan();
      // Without arrays one frame takes them away.
      for (size_t i = 0; i < std::max<size_t>(1, state.arrays.size()); ++i) {
        const ConstBytes values =
            state.arrays.empty()
                ? ConstBytes()
                : ConstBytes(state.arrays[i].data() + 4 * plan.begin,
                             4 * plan.num_elems);
        FrameHeader give{.type = FrameType::kSetState,
                         .step = i,
                         .key = static_cast<Key>(key),
                         .chunk = plan.index};
        RETURN_IF_ERROR(questions_
                            .Ask(give,
                                 ChunkStateText(state.num_steps,
                                                state.arrays.size(), values),
                                 plan.server)
                            .status());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace telegrad
