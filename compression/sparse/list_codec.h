#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "compression/self_contained_codec.h"
#include "compression/stream_buffers.h"
#include "kernels/sparse_list.h"

namespace telegrad {

// The base of codecs whose payloads list elements. On a GPU such a payload is
// written and read by kernels, where the host cannot look at it:
// kernels/sparse_list.h.
class ListCodec : public SelfContainedCodec {
 public:
  absl::StatusOr<std::optional<DecodePart>> DecodePartOf(
      const DecodeItem& item) const override;

 protected:
  ListCodec(const CodecTraits& codec_traits, size_t num_elems,
            const kernels::KernelTable& table, kernels::SparseContent content)
      : SelfContainedCodec(codec_traits, num_elems, table), content_(content) {}

  // On a GPU. `words` as WriteSparseListFn wants them, `parts` its scratch.
  void WriteOnGpu(const uint32_t* words, const uint64_t* num_words,
                  float threshold, void* parts, Bytes out, EncodeResult* result,
                  Stream stream) const;
  absl::Status DecodeOnGpu(ConstBytes payload, Bytes out, Stream stream) const;
  absl::Status DecodeAddOnGpu(ConstBytes payload, Bytes sum,
                              Stream stream) const;

 private:
  absl::Status ReadOnGpu(kernels::ReadSparseListFn* read, ConstBytes payload,
                         Bytes out, Stream stream) const;

  const kernels::SparseContent content_;
  mutable StreamBuffers parts_;  // what decoders count in
};

}  // namespace telegrad
