#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compression/sparse/list_codec.h"
#include "compression/sparse/select.h"
#include "compression/sparse/value_list.h"
#include "kernels/sparse_scratch.h"

namespace telegrad {

// ceil(density * n), at least 1.
size_t NumSent(double density, size_t n);

// The option of topk and dgc by which a server replies less than all.
CodecOption ReplyOption();

// The base of topk and dgc: k elements of largest magnitude, as a value list.
// Exact: k, or all that are not 0. Sampled: those from a threshold on that a
// sample gives; k of them when they are more than 2k, and exactly the k largest
// when there are none.
class ValueCodec : public ListCodec {
 public:
  // No Encode of a worker sends more than `max_sent` elements.
  ValueCodec(const CodecTraits& codec_traits, size_t num_elems,
             const kernels::KernelTable& table, const CodecOptions& options,
             size_t max_sent)
      : ListCodec(codec_traits, num_elems, table,
                  kernels::SparseContent::kValues),
        is_sampled_(options.sampled != 0),
        reply_(static_cast<size_t>(options.reply)),
        max_sent_(max_sent) {}

  size_t max_encoded_bytes() const override {
    return MaxValueListBytes(num_elems(), max_sent_);
  }
  size_t max_reencoded_bytes(uint32_t num_payloads) const override {
    return MaxValueListBytes(num_elems(), Replied(max_sent_, num_payloads));
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
  // How many elements are sent where `k` are wanted of a worker: of a sum of
  // payloads all that they hold, unless an option sets less.
  struct Wanted {
    size_t k;
    bool is_sampled;
  };
  Wanted WantedOf(size_t k, const EncodeParams& params) const {
    if (params.source != kServerSource) return {k, is_sampled_};
    return {Replied(is_sampled_ ? 2 * k : k, params.num_summed), false};
  }
  // The threshold for the pass, of value(0) to value(n - 1), made of `arrays`.
  template <typename Value>
  float CandidateThreshold(const Wanted& wanted, Value value,
                           std::initializer_list<const float*> arrays,
                           const Lists& lists) const {
    return SampledThreshold(num_elems(), wanted.k, !wanted.is_sampled, value,
                            arrays, lists.sample);
  }
  // Plain top-k with error feedback, of `k` elements from a worker.
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
                           const Wanted& wanted, Bytes out,
                           EncodeResult* result, Stream stream) const;
  // Leaves those candidates that are sent, takes them off `residual`, which
  // holds them too, and writes the payload. Candidates have at least the
  // magnitude `threshold`.
  void Send(const Wanted& wanted, float threshold, Lists& lists,
            float* residual, Bytes out, EncodeResult* result) const;

 private:
  size_t Replied(size_t k, uint32_t num_payloads) const {
    return std::min(num_elems(), (reply_ == 0 ? num_payloads : reply_) * k);
  }
  absl::StatusOr<kernels::TopKScratch> GpuScratchOf(CodecState& state,
                                                    const EncodeParams& params,
                                                    Stream stream) const;

  const bool is_sampled_;
  const size_t reply_;
  const size_t max_sent_;
};

}  // namespace telegrad
