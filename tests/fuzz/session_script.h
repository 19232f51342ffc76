#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "kvstore/engine/codec/chunk_codec.h"
#include "kvstore/job/control/handshake.h"
#include "kvstore/ps/wire/job_config.h"

namespace telegrad {

// What the input of a session says next; zeros behind its end.
class Script {
 public:
  Script(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Next() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  bool has_more() const { return at_ < size_; }
  // What is left, without taking it.
  std::pair<const uint8_t*, size_t> rest() const {
    return {data_ + at_, size_ - at_};
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// One of the jobs: types of stores, codecs, optimizers, rows.
inline JobConfig ConfigOf(uint8_t choice) {
  JobConfig config;
  config.tensors = {{"a", 70}, {"b", 3}};
  config.chunk_elems = 64;
  CompressionConfig& gc = config.compression;
  OptimizerConfig& optimizer = config.optimizer;
  gc.threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f};
  config.has_values = choice % 2 == 1;
  switch (choice / 2 % 8) {
    case 0:
      break;
    case 1:
      gc.type = "2bit";
      break;
    case 2:
      gc.type = "2bit";
      gc.threshold = {};
      break;
    case 3:
      gc.type = "onebit";
      gc.reply = ReplyMode::kReencode;
      break;
    case 4:
      config.tensors[0].row_elems = 2;
      break;
    case 5:
      optimizer.update_on = UpdateOn::kServer;
      optimizer.kind = OptimizerKind::kAdam;
      gc.type = "2bit";
      gc.reply = ReplyMode::kDense;
      break;
    default:
      optimizer.update_on = UpdateOn::kServer;
      optimizer.sgd.momentum_rate = 0.5f;
      gc.reply = ReplyMode::kDense;
      config.is_async = choice / 2 % 8 == 6;
      config.max_staleness = config.is_async ? choice / 16 : kAnyStaleness;
      config.drop_slowest = config.is_async ? 0 : 1;
  }
  return config;
}

// What is wrong with a frame: a field, with right checks, its payload, or a
// bit.
enum class Harm : uint8_t { kNone, kField, kPayload, kBit };

// One end of a connection; a worker's once it says that it is one.
struct Peer {
  int rank = 0;
  HandshakeClient handshake;
  std::string proof = {};
  bool is_ready = false;
};

// What a worker knows of a chunk.
struct Progress {
  ChunkCodec codec;
  uint64_t rounds = 0;
  uint64_t values = 0;
};

}  // namespace telegrad
