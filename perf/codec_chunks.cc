#include "perf/codec_chunks.h"

#include <span>

#include "base/status_macros.h"
#include "perf/peers.h"
#include "perf/workload.h"

namespace telegrad::perf {

absl::StatusOr<std::unique_ptr<CodecChunks>> CodecChunks::Make(
    const CodecSpec& spec, size_t num_chunks, size_t chunk_elems,
    double density) {
  std::unique_ptr<CodecChunks> made(new CodecChunks);
  ASSIGN_OR_RETURN(made->codec_,
                   spec.codec->Prepare(chunk_elems, Device{}, spec.options));
  made->bit_threshold_ = static_cast<float>(spec.options.bit_threshold);
  const size_t n = num_chunks * chunk_elems;
  made->grad_ = NormalGradient(n);
  made->out_ = HugeArray(4 * n);
  if (spec.codec->traits().needs_threshold) {
    made->threshold_ = ThresholdFor(made->grad_.as<float>(), n, density);
  }
  for (uint32_t w = 0; w < kNumPayloads; ++w) {
    if (!spec.codec->traits().needs_residual) break;
    made->residuals_[w] =
        SettledResidual(made->grad_.as<float>(), n, made->threshold_, w);
  }
  made->chunks_.resize(num_chunks);
  for (size_t c = 0; c < num_chunks; ++c) {
    const size_t from = c * chunk_elems;
    made->chunks_[c].grad = {made->grad_.as<float>() + from, 4 * chunk_elems};
    made->chunks_[c].out = {made->out_.as<float>() + from, 4 * chunk_elems};
    RETURN_IF_ERROR(made->FillPayloads(made->chunks_[c], c));
  }
  return made;
}

float* CodecChunks::Residual(uint32_t worker, size_t chunk) const {
  return residuals_[worker].as<float>() + chunk * codec_->num_elems();
}

// What so many workers send in one step.
absl::Status CodecChunks::FillPayloads(Chunk& chunk, uint64_t index) {
  chunk.encoded = Buffer(codec_->max_reencoded_bytes(kNumPayloads));
  chunk.sum = Buffer(codec_->sum_bytes(kNumPayloads));
  for (uint32_t p = 0; p < kNumPayloads; ++p) {
    chunk.payloads[p] = Buffer(codec_->max_encoded_bytes());
    if (codec_->traits().needs_residual) {
      chunk.workers[p].residual = {Residual(p, index), 4 * codec_->num_elems()};
    }
    EncodeParams params = Params(chunk, index);
    params.source = p;
    EncodeResult result;
    RETURN_IF_ERROR(codec_->Encode(chunk.grad, chunk.workers[p], params,
                                   chunk.payloads[p].view(), &result, {}));
    chunk.payload_bytes[p] = result.encoded_bytes;
    if (p == 0) chunk.stats = result.stats;
  }
  return absl::OkStatus();
}

EncodeParams CodecChunks::Params(const Chunk& chunk, uint64_t index) const {
  return {.threshold = threshold_, .stream = index, .step = chunk.step};
}

double CodecChunks::payload_bytes_per_element() const {
  double bytes = 0;
  for (const Chunk& chunk : chunks_) {
    for (const size_t size : chunk.payload_bytes) {
      bytes += static_cast<double>(size);
    }
  }
  return bytes / kNumPayloads / static_cast<double>(num_elems());
}

double CodecChunks::density() const {
  double nonzero = 0;
  for (const Chunk& chunk : chunks_) {
    nonzero += static_cast<double>(chunk.stats.num_nonzero);
  }
  return nonzero / static_cast<double>(num_elems());
}

double CodecChunks::memory_bytes_per_element() const {
  double bytes = 0;
  for (const Chunk& chunk : chunks_) {
    bytes += static_cast<double>(chunk.workers[0].memory.size());
  }
  return bytes / static_cast<double>(num_elems());
}

absl::Status CodecChunks::Do(Operation operation, Chunk& chunk,
                             uint64_t index) const {
  ConstBytes payloads[kNumPayloads];
  for (uint32_t p = 0; p < kNumPayloads; ++p) {
    payloads[p] = {chunk.payloads[p].data(), chunk.payload_bytes[p]};
  }
  ++chunk.step;
  EncodeResult result;
  switch (operation) {
    case Operation::kEncode:
      return codec_->Encode(chunk.grad, chunk.workers[0], Params(chunk, index),
                            chunk.encoded.view(), &result, {});
    case Operation::kDecode:
      return codec_->Decode(payloads[0], threshold_, chunk.out, {});
    case Operation::kDecodeAdd:
      return codec_->DecodeAdd(payloads[0], threshold_, chunk.out, {});
    case Operation::kSum:
      return codec_->SumCodes(payloads, chunk.sum.view(), {});
    case Operation::kReencode:
      return codec_->Reencode(payloads, Params(chunk, index), kDefaultScale,
                              chunk.server, chunk.encoded.view(),
                              &result.encoded_bytes, {});
  }
  return absl::InternalError("unknown operation");
}

RangeBody CodecChunks::Loop(Operation operation) {
  return [this, operation](size_t begin, size_t count) {
    const size_t size = codec_->num_elems();
    for (size_t c = begin / size; c < (begin + count) / size; ++c) {
      chunks_[c].error.Update(Do(operation, chunks_[c], c));
    }
  };
}

RangeBody CodecChunks::HeapLoop() {
  return [this](size_t begin, size_t count) {
    const size_t size = codec_->num_elems();
    std::vector<uint32_t> indices(size);
    std::vector<float> values(size);
    for (size_t c = begin / size; c < (begin + count) / size; ++c) {
      BytepsTopK(grad_.as<float>() + c * size, Residual(0, c), size,
                 chunks_[c].stats.num_nonzero, indices.data(), values.data());
    }
  };
}

void CodecChunks::MxnetEncode(size_t chunk) {
  const size_t size = codec_->num_elems();
  const float* grad = grad_.as<float>() + chunk * size;
  uint8_t* codes =
      mxnet_codes_.as<uint8_t>() + chunk * kernels::TwoBitBytes(size);
  if (codec_->traits().name == "1bit") {
    MxnetQuantizeOneBit(grad, Residual(0, chunk), size, bit_threshold_, codes);
  } else {
    MxnetQuantize(grad, Residual(0, chunk), size, threshold_, codes);
  }
}

void CodecChunks::MxnetDecode(size_t chunk) {
  const size_t size = codec_->num_elems();
  const uint8_t* codes =
      mxnet_codes_.as<uint8_t>() + chunk * kernels::TwoBitBytes(size);
  float* out = out_.as<float>() + chunk * size;
  if (codec_->traits().name == "1bit") {
    MxnetDequantizeOneBit(codes, size, out);
  } else {
    MxnetDequantize(codes, size, threshold_, out);
  }
}

RangeBody CodecChunks::MxnetLoop(Operation operation) {
  const std::string& name = codec_->traits().name;
  if (name != "2bit" && name != "1bit") return {};
  const bool encodes = operation == Operation::kEncode;
  if (!encodes && operation != Operation::kDecode) return {};
  const size_t size = codec_->num_elems();
  // Codes of two bits: more than signs need.
  mxnet_codes_ = HugeArray(chunks_.size() * kernels::TwoBitBytes(size));
  // One more step, which leaves residuals as settled as they were.
  for (size_t c = 0; c < chunks_.size(); ++c) MxnetEncode(c);
  return [this, size, encodes](size_t begin, size_t count) {
    for (size_t c = begin / size; c < (begin + count) / size; ++c) {
      encodes ? MxnetEncode(c) : MxnetDecode(c);
    }
  };
}

absl::Status CodecChunks::TakeError() {
  absl::Status first;
  for (Chunk& chunk : chunks_) {
    first.Update(chunk.error);
    chunk.error = absl::OkStatus();
  }
  return first;
}

}  // namespace telegrad::perf
