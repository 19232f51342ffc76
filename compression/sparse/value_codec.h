#pragma once

#include <cstddef>
#include <cstdint>

#include "compression/sparse/list_codec.h"
#include "compression/sparse/select.h"
#include "compression/sparse/value_list.h"
#include "kernels/sparse_scratch.h"

namespace telegrad {

// ceil(density * n), at least 1.
size_t NumSent(double density, size_t n);

// The base of topk and dgc: k elements of largest magnitude, as a value list.
// Exact: k, or all that are not 0. Sampled: those from a threshold on that a
// sample gives; k of them when they are more than 2k, and exactly the k largest
// when there are none.
class ValueCodec : public ListCodec {
 public:
  // No Encode sends more than `max_sent` elements.
  ValueCodec(const CodecTraits& codec_traits, size_t num_elems,
             const kernels::KernelTable& table, bool is_sampled,
             size_t max_sent)
      : ListCodec(codec_traits, num_elems, table,
                  kernels::SparseContent::kValues),
        is_sampled_(is_sampled),
        max_sent_(max_sent) {}

  size_t max_encoded_bytes() const override {
    return MaxValueListBytes(num_elems(), max_sent_);
  }
  absl::Status Validate(ConstBytes payload) const override;
  absl::Status Decode(ConstBytes payload, float threshold, Bytes out,
                      Stream stream) const override;
  absl::Status DecodeAdd(ConstBytes payload, float threshold, Bytes sum,
                         Stream stream) const override;

 protected:
  // Where the candidates of one Encode are listed, in state.scratch.
  struct Lists {
    uint32_t* indices;
    float* values;
    float* sample;
    uint64_t count = 0;
  };
  Lists MakeLists(CodecState& state) const;
  // The threshold for the pass, of value(0) to value(n - 1), made of `arrays`.
  template <typename Value>
  float CandidateThreshold(size_t k, Value value,
                           std::initializer_list<const float*> arrays,
                           const Lists& lists) const {
    return SampledThreshold(num_elems(), k, !is_sampled_, value, arrays,
                            lists.sample);
  }
  // Plain top-k with error feedback.
  absl::Status EncodeLargest(ConstBytes grad, CodecState& state,
                             const EncodeParams& params, size_t k, Bytes out,
                             EncodeResult* result, Stream stream) const;
  // Plain top-k as a part of one launch.
  absl::StatusOr<std::optional<BatchPart>> LargestPartOf(const EncodeItem& item,
                                                         size_t k,
                                                         Stream stream) const;
  // What an encoder on a GPU keeps of the gradients before, where it does.
  struct GpuMomentum {
    float* values = nullptr;  // [n]; null: plain top-k
    float rate = 0;
    double clip = 0;  // 0: the gradient as it is
  };
  absl::Status EncodeOnGpu(ConstBytes grad, const GpuMomentum& momentum,
                           CodecState& state, const EncodeParams& params,
                           size_t k, Bytes out, EncodeResult* result,
                           Stream stream) const;
  // Leaves those candidates that are sent, takes them off `residual`, which
  // holds them too, and writes the payload.
  void Send(size_t k, Lists& lists, float* residual, Bytes out,
            EncodeResult* result) const;

 private:
  absl::StatusOr<kernels::TopKScratch> GpuScratchOf(CodecState& state,
                                                    Stream stream) const;

  const bool is_sampled_;
  const size_t max_sent_;
};

}  // namespace telegrad
