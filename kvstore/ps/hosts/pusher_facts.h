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
// so that all of them tune it alike.
struct PusherFacts {
  PackingMode packing = PackingMode::kPlain;
  double load = 1;  // StoreLink's, as the two below
  std::string identity = {};
  std::string transport_details = {};
};

// The facts of the pusher's store after an Init of `num_tensors`, as texts that
// are short enough for a gather.
std::vector<std::string> PusherTexts(KVStore& store, size_t num_tensors);

// What these say, on all workers of the host; to those that do not push it is
// their codecs, which the one that does sets. Thread-safe.
class PusherCodecs : public CodecControl {
 public:
  // Any bytes; InvalidArgument.
  absl::Status Hear(absl::string_view text);
  PusherFacts facts() const;
  // The type's and its alternatives.
  void SetNumCodecs(int count);

  absl::Status SetCodec(Key key, int codec) override;
  PackingMode packing() const override;
  absl::Status SetPacking(PackingMode mode) override;
  std::vector<TensorReport> Report() const override;

 private:
  mutable Mutex mutex_;
  int num_codecs_ ABSL_GUARDED_BY(mutex_) = 1;
  PusherFacts facts_ ABSL_GUARDED_BY(mutex_);
  std::vector<TensorReport> reports_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
