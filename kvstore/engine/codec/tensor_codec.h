#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/engine/codec/chunk_codec.h"
#include "kvstore/engine/codec/chunk_on_device.h"

namespace telegrad {

// One contributor's side of one tensor: its chunks' codecs, the residual that
// they share out, and what is wished for all of them. An empty tensor has no
// chunks, and nothing to encode.
class TensorCodec {
 public:
  static absl::StatusOr<std::unique_ptr<TensorCodec>> Make(
      const TensorSpec& spec, const TensorLayout& layout,
      const EngineConfig& config);

  // Before the first use, of tensors that are Made: those on one device get
  // neighbouring memory for what leaves it together.
  static absl::Status Place(std::span<TensorCodec* const> tensors);

  const TensorSpec& spec() const { return spec_; }
  // The codec for values of single rows; none: they travel as floats.
  const std::optional<CodecSetting>& row_codec() const { return row_codec_; }
  std::vector<ChunkCodec>& chunks() { return chunks_; }
  const std::vector<ChunkCodec>& chunks() const { return chunks_; }
  ChunkOnDevice& on_device(size_t chunk) { return on_device_[chunk]; }
  BufferPool& buffers() const { return *config_->buffers; }  // on the host
  DeviceLane* lane() const { return config_->lane; }  // null: on the host
  bool uses_scale() const { return chunks_[0].codings().uses_scale(); }
  size_t num_codecs() const { return num_codecs_; }

  // The codec of this index for all chunks, -1: dense. InvalidArgument if there
  // is none. Any thread.
  absl::Status SetCodec(int codec);
  // What to give ChunkCodec::Wish in this round, before any chunk of it is
  // encoded: the scale is proposed from the whole gradient, in host memory, or
  // from the momentum that the rounds before left.
  ChunkWish Wish(ConstBytes grad) const;
  // On a device: the lane's thread queues what it takes, and the copy of it to
  // the host; when both have passed, on any thread.
  absl::Status BeginWish(ConstBytes grad);
  void CopyWish();
  ChunkWish EndWish() const;

  // Between rounds, on any thread: what all chunks keep, and goes on with it,
  // on a device or not. DataLoss where it is of another tensor or codec.
  absl::StatusOr<std::string> Save() const;
  absl::Status Load(absl::string_view text);

  void CountNonFinite(size_t count) {
    num_nonfinite_ += static_cast<int64_t>(count);
  }
  // After `rounds` rounds, while none runs.
  TensorReport Report(uint64_t rounds) const;

 private:
  TensorCodec() = default;
  absl::Status MakeMemory();
  // Memory of a device, and what of it the host gets.
  struct Mirror {
    static absl::StatusOr<std::shared_ptr<Mirror>> Make(DeviceLane& lane,
                                                        size_t bytes,
                                                        bool is_for_cards);
    Buffer device;
    Buffer host;
  };
  static absl::Status PlaceOn(DeviceLane& lane,
                              std::span<TensorCodec* const> tensors);
  // Lays out this tensor's parts from `codes_at` and `dense_at` on, and moves
  // both behind them.
  void LayOut(const std::shared_ptr<Mirror>& mirror, size_t& codes_at,
              size_t& dense_at);
  // Lays out this tensor's answers from `at` on, and moves it behind them.
  void LayOutAnswers(const std::shared_ptr<Mirror>& mirror, size_t& at);
  const Coding& ScaledCoding(CodecMode wish) const;
  // The residual that a wish with this codec counts.
  Bytes WishedResidual(const Coding& coding) const;
  static ChunkWish WishOf(CodecMode mode, double mean_square,
                          const Coding& coding);

  const EngineConfig* config_ = nullptr;
  TensorSpec spec_;
  std::optional<CodecSetting> row_codec_;
  std::string codec_;  // its own, as all three in TensorReport
  std::string setting_;
  bool has_rule_ = false;
  std::string reason_;
  Buffer residual_;
  Buffer momentum_;
  // On a device, shared with other tensors: the mean square of a wish,
  // chunks' results, then frames; apart from these, small chunks that go dense.
  std::shared_ptr<Mirror> mirror_;
  size_t power_at_ = 0;
  std::shared_ptr<Mirror> answers_;  // what is read of them
  std::vector<ChunkMemory> memory_;
  std::vector<ChunkCodec> chunks_;
  size_t num_codecs_ = 0;
  std::vector<ChunkOnDevice> on_device_;            // empty on the host
  std::atomic<CodecMode> wish_{CodecMode::kCodec};  // the caller's
  CodecMode begun_wish_ = CodecMode::kCodec;        // BeginWish's
  std::atomic<int64_t> num_nonfinite_{0};
};

}  // namespace telegrad
