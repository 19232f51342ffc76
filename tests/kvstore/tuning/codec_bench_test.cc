#include "kvstore/tuning/codec_bench.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "compression/codec_spec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

// Bits per element that `threshold` sends of normal gradients 200 to 300 steps
// after its residual was 0.
double BitsAfterManySteps(size_t num_elems) {
  const auto codec = *(*FindCodec("threshold"))->Prepare(num_elems, Device{});
  Buffer residual(4 * num_elems);
  CodecState state;
  state.residual = residual.view();
  Buffer frame(codec->max_encoded_bytes());
  std::vector<float> grad(num_elems);
  Random random(7, 0);
  double bytes = 0;
  for (int step = 0; step < 300; ++step) {
    for (float& value : grad) value = random.NextNormal();
    EncodeResult result;
    EXPECT_THAT(codec->Encode({grad.data(), 4 * num_elems}, state,
                              {.threshold = 8}, frame.view(), &result, {}),
                IsOk());
    if (step >= 200) bytes += static_cast<double>(result.encoded_bytes);
  }
  return 8 * bytes / 100 / static_cast<double>(num_elems);
}

TEST(CodecBench, SendsListsOfTheSteadyState) {
  const Codec& codec = **FindCodec("threshold");
  const auto bench =
      CodecBench::Make(codec, StandardOptions(codec.traits()),
                       {.num_elems = 1 << 17, .chunk_elems = 1 << 16});
  ASSERT_THAT(bench, IsOk());
  const double bits = BitsAfterManySteps(1 << 14);
  EXPECT_NEAR((*bench)->payload_bits(), bits, 0.05 * bits);
}

TEST(CodecBench, DoesAllThatCodecsDoChunkByChunk) {
  for (const Codec* codec : AllCodecs()) {
    const CodecTraits& traits = codec->traits();
    SCOPED_TRACE(traits.name);
    const auto made = CodecBench::Make(
        *codec, StandardOptions(traits),
        {.num_elems = 3 << 17, .chunk_elems = 1 << 17, .workers = 3});
    ASSERT_THAT(made, IsOk());
    CodecBench& bench = **made;
    EXPECT_EQ(bench.codec().num_elems(), size_t{1} << 17);
    EXPECT_GT(bench.payload_bits(), 0);
    EXPECT_LE(bench.payload_bits(), 33);
    EXPECT_THAT(bench.Encode(), IsOk());
    EXPECT_THAT(bench.Decode(), IsOk());
    EXPECT_THAT(bench.DecodeAdd(), IsOk());
    EXPECT_THAT(bench.Sum(), IsOk());
    EXPECT_THAT(bench.DecodeSum(), IsOk());
    if (traits.lossless) continue;
    EXPECT_THAT(bench.Reencode(), IsOk());
    EXPECT_THAT(bench.ReencodeTwice(), IsOk());
  }
}

TEST(CodecBench, TakesChunksThatAreNoPowerOfTwo) {
  const Codec& codec = **FindCodec("threshold");
  const auto bench =
      CodecBench::Make(codec, StandardOptions(codec.traits()),
                       {.num_elems = 100'000, .chunk_elems = 100'000});
  ASSERT_THAT(bench, IsOk());
  EXPECT_THAT((*bench)->Reencode(), IsOk());
}

}  // namespace
}  // namespace telegrad
