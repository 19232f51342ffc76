#include "kvstore/engine/state/recut.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/chunk_sum.h"
#include "kvstore/engine/codec/floats.h"
#include "kvstore/engine/codec/tensor_codec.h"
#include "kvstore/engine/state/codec_state.h"

namespace telegrad {
namespace {

// A worker's side of a tensor, and the sums where they are with it.
struct CutTensor {
  std::unique_ptr<TensorCodec> codec;
  std::vector<ChunkSum> sums;
  uint64_t rounds = 0;
};

absl::StatusOr<CutTensor> MakeCut(const Recut& recut,
                                  const TensorLayout& layout, bool has_sums) {
  CutTensor tensor;
  ASSIGN_OR_RETURN(tensor.codec,
                   TensorCodec::Make(recut.spec, layout, *recut.config));
  for (const Chunk& chunk : layout.chunks) {
    if (!has_sums) break;
    ASSIGN_OR_RETURN(ChunkSum sum,
                     ChunkSum::Make(layout, chunk, *recut.config));
    tensor.sums.push_back(std::move(sum));
  }
  return tensor;
}

absl::StatusOr<CutTensor> ReadCut(const Recut& recut,
                                  const OldCodecs::Text& saved) {
  ASSIGN_OR_RETURN(CutTensor tensor,
                   MakeCut(recut, recut.from, saved.rank == 0));
  ASSIGN_OR_RETURN(const CodecSections read,
                   ReadCodecSections(saved.text, 1 + tensor.sums.size()));
  tensor.rounds = read.rounds;
  RETURN_IF_ERROR(tensor.codec->Load(read.sections[0]));
  for (size_t i = 0; i < tensor.sums.size(); ++i) {
    RETURN_IF_ERROR(tensor.sums[i].Load(read.sections[1 + i]));
  }
  return tensor;
}

// The parts with elements of `chunk` among all, which cover the tensor in
// order: one at least.
template <typename T>
std::vector<const T*> Sharing(const std::vector<T>& all, const Chunk& chunk) {
  auto it = std::partition_point(all.begin(), all.end(), [&](const T& each) {
    return each.chunk().begin + each.chunk().num_elems <= chunk.begin;
  });
  std::vector<const T*> found;
  for (; it != all.end(); ++it) {
    if (it->chunk().begin >= chunk.begin + chunk.num_elems) break;
    found.push_back(&*it);
  }
  return found;
}

// What all workers must have alike is the first one's.
absl::Status GoOn(const CutTensor& old, bool takes_held, CutTensor& tensor) {
  tensor.rounds = old.rounds;
  for (ChunkCodec& chunk : tensor.codec->chunks()) {
    SavedChunk::GoOn(Sharing(old.codec->chunks(), chunk.chunk()), chunk);
  }
  if (old.sums.empty() && !tensor.sums.empty()) {
    return absl::DataLossError("sums are in the text of worker 0");
  }
  for (ChunkSum& sum : tensor.sums) {
    RETURN_IF_ERROR(sum.GoOn(Sharing(old.sums, sum.chunk()), takes_held));
  }
  return absl::OkStatus();
}

absl::StatusOr<CutTensor> CutAndAdd(const Recut& recut, const OldCodecs& old,
                                    bool has_sums) {
  ASSIGN_OR_RETURN(CutTensor tensor, MakeCut(recut, recut.to, has_sums));
  // One after the other: a tensor's memory twice, however many they are.
  for (size_t i = 0; i < old.texts.size(); ++i) {
    ASSIGN_OR_RETURN(const CutTensor each, ReadCut(recut, old.texts[i]));
    if (i == 0) RETURN_IF_ERROR(GoOn(each, old.takes_first, tensor));
    if (i == 0 && !old.takes_first) continue;
    for (ChunkCodec& chunk : tensor.codec->chunks()) {
      for (const ChunkCodec* from :
           Sharing(each.codec->chunks(), chunk.chunk())) {
        SavedChunk::AddHeld(*from, chunk);
      }
    }
  }
  return tensor;
}

}  // namespace

absl::StatusOr<std::string> RecutCodecs(const Recut& recut,
                                        const OldCodecs& old, bool has_sums) {
  ASSIGN_OR_RETURN(const CutTensor tensor, CutAndAdd(recut, old, has_sums));
  std::vector<std::string> sections;
  ASSIGN_OR_RETURN(sections.emplace_back(), tensor.codec->Save());
  for (const ChunkSum& sum : tensor.sums) sections.push_back(sum.Save());
  return CodecSectionsText(tensor.rounds, sections);
}

absl::StatusOr<double> HeldNorm(const Recut& recut, const OldCodecs& old) {
  ASSIGN_OR_RETURN(CutTensor tensor, CutAndAdd(recut, old, true));
  double squares = 0;
  for (size_t i = 0; i < tensor.sums.size(); ++i) {
    ChunkSum& sum = tensor.sums[i];
    const size_t n = sum.chunk().num_elems;
    const Buffer total(4 * n);
    const ConstBytes held = SavedChunk::Held(tensor.codec->chunks()[i]);
    if (held.size > 0) {
      kernels::CpuKernels().add_f32(Floats(held), n, total.as<float>(), {});
    }
    RETURN_IF_ERROR(sum.ReleaseResidual(total.view(), {}));
    for (size_t at = 0; at < n; ++at) {
      squares += std::pow(double{total.as<float>()[at]}, 2);
    }
  }
  return std::sqrt(squares);
}

}  // namespace telegrad
