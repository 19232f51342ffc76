#include "kvstore/ps/worker/worker_codecs.h"

#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"

namespace telegrad {

absl::Status WorkerCodecs::SetCodec(Key key, int codec) {
  RETURN_IF_ERROR(CheckKey(key, tensors_.size()));
  return tensors_[key].codec->SetCodec(codec);
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
