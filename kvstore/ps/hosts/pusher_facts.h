#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "kvstore/codec_control.h"
#include "kvstore/kvstore.h"

namespace telegrad {

// What the workers of a host are told about the store of the one that pushes,
// so that all of them tune it alike: its reports after an Init of
// `num_tensors`, and its transport, as texts that are short enough for a
// gather.
std::vector<std::string> PusherTexts(KVStore& store, size_t num_tensors);

// What these say, on all workers of the host; to those that do not push it is
// their codecs, which the one that does sets. Thread-safe.
class PusherCodecs : public CodecControl {
 public:
  // Any bytes; InvalidArgument.
  absl::Status Hear(absl::string_view text);
  std::string transport_details() const;
  // The type's and its alternatives.
  void SetNumCodecs(int count);

  absl::Status SetCodec(Key key, int codec) override;
  std::vector<TensorReport> Report() const override;

 private:
  mutable Mutex mutex_;
  int num_codecs_ ABSL_GUARDED_BY(mutex_) = 1;
  std::string transport_details_ ABSL_GUARDED_BY(mutex_);
  std::vector<TensorReport> reports_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
