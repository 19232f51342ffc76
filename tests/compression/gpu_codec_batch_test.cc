#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/dispatch.h"
#include "tests/compression/codec_variant.h"
#include "tests/compression/gpu_batch.h"
#include "tests/testing/status_matchers.h"

// Many chunks at once on a GPU beside each of them on the CPU: the same bits.
namespace telegrad {
namespace {

using testing::IsOk;

// Of one tile, of several, of whole ones and of few elements.
constexpr std::array<size_t, 8> kSizes = {1,     31,    320,   10240,
                                          10241, 20480, 33333, 51200};

// One chunk on both sides. Everything on the GPU is read through pinned memory.
struct Chunk {
  std::unique_ptr<PreparedCodec> cpu;
  std::unique_ptr<PreparedCodec> gpu;
  std::vector<float> residual;
  std::vector<float> momentum;
  CodecState cpu_state;
  CodecState gpu_state;
  Buffer grad;    // pinned
  Buffer back;    // pinned: result, payload, residual, momentum
  Buffer memory;  // the GPU's: gradient, residual, momentum
  Buffer answer;  // the GPU's: result, payload
  size_t half_bytes = 0;
  size_t skew = 0;  // of all arrays of the GPU, in bytes
  EncodeParams params;
  Buffer samples;  // the GPU's, of every second chunk that shares a launch
  Buffer sampled;  // pinned: the same
  size_t stride() const { return residual.size() / 64 + 1; }
  size_t num_samples() const { return (residual.size() - 1) / stride() + 1; }
};

class GpuCodecBatch
    : public GpuBatchTest<
          ::testing::TestWithParam<std::shared_ptr<const Variant>>> {
 protected:
  void SetUp() override {
    GpuBatchTest::SetUp();
    if (!IsSkipped()) AddChunks(0);
  }

  void AddChunks(size_t skew) {
    chunks_.clear();
    for (const size_t n : kSizes) AddChunk(n, skew);
    ASSERT_TRUE(Finish());
  }

  void AddChunk(size_t n, size_t skew) {
    auto cpu = GetParam()->Prepare(n, Device{});
    if (!cpu.ok()) return;  // too few elements for it
    auto gpu = GetParam()->Prepare(n, kGpu);
    ASSERT_THAT(gpu, IsOk());
    auto chunk = std::make_unique<Chunk>();
    chunk->cpu = *std::move(cpu);
    chunk->gpu = *std::move(gpu);
    const size_t answer =
        sizeof(EncodeResult) + skew + chunk->cpu->max_encoded_bytes();
    chunk->skew = skew;
    chunk->residual.resize(n);
    chunk->grad = queue_->MakePinned(4 * n);
    chunk->back = queue_->MakePinned(answer + 8 * n);
    chunk->memory = queue_->MakeMemory(12 * n + 32 + skew, stream_);
    chunk->answer = queue_->MakeMemory(answer, stream_);
    chunk->params = {.threshold = 0.25f * static_cast<float>(n % 3 + 1)};
    chunk->params.stream = n;
    if (chunk->cpu->traits().needs_residual) {
      chunk->cpu_state.residual = {chunk->residual.data(), 4 * n};
      chunk->gpu_state.residual = Array(*chunk, 1);
    }
    if (chunk->cpu->traits().masks_momentum) {
      chunk->momentum.assign(n, 1.0f);
      std::memcpy(chunk->grad.data(), chunk->momentum.data(), 4 * n);
      ASSERT_TRUE(queue_->Copy(Array(*chunk, 2), chunk->grad.view(), stream_));
      chunk->cpu_state.momentum = {chunk->momentum.data(), 4 * n};
      chunk->gpu_state.momentum = Array(*chunk, 2);
    }
    chunks_.push_back(std::move(chunk));
  }

  static Bytes Gradient(const Chunk& chunk) {
    return {chunk.memory.data() + chunk.skew, chunk.half_bytes, kGpu};
  }
  // 1: the residual, 2: momentum.
  static Bytes Array(const Chunk& chunk, size_t index) {
    const size_t n = chunk.cpu->num_elems();
    const size_t at = index * ((4 * n + 15) / 16 * 16) + chunk.skew;
    return {chunk.memory.data() + at, 4 * n, kGpu};
  }
  static Bytes Payload(const Chunk& chunk) {
    return {chunk.answer.data() + sizeof(EncodeResult) + chunk.skew,
            chunk.cpu->max_encoded_bytes(), kGpu};
  }

  // Gradients of a step, as float32 or as 16-bit floats.
  void Fill(Chunk& chunk, int step, std::optional<HalfFormat> half) {
    const size_t n = chunk.cpu->num_elems();
    Random random(n, static_cast<uint64_t>(step));
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) {
      values[i] = random.NextNormal();
      if (step == 1 && i % 97 == 5) values[i] = i % 2 == 0 ? NAN : INFINITY;
    }
    if (!half.has_value()) {
      std::memcpy(chunk.grad.data(), values.data(), 4 * n);
      chunk.half_bytes = 4 * n;
      return;
    }
    const kernels::CastKernels& cast = kernels::CpuKernels().cast;
    EncodeStats stats;
    (*half == HalfFormat::kFp16 ? cast.fp16 : cast.bf16)
        .encode(values.data(), nullptr, n, NonFinite::kPropagate,
                chunk.grad.as<uint8_t>(), &stats, {});
    chunk.half_bytes = 2 * n;
  }

  void EncodeOnGpu(int step, std::optional<HalfFormat> half,
                   NonFinite nonfinite) {
    std::vector<EncodeItem> items;
    for (const auto& chunk : chunks_) {
      Fill(*chunk, step, half);
      chunk->params.nonfinite = nonfinite;
      chunk->params.step = static_cast<uint64_t>(step);
      ASSERT_TRUE(queue_->Copy(
          Gradient(*chunk), {chunk->grad.data(), chunk->half_bytes}, stream_));
      items.push_back({.codec = chunk->gpu.get(),
                       .half = half,
                       .grad = Gradient(*chunk),
                       .state = &chunk->gpu_state,
                       .params = chunk->params,
                       .out = Payload(*chunk),
                       .result = chunk->answer.as<EncodeResult>()});
      if (items.size() % 2 == 1) TakeSamples(*chunk, items.back());
    }
    ASSERT_THAT(EncodeMany(items, *table_), IsOk());
    for (const auto& chunk : chunks_) {
      const ConstBytes answer = chunk->answer.view();
      ASSERT_TRUE(queue_->Copy(chunk->back.view(), answer, stream_));
      std::byte* to = chunk->back.data() + answer.size;
      for (const Bytes& from : {Array(*chunk, 1), Array(*chunk, 2)}) {
        ASSERT_TRUE(queue_->Copy({to, from.size}, from, stream_));
        to += from.size;
      }
      if (chunk->samples.size() == 0) continue;
      ASSERT_TRUE(
          queue_->Copy(chunk->sampled.view(), chunk->samples.view(), stream_));
    }
    ASSERT_TRUE(Finish());
  }

  void TakeSamples(Chunk& chunk, EncodeItem& item) {
    const auto part = item.codec->BatchPartOf(item, stream_);
    ASSERT_THAT(part, IsOk());
    if (!part->has_value()) return;
    const size_t bytes = 3 * 4 * chunk.num_samples();
    chunk.samples = queue_->MakeMemory(bytes, stream_);
    chunk.sampled = queue_->MakePinned(bytes);
    item.samples = chunk.samples.as<float>();
    item.sample_stride = chunk.stride();
  }

  // Samples of `values` are those that the GPU took as this array.
  static void CompareSamples(const Chunk& chunk, size_t array,
                             const std::vector<float>& values) {
    if (chunk.samples.size() == 0) return;
    const float* const got =
        chunk.sampled.as<float>() + array * chunk.num_samples();
    for (size_t j = 0; j < chunk.num_samples(); ++j) {
      const float want = values[j * chunk.stride()];
      ASSERT_TRUE(got[j] == want || (std::isnan(got[j]) && std::isnan(want)))
          << "array " << array << ", sample " << j;
    }
  }

  static std::vector<float> GradientOf(const Chunk& chunk,
                                       std::optional<HalfFormat> half) {
    const size_t n = chunk.cpu->num_elems();
    std::vector<float> values(n);
    if (!half.has_value()) {
      std::memcpy(values.data(), chunk.grad.data(), 4 * n);
      return values;
    }
    const kernels::CastKernels& cast = kernels::CpuKernels().cast;
    (*half == HalfFormat::kFp16 ? cast.fp16 : cast.bf16)
        .decode(chunk.grad.as<uint8_t>(), n, values.data(), {});
    return values;
  }

  void CompareWithCpu(Chunk& chunk, std::optional<HalfFormat> half) {
    SCOPED_TRACE(::testing::Message() << chunk.cpu->num_elems() << " elements");
    Buffer payload(chunk.cpu->max_encoded_bytes());
    EncodeResult want;
    const ConstBytes grad = {chunk.grad.data(), chunk.half_bytes};
    const bool has_residual = chunk.cpu->traits().needs_residual;
    CompareSamples(chunk, 0, GradientOf(chunk, half));
    if (has_residual) CompareSamples(chunk, 1, chunk.residual);
    ASSERT_THAT(
        half.has_value()
            ? chunk.cpu->EncodeHalf(*half, grad, chunk.cpu_state, chunk.params,
                                    payload.view(), &want, {})
            : chunk.cpu->Encode(grad, chunk.cpu_state, chunk.params,
                                payload.view(), &want, {}),
        IsOk());
    EncodeResult got;
    std::memcpy(&got, chunk.back.data(), sizeof(got));
    ASSERT_EQ(got.encoded_bytes, want.encoded_bytes);
    EXPECT_EQ(got.stats.num_nonzero, want.stats.num_nonzero);
    EXPECT_EQ(got.stats.num_nonfinite, want.stats.num_nonfinite);
    EXPECT_EQ(got.stats.first_nonfinite, want.stats.first_nonfinite);
    EXPECT_EQ(std::memcmp(chunk.back.data() + sizeof(got) + chunk.skew,
                          payload.data(), want.encoded_bytes),
              0);
    if (!has_residual) return;
    CompareSamples(chunk, 2, chunk.residual);
    const std::byte* const residual = chunk.back.data() + chunk.answer.size();
    for (size_t i = 0; i < chunk.residual.size(); ++i) {
      float value;
      std::memcpy(&value, residual + 4 * i, 4);
      ASSERT_TRUE(value == chunk.residual[i] ||
                  (std::isnan(value) && std::isnan(chunk.residual[i])))
          << i;
    }
    if (chunk.momentum.empty()) return;
    EXPECT_EQ(std::memcmp(residual + 4 * chunk.residual.size(),
                          chunk.momentum.data(), 4 * chunk.momentum.size()),
              0);
  }

  bool TakesHalves() const {
    return chunks_[0]
               ->cpu
               ->EncodeHalf(HalfFormat::kFp16, {}, chunks_[0]->cpu_state, {},
                            {}, nullptr, {})
               .code() != absl::StatusCode::kUnimplemented;
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;
};

TEST_P(GpuCodecBatch, GivesTheBitsOfOneAfterTheOther) {
  for (int step = 0; step < 4; ++step) {
    SCOPED_TRACE(::testing::Message() << "step " << step);
    ASSERT_NO_FATAL_FAILURE(
        EncodeOnGpu(step, std::nullopt,
                    step == 3 ? NonFinite::kPropagate : NonFinite::kZero));
    for (const auto& chunk : chunks_) {
      ASSERT_NO_FATAL_FAILURE(CompareWithCpu(*chunk, std::nullopt));
    }
  }
}

// Kernels have other loops there.
TEST_P(GpuCodecBatch, GivesTheBitsWhereNothingIsAligned) {
  AddChunks(4);
  for (int step = 0; step < 2; ++step) {
    SCOPED_TRACE(::testing::Message() << "step " << step);
    ASSERT_NO_FATAL_FAILURE(EncodeOnGpu(step, std::nullopt, NonFinite::kZero));
    for (const auto& chunk : chunks_) {
      ASSERT_NO_FATAL_FAILURE(CompareWithCpu(*chunk, std::nullopt));
    }
  }
}

TEST_P(GpuCodecBatch, TakesHalves) {
  if (!TakesHalves()) return;
  for (const HalfFormat half : {HalfFormat::kFp16, HalfFormat::kBf16}) {
    ASSERT_NO_FATAL_FAILURE(EncodeOnGpu(0, half, NonFinite::kZero));
    for (const auto& chunk : chunks_) {
      ASSERT_NO_FATAL_FAILURE(CompareWithCpu(*chunk, half));
    }
  }
}

TEST_P(GpuCodecBatch, RefusesWrongSizes) {
  Chunk& chunk = *chunks_[0];
  const EncodeItem item = {
      .codec = chunk.gpu.get(),
      .grad = {chunk.memory.data(), 4 * chunk.cpu->num_elems() + 4, kGpu},
      .state = &chunk.gpu_state,
      .params = chunk.params,
      .out = Payload(chunk),
      .result = chunk.answer.as<EncodeResult>()};
  EXPECT_EQ(EncodeMany({&item, 1}, *table_).code(),
            absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Codecs, GpuCodecBatch, ::testing::ValuesIn(Variants()),
                         [](const auto& tested) {
                           return tested.param->TestName();
                         });

using GpuCodecPower = GpuBatchTest<::testing::Test>;

TEST_F(GpuCodecPower, OfManyIsThatOfEach) {
  constexpr size_t kElems = 30000;
  const Buffer pinned = queue_->MakePinned(8 * kElems);
  Random random(1, 2);
  for (size_t i = 0; i < 2 * kElems; ++i) {
    pinned.as<float>()[i] = random.NextNormal();
  }
  const Buffer memory = queue_->MakeMemory(8 * kElems, stream_);
  ASSERT_TRUE(queue_->Copy(memory.view(), pinned.view(), stream_));
  constexpr std::array<size_t, 4> kCounts = {1, 100, 4096, kElems};
  // Bits of floats are 16-bit floats, too, some of them not finite.
  constexpr std::array<std::optional<HalfFormat>, 3> kFormats = {
      std::nullopt, HalfFormat::kFp16, HalfFormat::kBf16};
  const size_t count = kCounts.size() * kFormats.size();
  const Buffer powers = queue_->MakeMemory(8 * count, stream_);
  const Buffer back = queue_->MakePinned(8 * count);
  std::vector<PowerItem> items;
  std::vector<double> want(count);
  const kernels::KernelTable& reference = kernels::ReferenceKernels();
  for (size_t i = 0; i < count; ++i) {
    const size_t n = kCounts[i % kCounts.size()];
    const std::optional<HalfFormat> half = kFormats[i / kCounts.size()];
    const bool has_residual = i % 2 == 0;
    items.push_back({{memory.data(), (half.has_value() ? 2 : 4) * n, kGpu},
                     {},
                     powers.as<double>() + i,
                     half});
    if (has_residual) {
      items.back().residual = {memory.data() + 4 * kElems, 4 * n, kGpu};
    }
    std::vector<float> grad(pinned.as<float>(), pinned.as<float>() + n);
    if (half.has_value()) {
      const auto& cast = *half == HalfFormat::kFp16 ? reference.cast.fp16
                                                    : reference.cast.bf16;
      cast.decode(pinned.as<uint8_t>(), n, grad.data(), {});
    }
    reference.sampled_power(
        grad.data(), has_residual ? pinned.as<float>() + kElems : nullptr, n,
        &want[i], {});
  }
  ASSERT_THAT(SampledPowerMany(items, *table_), IsOk());
  ASSERT_TRUE(queue_->Copy(back.view(), powers.view(), stream_));
  ASSERT_TRUE(Finish());
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(back.as<double>()[i], want[i]) << i;
  }
}

using GpuCodecMomentum = GpuBatchTest<::testing::Test>;

// Arrays of any alignment, one without elements among them.
TEST_F(GpuCodecMomentum, OfManyIsThatOfEach) {
  constexpr size_t kElems = 30000;
  for (const size_t skew : {size_t{0}, size_t{1}}) {
    std::vector<float> want(3 * kElems);
    Random random(1, 2);
    for (float& each : want) each = random.NextNormal();
    want[7] = INFINITY;
    const Buffer pinned = queue_->MakePinned(12 * kElems);
    std::memcpy(pinned.data(), want.data(), pinned.size());
    const Buffer back = queue_->MakePinned(12 * kElems);
    const Buffer memory = queue_->MakeMemory(12 * kElems, stream_);
    ASSERT_TRUE(queue_->Copy(memory.view(), pinned.view(), stream_));
    std::vector<kernels::MomentumSpan> spans;
    size_t at = 0;
    for (const size_t n : {size_t{1}, size_t{0}, size_t{1000}, size_t{20001}}) {
      float* const own = want.data() + at + skew;
      kernels::ReferenceKernels().optimizer.push_momentum(
          own, n, 0.5f, n != 1000, own + kElems, own + 2 * kElems, {});
      float* const on_gpu = memory.as<float>() + at + skew;
      spans.push_back(
          {on_gpu, on_gpu + kElems, on_gpu + 2 * kElems, n, 0.5f, n != 1000});
      at += (n + 15) / 16 * 16;
    }
    ASSERT_THAT(PushMomentumMany(spans, *table_), IsOk());
    ASSERT_TRUE(queue_->Copy(back.view(), memory.view(), stream_));
    ASSERT_TRUE(Finish());
    EXPECT_EQ(queue_->TakeError(), "") << skew;
    const auto [got, other] =
        std::mismatch(want.begin(), want.end(), back.as<float>());
    EXPECT_EQ(got, want.end())
        << got - want.begin() << ": " << *other << " for " << *got;
  }
}

}  // namespace
}  // namespace telegrad
