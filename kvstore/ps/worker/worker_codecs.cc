#include "kvstore/ps/worker/worker_codecs.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"

namespace telegrad {

void WorkerCodecs::Add(TensorCodec& tensor) {
  if (tensor.chunks().empty()) return;
  const bool has_choice = tensor.chunks()[0].codings().has_open_packing();
  if (const PackingMode mode = packing_;
      has_choice && mode != PackingMode::kAuto) {
    tensor.DecidePacking(static_cast<uint8_t>(mode));
  }
  has_choice_ |= has_choice;
}

absl::Status WorkerCodecs::SetCodec(Key key, int codec) {
  RETURN_IF_ERROR(CheckKey(key, tensors_.size()));
  return tensors_[key].codec->SetCodec(codec);
}

// Where no codec has a choice there is nothing to decide.
PackingMode WorkerCodecs::packing() const {
  const PackingMode mode = packing_;
  return mode == PackingMode::kAuto && !has_choice_ ? PackingMode::kPlain
                                                    : mode;
}

absl::Status WorkerCodecs::SetPacking(PackingMode mode) {
  const bool has_tensors = tensors_.size() > 0;
  if (!has_tensors || packing() != PackingMode::kAuto ||
      mode == PackingMode::kAuto) {
    return absl::FailedPreconditionError(
        absl::StrCat("SetPacking to ", ToString(mode), " of a store with ",
                     has_tensors ? ToString(packing()) : "no tensors yet"));
  }
  for (size_t key = 0; key < tensors_.size(); ++key) {
    const WorkerTurns& turns = tensors_[key].turns;
    if (turns.rounds() > 0 || turns.active() != nullptr) {
      return absl::FailedPreconditionError("SetPacking after the first push");
    }
  }
  packing_ = mode;
  for (size_t key = 0; key < tensors_.size(); ++key) {
    tensors_[key].codec->DecidePacking(static_cast<uint8_t>(mode));
  }
  return tensors_.Place(0);
}

std::vector<TensorReport> WorkerCodecs::Report() const {
  std::vector<TensorReport> reports;
  for (size_t key = 0; key < tensors_.size(); ++key) {
    const WorkerTensor& tensor = tensors_[key];
    reports.push_back(tensor.codec->Report(tensor.turns.rounds()));
  }
  return reports;
}

}  // namespace telegrad
