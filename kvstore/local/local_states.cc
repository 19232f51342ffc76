#include "kvstore/local/local_states.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/engine/state/codec_state.h"
#include "kvstore/local/local_store.h"

namespace telegrad {

namespace {

template <typename Tensors>
absl::Status CheckIdle(const OptimizerConfig& optimizer,
                       const Tensors& tensors) {
  if (optimizer.update_on == UpdateOn::kWorker) {
    return absl::FailedPreconditionError(
        "states of a store that runs no optimizer; what an updater keeps is "
        "its own");
  }
  for (const auto& tensor : tensors) {
    if (tensor->active == nullptr) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("states within a round of tensor ", tensor->spec.name));
  }
  return absl::OkStatus();
}

template <typename Tensors>
absl::Status CheckIdleKey(Key key, const Tensors& tensors) {
  RETURN_IF_ERROR(CheckKey(key, tensors.size()));
  if (tensors[key]->active == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("state within a round of tensor ", tensors[key]->spec.name));
}

}  // namespace

absl::StatusOr<std::string> LocalStates::SaveCodec(Key key) {
  MutexLock lock(&store_.mutex_);
  RETURN_IF_ERROR(store_.failure_);
  RETURN_IF_ERROR(CheckIdleKey(key, store_.tensors_));
  const auto& tensor = *store_.tensors_[key];
  std::vector<std::string> sections;
  for (const auto& codec : tensor.codecs) {
    ASSIGN_OR_RETURN(sections.emplace_back(), codec->Save());
  }
  for (const ChunkSum& sum : tensor.sums) sections.push_back(sum.Save());
  return CodecSectionsText(tensor.rounds, sections);
}

absl::Status LocalStates::LoadCodec(Key key, absl::string_view text) {
  MutexLock lock(&store_.mutex_);
  RETURN_IF_ERROR(store_.failure_);
  RETURN_IF_ERROR(CheckIdleKey(key, store_.tensors_));
  auto& tensor = *store_.tensors_[key];
  const size_t num_codecs = tensor.codecs.size();
  ASSIGN_OR_RETURN(const CodecSections read,
                   ReadCodecSections(text, num_codecs + tensor.sums.size()));
  for (size_t i = 0; i < num_codecs; ++i) {
    RETURN_IF_ERROR(tensor.codecs[i]->Load(read.sections[i]));
  }
  for (size_t i = 0; i < tensor.sums.size(); ++i) {
    RETURN_IF_ERROR(tensor.sums[i].Load(read.sections[num_codecs + i]));
  }
  tensor.rounds = read.rounds;
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalStates::Save() {
  MutexLock lock(&store_.mutex_);
  RETURN_IF_ERROR(store_.failure_);
  RETURN_IF_ERROR(CheckIdle(store_.config_.optimizer, store_.tensors_));
  OptimizerStates states{.kind = store_.config_.optimizer.kind, .tensors = {}};
  for (const auto& tensor : store_.tensors_) {
    TensorState& state = states.tensors.emplace_back();
    state.name = tensor->spec.name;
    state.num_elems = tensor->spec.num_elems;
    for (ChunkSum& sum : tensor->sums) {
      const OptimizerState& own = sum.weights().state;
      state.num_steps = own.num_steps();
      const std::vector<ConstBytes> arrays = own.arrays();
      while (state.arrays.size() < arrays.size()) {
        state.arrays.emplace_back(4 * state.num_elems);
      }
      for (size_t i = 0; i < arrays.size(); ++i) {
        std::memcpy(state.arrays[i].as<float>() + sum.chunk().begin,
                    arrays[i].data, arrays[i].size);
      }
    }
  }
  return SerializeStates(states);
}

absl::Status LocalStates::Load(absl::string_view text) {
  ASSIGN_OR_RETURN(const OptimizerStates states, ParseStates(text));
  MutexLock lock(&store_.mutex_);
  RETURN_IF_ERROR(store_.failure_);
  RETURN_IF_ERROR(CheckIdle(store_.config_.optimizer, store_.tensors_));
  std::vector<TensorSpec> tensors;
  for (const auto& tensor : store_.tensors_) tensors.push_back(tensor->spec);
  RETURN_IF_ERROR(CheckStates(states, store_.config_.optimizer.kind, tensors));
  for (size_t key = 0; key < tensors.size(); ++key) {
    const TensorState& state = states.tensors[key];
    for (ChunkSum& sum : store_.tensors_[key]->sums) {
      OptimizerState& own = sum.weights().state;
      own = {};
      for (size_t i = 0; i < state.arrays.size(); ++i) {
        Buffer array(4 * sum.chunk().num_elems);
        std::memcpy(array.data(),
                    state.arrays[i].data() + 4 * sum.chunk().begin,
                    array.size());
        own.Restore(state.num_steps, i, std::move(array));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace telegrad
