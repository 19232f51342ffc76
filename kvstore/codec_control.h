#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kvstore/options.h"

namespace telegrad {

// How gradients are encoded from now on: a store's side for whoever tunes it
// while it runs (kvstore/tuning).
class CodecControl {
 public:
  virtual ~CodecControl() = default;

  // How `key` goes from the round after the next on: kDenseCodec; 0, by its
  // codec (as at the start, unless CompressionConfig::starts_dense); or 1 + i,
  // by CompressionConfig::alternatives[i], for tensors with the codec `type`.
  // Dense while workers differ, where the guard has given up on the codec, and
  // in a round between two codecs: what the first held back is sent along.
  // After Init, between rounds; changes nothing for a tensor without a lossy
  // codec.
  virtual absl::Status SetCodec(Key key, int codec) = 0;

  // By key. After Init, while no operation runs.
  virtual std::vector<TensorReport> Report() const = 0;
};

}  // namespace telegrad
