#include "kvstore/tuning/codec_bench.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/reply_format.h"

namespace telegrad {
namespace {

// Elements after which gradients, and with them all else, repeat.
constexpr size_t kPeriod = size_t{1} << 16;
// A step's gradient begins at one of so many places in them.
constexpr size_t kPlaceElems = 16;
constexpr size_t kPlaces = kPeriod / kPlaceElems;
// Steps until what is held back is spread as ever after: four times as many as
// an element of a sparse codec waits for its turn (threshold: 64).
constexpr uint64_t kSettlingSteps = 256;
// Payloads that are taken in turns, where they are lists of elements: no CPU
// has learned by heart what comes next, as it would of one.
constexpr size_t kNumLists = 4;

template <typename Draw>
Buffer Repeated(size_t num_elems, uint64_t seed, const Draw& draw) {
  Buffer array(4 * num_elems);
  Random random(seed, 0);
  float* const values = array.as<float>();
  for (size_t i = 0; i < num_elems; ++i) {
    values[i] = i < kPeriod ? draw(random) : values[i - kPeriod];
  }
  return array;
}

}  // namespace

float BenchThreshold(const CodecTraits& traits) {
  if (!traits.needs_threshold) return 0;
  return static_cast<float>(
      std::exp2(std::round(std::log2(traits.auto_threshold_per_rms))));
}

CodecBench::CodecBench(const Shape& shape, std::unique_ptr<PreparedCodec> codec)
    : shape_(shape),
      codec_(std::move(codec)),
      grad_(Repeated(shape.num_elems + kPeriod, 1,
                     [](Random& random) { return random.NextNormal(); })),
      out_(4 * shape.num_elems),
      reply_(codec_->max_reencoded_bytes(2 * shape.workers)) {
  const CodecTraits& traits = codec_->traits();
  params_.threshold = BenchThreshold(traits);
  if (traits.needs_residual) residual_ = Buffer(4 * shape.num_elems);
  for (size_t at = 0; at < shape.num_elems; at += shape.chunk_elems) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.begin = at;
    chunk.frame = Buffer(codec_->max_encoded_bytes());
    chunk.sum = Buffer(codec_->sum_bytes(shape.workers));
    if (!traits.needs_residual) continue;
    chunk.state.residual = {residual_.as<float>() + at, 4 * shape.chunk_elems};
  }
}

absl::StatusOr<std::unique_ptr<CodecBench>> CodecBench::Make(
    const Codec& codec, const CodecOptions& options, const Shape& shape) {
  ASSIGN_OR_RETURN(std::unique_ptr<PreparedCodec> prepared,
                   codec.Prepare(shape.chunk_elems, Device{}, options));
  std::unique_ptr<CodecBench> bench(new CodecBench(shape, std::move(prepared)));
  if (codec.traits().needs_residual) {
    RETURN_IF_ERROR(bench->SettleResidual(codec, options));
  }
  RETURN_IF_ERROR(bench->MakePayloads());
  RETURN_IF_ERROR(bench->SettleReencode());
  return bench;
}

// All periods are alike: the steps are taken with one.
absl::Status CodecBench::SettleResidual(const Codec& codec,
                                        const CodecOptions& options) {
  const size_t count = std::min(shape_.chunk_elems, kPeriod);
  ASSIGN_OR_RETURN(const std::unique_ptr<PreparedCodec> piece,
                   codec.Prepare(count, Device{}, options));
  CodecState state;
  state.residual = {residual_.data(), 4 * count};
  Buffer frame(piece->max_encoded_bytes());
  EncodeResult result;
  while (params_.step < kSettlingSteps) {
    ++params_.step;
    RETURN_IF_ERROR(piece->Encode(GradientAt(0, count), state, params_,
                                  frame.view(), &result, {}));
  }
  for (size_t at = count; at < shape_.num_elems; at += count) {
    std::memcpy(residual_.as<float>() + at, residual_.data(),
                4 * std::min(count, shape_.num_elems - at));
  }
  return absl::OkStatus();
}

absl::Status CodecBench::MakePayloads() {
  const size_t count = codec_->traits().constant_width ? size_t{1} : kNumLists;
  for (size_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(Encode());
    for (Chunk& chunk : chunks_) {
      Buffer& payload = chunk.sent.emplace_back(chunk.frame_bytes);
      std::memcpy(payload.data(), chunk.frame.data(), payload.size());
    }
  }
  return absl::OkStatus();
}

// What a server adds up are whole thresholds, and `most` of them it sends: a
// walk that starts again from zero there is spread like the difference of two
// uniform variables. To walk so far would take it many steps.
absl::Status CodecBench::SettleReencode() {
  if (codec_->traits().constant_width || params_.threshold == 0) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Reencode());
  const uint32_t most = std::bit_ceil(shape_.workers);
  const Buffer settled = Repeated(shape_.num_elems, 3, [&](Random& random) {
    const auto units = static_cast<float>(random.NextBelow(most)) -
                       static_cast<float>(random.NextBelow(most));
    return params_.threshold * units;
  });
  for (Chunk& chunk : chunks_) {
    Buffer& residual = chunk.reencode.residual;
    std::memcpy(residual.data(), settled.as<float>() + chunk.begin,
                residual.size());
  }
  return absl::OkStatus();
}

template <typename Work>
absl::Status CodecBench::ForEachChunk(const Work& work) {
  for (Chunk& chunk : chunks_) {
    params_.stream = chunk.begin;
    RETURN_IF_ERROR(work(chunk));
  }
  ++turn_;
  return absl::OkStatus();
}

ConstBytes CodecBench::GradientAt(size_t begin, size_t num_elems) const {
  const size_t place = params_.step * 1601 % kPlaces * kPlaceElems;
  return {grad_.as<float>() + place + begin, 4 * num_elems};
}

Bytes CodecBench::OutOf(const Chunk& chunk) {
  return {out_.as<float>() + chunk.begin, 4 * shape_.chunk_elems};
}

// As a worker with an automatic threshold, which looks at a sample before.
absl::Status CodecBench::Encode() {
  ++params_.step;
  return ForEachChunk([this](Chunk& chunk) -> absl::Status {
    const ConstBytes grad = GradientAt(chunk.begin, shape_.chunk_elems);
    if (codec_->traits().needs_threshold) Sample(grad, chunk.state.residual);
    EncodeResult result;
    RETURN_IF_ERROR(codec_->Encode(grad, chunk.state, params_,
                                   chunk.frame.view(), &result, {}));
    chunk.frame_bytes = result.encoded_bytes;
    return absl::OkStatus();
  });
}

void CodecBench::Sample(ConstBytes grad, Bytes residual) {
  const bool adds_residual =
      codec_->traits().auto_of_residual && residual.size > 0;
  kernels::CpuKernels().sampled_power(
      reinterpret_cast<const float*>(grad.data),
      adds_residual ? reinterpret_cast<const float*>(residual.data) : nullptr,
      shape_.chunk_elems, &mean_square_, {});
}

absl::Status CodecBench::Decode() {
  return ForEachChunk([this](const Chunk& chunk) {
    return codec_->Decode(PayloadOf(chunk), params_.threshold, OutOf(chunk),
                          {});
  });
}

absl::Status CodecBench::DecodeAdd() {
  return ForEachChunk([this](const Chunk& chunk) -> absl::Status {
    const ConstBytes payload = PayloadOf(chunk);
    RETURN_IF_ERROR(codec_->Validate(payload));
    return codec_->DecodeAdd(payload, params_.threshold, OutOf(chunk), {});
  });
}

absl::Status CodecBench::Sum() {
  return ForEachChunk([this](Chunk& chunk) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<ConstBytes> payloads,
                     ValidPayloads(chunk, shape_.workers));
    return codec_->SumCodes(payloads, chunk.sum.view(), {});
  });
}

absl::Status CodecBench::DecodeSum() {
  return ForEachChunk([this](const Chunk& chunk) -> absl::Status {
    const ConstBytes sum = chunk.sum.view();
    RETURN_IF_ERROR(codec_->ValidateSum(sum, shape_.workers));
    return codec_->DecodeSum(sum, shape_.workers, params_.threshold,
                             OutOf(chunk), {});
  });
}

absl::Status CodecBench::Reencode() {
  return Reencode(shape_.workers, &Chunk::reencode);
}

absl::Status CodecBench::ReencodeTwice() {
  return Reencode(2 * shape_.workers, &Chunk::reencode_twice);
}

absl::Status CodecBench::Reencode(uint32_t count, ReencodeState Chunk::*state) {
  return ForEachChunk([this, count, state](Chunk& chunk) -> absl::Status {
    EncodeParams params = params_;
    params.source = kServerSource;
    ASSIGN_OR_RETURN(const std::vector<ConstBytes> payloads,
                     ValidPayloads(chunk, count));
    size_t reply_bytes = 0;
    return codec_->Reencode(payloads, params, 0, chunk.*state, reply_.view(),
                            &reply_bytes, {});
  });
}

absl::StatusOr<std::vector<ConstBytes>> CodecBench::ValidPayloads(
    const Chunk& chunk, uint32_t count) const {
  std::vector<ConstBytes> payloads(count);
  for (uint32_t worker = 0; worker < count; ++worker) {
    payloads[worker] = PayloadOf(chunk, worker);
    RETURN_IF_ERROR(codec_->Validate(payloads[worker]));
  }
  return payloads;
}

double CodecBench::payload_bits() const {
  double bytes = 0;
  double elems = 0;
  for (const Chunk& chunk : chunks_) {
    for (const Buffer& payload : chunk.sent) {
      bytes += static_cast<double>(payload.size());
      elems += static_cast<double>(shape_.chunk_elems);
    }
  }
  return 8 * bytes / elems;
}

}  // namespace telegrad
