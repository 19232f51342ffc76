#include "compression/powersgd/powersgd_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "compression/codec_spec.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr size_t kElems = 1000;  // [32 x 32], the last row in part

std::unique_ptr<PreparedCodec> Prepare(size_t n, double rank) {
  auto codec = PowerSgdCodec().Prepare(n, Device{}, {.rank = rank});
  EXPECT_THAT(codec, IsOk());
  return *std::move(codec);
}

struct Worker {
  explicit Worker(size_t n) : residual(4 * n) {
    state.residual = residual.view();
  }
  Buffer Encode(const PreparedCodec& codec, const std::vector<float>& grad) {
    Buffer out(codec.max_encoded_bytes());
    EXPECT_THAT(codec.Encode({grad.data(), 4 * grad.size()}, state, params,
                             out.view(), &result, {}),
                IsOk());
    ++params.step;
    return out;
  }
  double Error(size_t n) const {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += std::pow(residual.as<float>()[i], 2);
    }
    return std::sqrt(sum);
  }
  Buffer residual;
  CodecState state;
  EncodeParams params{.stream = 3};
  EncodeResult result;
};

std::vector<float> RandomGradient(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> grad(n);
  for (float& value : grad) value = random.NextNormal();
  return grad;
}

// Sum of `terms` outer products, of lengths 8, 4, 2, ...
std::vector<float> LowRankGradient(size_t n, int terms) {
  Random random(9);
  std::vector<float> grad(n);
  for (int k = 0; k < terms; ++k) {
    std::vector<float> x(64);
    for (float& value : x) value = random.NextNormal();
    for (size_t i = 0; i < n; ++i) {
      grad[i] += std::ldexp(x[i / 32] * x[32 + i % 32], 3 - k);
    }
  }
  return grad;
}

uint8_t SideOf(const Buffer& payload) { return payload.as<uint8_t>()[2]; }

TEST(PowerSgd, BytesAreThoseOfTheFactors) {
  EXPECT_EQ(Prepare(kElems, 2)->max_encoded_bytes(), 4u + 4 * 2 * (32 + 32));
  EXPECT_EQ(Prepare(1, 64)->max_encoded_bytes(), 4u + 4 * (1 + 16));
  // 1000 x 1000 becomes 993 x 1008.
  EXPECT_EQ(Prepare(1000000, 4)->max_encoded_bytes(),
            4u + 4 * 4 * (993 + 1008));
}

TEST(PowerSgd, OptionsAreParsedAndChecked) {
  EXPECT_EQ(ParseCodecSpec("powersgd")->options.rank, 2);
  EXPECT_EQ(ParseCodecSpec("powersgd:4")->options.rank, 4);
  EXPECT_EQ(ParseCodecSpec("powersgd:rank=8")->options.rank, 8);
  EXPECT_FALSE(ParseCodecSpec("powersgd:rank=65").ok());
  EXPECT_FALSE(ParseCodecSpec("powersgd:rank=1.5").ok());
  EXPECT_FALSE(PowerSgdCodec().Prepare(8, Device{}, {.rank = 0}).ok());
}

// What the basis spans is sent exactly; the rest is at right angles to it.
TEST(PowerSgd, TheErrorIsAtRightAnglesToTheBasis) {
  const auto codec = Prepare(kElems, 3);
  Worker worker(kElems);
  const Buffer payload = worker.Encode(*codec, RandomGradient(kElems, 1));
  EXPECT_EQ(worker.result.stats.num_nonzero, 3u * 32);
  const float* basis = payload.as<float>() + 1;
  for (size_t k = 0; k < 3; ++k) {
    for (size_t row = 0; row < 31; ++row) {  // those that are whole
      double dot = 0;
      for (size_t j = 0; j < 32; ++j) {
        dot += basis[32 * k + j] * worker.residual.as<float>()[32 * row + j];
      }
      EXPECT_NEAR(dot, 0, 1e-5) << k << " " << row;
    }
  }
}

// One worker that pushes the same gradient, and forgets its residual: with
// sums the basis turns to the gradient's largest directions, as a power
// iteration does.
TEST(PowerSgd, WhatIsLearnedFindsTheLargestDirections) {
  const auto codec = Prepare(1024, 2);
  const std::vector<float> grad = LowRankGradient(1024, 2);
  Worker worker(1024);
  for (int step = 0; step < 4; ++step) {
    std::memset(worker.residual.data(), 0, worker.residual.size());
    const Buffer sum = worker.Encode(*codec, grad);
    EXPECT_EQ(SideOf(sum), step % 2) << "sides alternate";
    ASSERT_THAT(codec->Learn(sum.view(), 1, worker.state, {}), IsOk());
    if (step == 0) {
      EXPECT_GT(worker.Error(1024), 1.0);
    }
  }
  EXPECT_LT(worker.Error(1024), 1e-3);
}

TEST(PowerSgd, WorkersThatLearnTheSameSumAgree) {
  const size_t n = 999;
  const auto codec = Prepare(n, 4);
  std::vector<Worker> workers;
  for (uint64_t w = 0; w < 3; ++w) {
    workers.emplace_back(n);
    workers.back().params.source = w;
  }
  std::vector<double> total(n), received(n);
  for (uint64_t step = 0; step < 30; ++step) {
    std::vector<Buffer> payloads;
    std::vector<ConstBytes> views;
    for (size_t w = 0; w < workers.size(); ++w) {
      const auto grad = RandomGradient(n, 10 * step + w);
      for (size_t i = 0; i < n; ++i) total[i] += grad[i];
      payloads.push_back(workers[w].Encode(*codec, grad));
      views.push_back(payloads.back().view());
    }
    Buffer sum(codec->sum_bytes(3));
    ASSERT_THAT(codec->SumCodes(views, sum.view(), {}), IsOk()) << step;
    ASSERT_THAT(codec->ValidateSum(sum.view(), 3), IsOk());
    std::vector<float> decoded(n);
    ASSERT_THAT(codec->DecodeSum(sum.view(), 3, 0, {decoded.data(), 4 * n}, {}),
                IsOk());
    for (size_t i = 0; i < n; ++i) received[i] += decoded[i];
    for (Worker& worker : workers) {
      ASSERT_THAT(codec->Learn(sum.view(), 3, worker.state, {}), IsOk());
    }
    // A pull shows one of them the sum again.
    ASSERT_THAT(codec->Learn(sum.view(), 3, workers[0].state, {}), IsOk());
  }
  for (size_t i = 0; i < n; ++i) {
    double rest = 0;
    for (const Worker& worker : workers) rest += worker.residual.as<float>()[i];
    EXPECT_NEAR(received[i] + rest, total[i], 1e-3) << i;
  }
}

TEST(PowerSgd, DifferentBasesCannotBeAdded) {
  const auto codec = Prepare(kElems, 2);
  Worker one(kElems), two(kElems);
  two.params.step = 1;
  const Buffer a = one.Encode(*codec, RandomGradient(kElems, 1));
  const Buffer b = two.Encode(*codec, RandomGradient(kElems, 2));
  Buffer sum(codec->sum_bytes(2));
  const std::vector<ConstBytes> views = {a.view(), b.view()};
  EXPECT_THAT(codec->SumCodes(views, sum.view(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "different bases"));
}

TEST(PowerSgd, PayloadsThatCannotBeAreRefused) {
  const auto codec = Prepare(kElems, 2);
  Worker worker(kElems);
  const Buffer good = worker.Encode(*codec, RandomGradient(kElems, 1));
  const size_t last = good.size() / 4 - 1;
  const auto refuses = [&](auto change) {
    Buffer bad(good.size());
    std::memcpy(bad.data(), good.data(), good.size());
    change(bad);
    return !codec->Validate(bad.view()).ok();
  };
  EXPECT_FALSE(refuses([](const Buffer&) {}));
  EXPECT_TRUE(refuses([](const Buffer& b) { b.as<uint16_t>()[0] = 3; }));
  EXPECT_TRUE(refuses([](const Buffer& b) { b.as<uint8_t>()[2] = 2; }));
  EXPECT_TRUE(refuses([](const Buffer& b) { b.as<uint8_t>()[3] = 1; }));
  EXPECT_TRUE(refuses([](const Buffer& b) { b.as<float>()[1] = 1.01f; }));
  EXPECT_TRUE(refuses([](const Buffer& b) { b.as<float>()[1] = NAN; }));
  EXPECT_TRUE(refuses([&](const Buffer& b) { b.as<float>()[last] = NAN; }));
  EXPECT_TRUE(
      refuses([&](const Buffer& b) { b.as<float>()[last] = INFINITY; }));
  EXPECT_TRUE(refuses([&](const Buffer& b) { b.as<float>()[last] = 1e32f; }));
  EXPECT_FALSE(refuses([&](const Buffer& b) { b.as<float>()[last] = 1e31f; }));
}

TEST(PowerSgd, HugeGradientsStayFinite) {
  const auto codec = Prepare(kElems, 2);
  Worker worker(kElems);
  const Buffer payload =
      worker.Encode(*codec, std::vector<float>(kElems, 1e38f));
  ASSERT_THAT(codec->Validate(payload.view()), IsOk());
  const std::vector<ConstBytes> views(300, payload.view());
  std::vector<float> out(kElems);
  ASSERT_THAT(codec->SumDecode(views, 0, {out.data(), 4 * kElems}, {}), IsOk());
  for (const float value : out) ASSERT_TRUE(std::isfinite(value));
}

// With all ranks nothing is left.
TEST(PowerSgd, FullRankIsTheGradient) {
  const size_t n = 256;
  const auto codec = Prepare(n, 16);
  Worker worker(n);
  worker.Encode(*codec, RandomGradient(n, 4));
  EXPECT_LT(worker.Error(n), 1e-4);
}

}  // namespace
}  // namespace telegrad
