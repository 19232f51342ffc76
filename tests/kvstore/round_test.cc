#include "kvstore/dist/round.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/kvstore/oracle.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;
using Verdict = ChunkRounds::Verdict;

constexpr size_t kElems = 37;
constexpr int kWorkers = 3;

// One chunk of one tensor, and the frames that workers would send.
class Round : public ::testing::Test {
 protected:
  void Make(const std::string& type, ReplyMode reply,
            ThresholdSpec threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f},
            OptimizerConfig optimizer = {}) {
    config_ = {};
    config_.compression.type = type;
    config_.compression.reply = reply;
    config_.compression.threshold = threshold;
    config_.optimizer = optimizer;
    const Codec* codec = *FindCodec(type);
    codec_ = *codec->Prepare(kElems, Device{});
    format_ = FormatOf(codec->traits(), config_.compression, optimizer);
    rounds_ = std::make_unique<ChunkRounds>(
        Chunk{.num_elems = kElems},
        *Stages::Make(
            {.codecs = {{.codec = codec,
                         .options = StandardOptions(codec->traits()),
                         .threshold = config_.compression.threshold}}},
            kElems, config_.compression, optimizer),
        config_, kWorkers, &pool_);
  }

  FrameHeader Header(uint64_t step = 0) const {
    const CodecTraits& traits = codec_->traits();
    FrameHeader header;
    header.step = step;
    header.payload_bytes = static_cast<uint32_t>(codec_->max_encoded_bytes());
    header.contributors = 1;
    header.codec = static_cast<uint8_t>(traits.id);
    header.codec_version = traits.wire_version;
    header.reply_mode = static_cast<uint8_t>(format_);
    return header;
  }

  // A worker's gradient at `step`, encoded with an empty residual.
  Buffer Payload(int worker, int step, float threshold = 0.5f) const {
    Buffer grad(4 * kElems);
    for (size_t i = 0; i < kElems; ++i) {
      grad.as<float>()[i] = 64 * testing::GradOf(worker, step, i);
    }
    if (codec_->traits().lossless) return grad;
    Buffer residual(4 * kElems);
    Buffer out(codec_->max_encoded_bytes());
    CodecState state{residual.view()};
    EncodeResult result;
    EXPECT_THAT(codec_->Encode(grad.view(), state, {.threshold = threshold},
                               out.view(), &result, {}),
                IsOk());
    return out;
  }

  // True when the round is complete.
  bool Push(int worker, const FrameHeader& header, const Buffer& payload) {
    const auto verdict = rounds_->Begin(worker, header);
    EXPECT_THAT(verdict, IsOk());
    EXPECT_EQ(*verdict, Verdict::kAccept);
    std::memcpy(rounds_->PushTarget(worker).data, payload.data(),
                payload.size());
    EXPECT_THAT(rounds_->Validate(worker), IsOk());
    return rounds_->Arrive(worker, header);
  }

  std::vector<std::byte> Finish() {
    auto result = rounds_->Sum();
    EXPECT_THAT(result, IsOk());
    const ConstBytes payload = result->payload;
    std::vector<std::byte> bytes(payload.data, payload.data + payload.size);
    last_ = *result;
    rounds_->Finish(*std::move(result));
    return bytes;
  }

  // One whole round, workers in the given order.
  std::vector<std::byte> RunRound(const std::vector<int>& order, int step) {
    const auto at = static_cast<uint64_t>(step);
    for (size_t i = 0; i < order.size(); ++i) {
      const bool is_last = i + 1 == order.size();
      EXPECT_EQ(Push(order[i], Header(at), Payload(order[i], step)), is_last);
    }
    return Finish();
  }

  BufferPool pool_;
  JobConfig config_;
  std::unique_ptr<PreparedCodec> codec_;
  std::unique_ptr<ChunkRounds> rounds_;
  ReplyFormat format_ = ReplyFormat::kDense;
  RoundResult last_;
};

// What the first push says holds, of those that the codec has.
TEST_F(Round, TakesAnOpenPackingFromTheFirstPush) {
  const Codec* codec = *FindCodec("2bit");
  const CodecSetting setting{
      .codec = codec,
      .options = StandardOptions(codec->traits()),
      .threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f},
      .is_packing_open = true};
  for (const bool is_radix : {false, true}) {
    const uint8_t packing = is_radix ? 1 : 0;
    const uint8_t other = is_radix ? 0 : 1;
    Make("2bit", ReplyMode::kSum);
    CodecOptions options = setting.options;
    options.packing = packing;
    codec_ = *codec->Prepare(kElems, Device{}, options);
    rounds_ = std::make_unique<ChunkRounds>(
        Chunk{.num_elems = kElems},
        *Stages::Make({.codecs = {setting}}, kElems, config_.compression, {}),
        config_, kWorkers, &pool_);
    FrameHeader header = Header();
    const auto refuses = [&](uint8_t wrong) {
      FrameHeader bad = header;
      bad.packing = wrong;
      EXPECT_THAT(rounds_->Begin(1, bad),
                  StatusIs(absl::StatusCode::kInvalidArgument, "packing"));
    };
    refuses(2);
    header.packing = packing;
    EXPECT_FALSE(Push(0, header, Payload(0, 0)));
    refuses(other);
    EXPECT_FALSE(Push(1, header, Payload(1, 0)));
    EXPECT_TRUE(Push(2, header, Payload(2, 0)));
    EXPECT_EQ(Finish().size(), codec_->sum_bytes(kWorkers));
    header.step = 1;
    refuses(other);
    EXPECT_FALSE(Push(1, header, Payload(1, 1)));
  }
}

TEST_F(Round, CountsDistinctWorkers) {
  Make("2bit", ReplyMode::kSum);
  const FrameHeader header = Header();
  EXPECT_FALSE(Push(1, header, Payload(1, 0)));
  for (int i = 0; i < 5; ++i) {  // the same push again is no other worker
    EXPECT_EQ(*rounds_->Begin(1, header), Verdict::kDuplicate);
  }
  EXPECT_FALSE(Push(0, header, Payload(0, 0)));
  EXPECT_TRUE(Push(2, header, Payload(2, 0)));
  const std::vector<std::byte> with_duplicates = Finish();
  Make("2bit", ReplyMode::kSum);
  EXPECT_EQ(RunRound({0, 1, 2}, 0), with_duplicates);
}

TEST_F(Round, IgnoresAPushThatIsStillArriving) {
  Make("2bit", ReplyMode::kSum);
  EXPECT_EQ(*rounds_->Begin(0, Header()), Verdict::kAccept);
  EXPECT_EQ(*rounds_->Begin(0, Header()), Verdict::kDuplicate);
}

TEST_F(Round, IgnoresOldStepsAndRefusesNewOnes) {
  Make("none", ReplyMode::kDense);
  RunRound({0, 1, 2}, 0);
  RunRound({0, 1, 2}, 1);
  EXPECT_EQ(rounds_->step(), 2u);
  EXPECT_EQ(*rounds_->Begin(0, Header(0)), Verdict::kDuplicate);
  EXPECT_EQ(*rounds_->Begin(0, Header(1)), Verdict::kDuplicate);
  for (const uint64_t step : {uint64_t{3}, uint64_t{4}, UINT64_MAX}) {
    EXPECT_THAT(rounds_->Begin(0, Header(step)),
                StatusIs(absl::StatusCode::kInvalidArgument, "step"));
  }
  EXPECT_EQ(*rounds_->Begin(0, Header(2)), Verdict::kAccept);
}

TEST_F(Round, RefusesPushesOfAnotherShape) {
  Make("2bit", ReplyMode::kSum);
  const std::vector<void (*)(FrameHeader&)> changes = {
      [](FrameHeader& h) { --h.payload_bytes; },
      [](FrameHeader& h) { ++h.payload_bytes; },
      [](FrameHeader& h) { h.payload_bytes = 0; },
      [](FrameHeader& h) { h.codec = 0; },
      [](FrameHeader& h) { h.codec = 200; },
      [](FrameHeader& h) { ++h.codec_version; },
      [](FrameHeader& h) { h.packing = 1; },
      [](FrameHeader& h) { h.contributors = 2; },
      [](FrameHeader& h) { h.contributors = 0; },
      [](FrameHeader& h) { h.reply_mode = 0; },
      [](FrameHeader& h) { h.reply_mode = 9; },
      [](FrameHeader& h) { h.scale = 0; },
      [](FrameHeader& h) { h.proposed_scale = kMaxScale + 1; },
      [](FrameHeader& h) { h.proposed_scale = kMinScale - 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    FrameHeader header = Header();
    changes[i](header);
    EXPECT_THAT(rounds_->Begin(0, header),
                StatusIs(absl::StatusCode::kInvalidArgument, "push"))
        << i;
  }
  EXPECT_EQ(*rounds_->Begin(0, Header()), Verdict::kAccept);
}

TEST_F(Round, RefusesWishesForCodecsThatItHasNot) {
  Make("2bit", ReplyMode::kSum);
  FrameHeader header = Header();
  header.proposed_stage = ChunkStage::kAlternative;
  EXPECT_THAT(rounds_->Begin(0, header),
              StatusIs(absl::StatusCode::kInvalidArgument, "stage 3"));
  header.proposed_stage = ChunkStage::kPaused;
  EXPECT_THAT(rounds_->Begin(0, header), IsOk());
}

TEST_F(Round, SumsDoNotDependOnTheOrderOfArrival) {
  const std::vector<std::pair<std::string, ReplyMode>> cases = {
      {"none", ReplyMode::kDense},
      {"2bit", ReplyMode::kSum},
      {"2bit", ReplyMode::kReencode},
      {"2bit", ReplyMode::kDense}};
  for (const auto& [type, reply] : cases) {
    std::vector<std::vector<std::byte>> first;
    std::vector<int> order = {0, 1, 2};
    do {
      Make(type, reply);
      for (int step = 0; step < 4; ++step) {
        const std::vector<std::byte> bytes = RunRound(order, step);
        const auto at = static_cast<size_t>(step);
        if (first.size() <= at) first.push_back(bytes);
        EXPECT_EQ(bytes, first[at]) << type << " " << ToString(reply);
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_F(Round, AddsUncompressedGradientsInRankOrder) {
  Make("none", ReplyMode::kDense);
  // 1e8 swallows 1 but not what is left after -1e8: the order shows.
  const float values[kWorkers] = {1e8f, 1.0f, -1e8f};
  for (const int worker : {2, 1, 0}) {
    Buffer payload(4 * kElems);
    std::fill_n(payload.as<float>(), kElems, values[worker]);
    Push(worker, Header(), payload);
  }
  const std::vector<std::byte> bytes = Finish();
  const float expected = (values[0] + values[1]) + values[2];
  EXPECT_EQ(std::memcmp(bytes.data(), &expected, 4), 0);
}

TEST_F(Round, UpdatesWeightsAsSgdDoes) {
  const OptimizerConfig on_server{.update_on = UpdateOn::kServer,
                                  .sgd = {.learning_rate = 0.1f,
                                          .momentum_rate = 0.9f,
                                          .weight_decay = 0.01f,
                                          .rescale = 0.25f}};
  Make("none", ReplyMode::kDense, {}, on_server);
  for (int worker = 0; worker < kWorkers; ++worker) {
    Push(worker, Header(), Payload(worker, 0));
  }
  EXPECT_THAT(rounds_->Sum(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "weights"));
  Make("none", ReplyMode::kDense, {}, on_server);
  const absl::StatusOr<Bytes> target = rounds_->BeginValue(4 * kElems);
  ASSERT_THAT(target, IsOk());
  std::vector<float> weights(kElems);
  std::iota(weights.begin(), weights.end(), -7.0f);
  std::memcpy(target->data, weights.data(), 4 * kElems);
  rounds_->FinishValue();
  testing::SgdOracle sgd(weights, on_server.sgd);
  for (int step = 0; step < 5; ++step) {
    std::vector<float> sum(kElems);
    for (int worker = 0; worker < kWorkers; ++worker) {
      for (size_t i = 0; i < kElems; ++i) {
        sum[i] += 64 * testing::GradOf(worker, step, i);
      }
    }
    const std::vector<std::byte> bytes = RunRound({2, 0, 1}, step);
    const std::vector<float>& expected = sgd.Update(sum);
    EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), 4 * kElems), 0)
        << step;
  }
}

TEST_F(Round, TakesOneInitialValueOnly) {
  Make("none", ReplyMode::kDense);
  EXPECT_EQ(rounds_->current(), nullptr);
  EXPECT_FALSE(rounds_->BeginValue(4 * kElems - 4).ok());
  EXPECT_FALSE(rounds_->BeginValue(4 * kElems + 4).ok());
  EXPECT_THAT(rounds_->BeginValue(4 * kElems), IsOk());
  EXPECT_FALSE(rounds_->BeginValue(4 * kElems).ok());  // while it arrives
  rounds_->FinishValue();
  ASSERT_NE(rounds_->current(), nullptr);
  EXPECT_FALSE(rounds_->BeginValue(4 * kElems).ok());
}

TEST_F(Round, AgreesOnTheLargestWishTwoRoundsLater) {
  Make("2bit", ReplyMode::kSum, {});
  EXPECT_FALSE(rounds_->Begin(0, Header()).ok());  // nothing agreed yet
  EXPECT_FALSE(*rounds_->Propose(0, -4));
  EXPECT_FALSE(rounds_->Propose(0, -4).ok());  // once per worker
  EXPECT_FALSE(rounds_->Propose(1, kMaxScale + 1).ok());
  EXPECT_FALSE(rounds_->Propose(1, kFixedScale).ok());
  EXPECT_FALSE(*rounds_->Propose(1, -6));
  EXPECT_TRUE(*rounds_->Propose(2, kNoScale));
  EXPECT_EQ(rounds_->AgreedScale(), -4);
  // Wishes by step and worker, and the scale in force at each step.
  const int16_t wishes[][kWorkers] = {
      {-3, -9, kNoScale}, {kNoScale, kNoScale, kNoScale},
      {-8, -8, -7},       {kMinScale, kMaxScale, 0},
      {0, 0, 0},          {0, 0, 0}};
  const int16_t in_force[] = {-4, -4, -3, -4, -7, kMaxScale};
  for (uint64_t step = 0; step < 6; ++step) {
    for (int worker = 0; worker < kWorkers; ++worker) {
      FrameHeader header = Header(step);
      header.proposed_scale = wishes[step][worker];
      header.scale = static_cast<int16_t>(in_force[step] + 1);
      EXPECT_FALSE(rounds_->Begin(worker, header).ok());
      header.scale = in_force[step];
      Push(worker, header, Payload(worker, static_cast<int>(step)));
    }
    Finish();
    EXPECT_EQ(last_.scale, in_force[step]) << step;
  }
}

TEST_F(Round, KeepsTheDefaultScaleWithoutWishes) {
  Make("2bit", ReplyMode::kSum, {});
  for (int worker = 0; worker < kWorkers; ++worker) {
    EXPECT_EQ(*rounds_->Propose(worker, kNoScale), worker == kWorkers - 1);
  }
  EXPECT_EQ(rounds_->AgreedScale(), kDefaultScale);
}

TEST_F(Round, FindsPayloadsThatAreNoCodes) {
  Make("2bit", ReplyMode::kSum);
  ASSERT_EQ(*rounds_->Begin(0, Header()), Verdict::kAccept);
  const Bytes target = rounds_->PushTarget(0);
  std::memset(target.data, 0, target.size);
  EXPECT_THAT(rounds_->Validate(0), IsOk());
  target.data[0] = std::byte{0x40};  // code 01
  EXPECT_FALSE(rounds_->Validate(0).ok());
  target.data[0] = std::byte{0};
  target.data[target.size - 1] = std::byte{3};  // behind the end
  EXPECT_FALSE(rounds_->Validate(0).ok());
}

}  // namespace
}  // namespace telegrad
