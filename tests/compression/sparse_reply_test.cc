// What servers reply of topk and dgc.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "compression/codec_spec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;

constexpr size_t kElems = 4000;
constexpr uint32_t kWorkers = 4;
constexpr size_t kSteps = 3;

struct Case {
  const char* spec;
  uint32_t count;  // elements of a reply; 0: all that were pushed
};

// Workers and a server of one chunk.
class Exchange {
 public:
  explicit Exchange(const char* text)
      : states_(kWorkers), residuals_(kWorkers, std::vector<float>(kElems)) {
    const auto spec = ParseCodecSpec(text);
    EXPECT_THAT(spec, IsOk());
    codec_ = *spec->codec->Prepare(kElems, Device{}, spec->options);
    for (uint32_t w = 0; w < kWorkers; ++w) {
      states_[w].residual = {residuals_[w].data(), 4 * kElems};
    }
  }

  void Push(Random& random) {
    pushed_.assign(kWorkers, std::string(codec_->max_encoded_bytes(), 0));
    for (uint32_t w = 0; w < kWorkers; ++w) {
      std::vector<float> grad(kElems);
      for (float& each : grad) each = random.NextNormal();
      EncodeResult result;
      ASSERT_THAT(
          codec_->Encode({grad.data(), 4 * kElems}, states_[w],
                         {.step = step_, .source = w},
                         {pushed_[w].data(), pushed_[w].size()}, &result, {}),
          IsOk());
      pushed_[w].resize(result.encoded_bytes);
    }
    ++step_;
  }

  std::vector<float> Sum() const {
    std::vector<float> sum(kElems);
    EXPECT_THAT(codec_->SumDecode(Payloads(), 0, {sum.data(), 4 * kElems}, {}),
                IsOk());
    return sum;
  }

  // Decoded, and how many elements it has.
  std::vector<float> Reply(uint32_t* count) {
    std::string reply(codec_->max_reencoded_bytes(kWorkers), '\xff');
    size_t num_bytes = 0;
    EXPECT_THAT(
        codec_->Reencode(Payloads(), {.source = kServerSource}, 0, server_,
                         {reply.data(), reply.size()}, &num_bytes, {}),
        IsOk());
    const ConstBytes payload(reply.data(), num_bytes);
    EXPECT_THAT(codec_->Validate(payload), IsOk());
    std::memcpy(count, reply.data() + 4, sizeof(*count));
    std::vector<float> out(kElems);
    EXPECT_THAT(codec_->Decode(payload, 0, {out.data(), 4 * kElems}, {}),
                IsOk());
    return out;
  }

 private:
  std::vector<ConstBytes> Payloads() const {
    std::vector<ConstBytes> payloads;
    for (const std::string& each : pushed_) {
      payloads.emplace_back(each.data(), each.size());
    }
    return payloads;
  }

  std::unique_ptr<PreparedCodec> codec_;
  std::vector<CodecState> states_;
  std::vector<std::vector<float>> residuals_;
  std::vector<std::string> pushed_;
  ReencodeState server_;
  uint64_t step_ = 0;
};

TEST(SparseReplies, AreExactSumsUnlessTheyAreToBeLess) {
  for (const Case& tried :
       {Case{"topk:0.01", 0}, Case{"topk:0.01:sampled=1", 0},
        Case{"topk:0.4", 0}, Case{"dgc:0.01", 0}, Case{"dgc:0.001:warmup=4", 0},
        Case{"topk:0.01:reply=4", 0}, Case{"topk:0.01:reply=1", 40},
        Case{"dgc:0.01:sampled=0:reply=2", 80}}) {
    SCOPED_TRACE(tried.spec);
    Exchange exchange(tried.spec);
    Random random(3, 3);
    for (size_t step = 0; step < kSteps; ++step) {
      ASSERT_NO_FATAL_FAILURE(exchange.Push(random));
      uint32_t count = 0;
      const std::vector<float> reply = exchange.Reply(&count);
      if (tried.count == 0) {
        EXPECT_EQ(reply, exchange.Sum());
      } else {
        EXPECT_EQ(count, tried.count);
      }
    }
  }
}

}  // namespace
}  // namespace telegrad
