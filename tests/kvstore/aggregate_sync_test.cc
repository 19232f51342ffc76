#include "kvstore/ps/aggregate_sync.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "tests/kvstore/oracle.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;
using Verdict = bool;  // whether it is a duplicate
constexpr Verdict kAccept = false;
constexpr Verdict kDuplicate = true;

constexpr size_t kElems = 37;
constexpr int kWorkers = 3;

// One chunk of one tensor, and the frames that workers would send.
class Round : public ::testing::Test, public AnswerSink {
 protected:
  void Make(const std::string& type, ReplyMode reply,
            ThresholdSpec threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f},
            OptimizerConfig optimizer = {}) {
    config_ = {.num_contributors = kWorkers, .buffers = &pool_};
    config_.compression.type = type;
    config_.compression.reply = reply;
    config_.compression.threshold = threshold;
    config_.optimizer = optimizer;
    const Codec* codec = *FindCodec(type);
    codec_ = *codec->Prepare(kElems, Device{});
    format_ = FormatOf(codec->traits(), config_.compression, optimizer);
    Open({.codec = codec,
          .options = StandardOptions(codec->traits()),
          .threshold = config_.compression.threshold});
  }

  void Open(const CodecSetting& setting) {
    rounds_ = std::make_unique<SyncAggregator>(
        *ChunkSum::Make({.codecs = {setting}}, Chunk{.num_elems = kElems},
                        config_),
        config_);
  }

  FrameHeader Header(uint64_t step = 0) const {
    const CodecTraits& traits = codec_->traits();
    FrameHeader header;
    header.step = step;
    header.payload_bytes = static_cast<uint32_t>(codec_->max_encoded_bytes());
    header.contributors = 1;
    header.codec = static_cast<uint8_t>(traits.id);
    header.codec_version = traits.wire_version;
    header.reply_format = static_cast<uint8_t>(format_);
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

  // Whether it is a duplicate.
  absl::StatusOr<Verdict> Begin(int worker, const FrameHeader& header) {
    ASSIGN_OR_RETURN(const PushHeader push, PushOf(header));
    ASSIGN_OR_RETURN(const Aggregator::Admission admission,
                     rounds_->Admit(worker, push));
    if (!admission.is_duplicate) target_ = admission.target;
    return admission.is_duplicate;
  }

  absl::StatusOr<bool> Propose(int worker, int16_t scale) {
    FrameHeader header = Header();
    header.proposed_scale = scale;
    ASSIGN_OR_RETURN(const PushHeader push, PushOf(header));
    agreed_.reset();
    RETURN_IF_ERROR(rounds_->OnPropose(worker, push, *this));
    return agreed_.has_value();
  }

  // True when the round is complete.
  bool Push(int worker, const FrameHeader& header, const Buffer& payload) {
    const auto verdict = Begin(worker, header);
    EXPECT_THAT(verdict, IsOk());
    EXPECT_EQ(*verdict, kAccept);
    std::memcpy(target_.data, payload.data(), payload.size());
    const absl::StatusOr<bool> is_due = rounds_->OnPushed(worker, false);
    EXPECT_THAT(is_due, IsOk());
    return *is_due;
  }

  // What all workers get.
  std::vector<std::byte> Finish() {
    answers_.clear();
    rounds_->Complete(*this);
    EXPECT_EQ(answers_.size(), size_t{kWorkers});
    return answers_.at(0);
  }

  void Send(const Chunk&, const PayloadFormat&, const Answer& answer) override {
    const ConstBytes payload = answer.result.chunk.payload;
    answers_.emplace_back(payload.data, payload.data + payload.size);
    last_ = answer.result.chunk.record;
    if (answer.type == FrameType::kAgree) agreed_ = last_.settings.scale;
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
  EngineConfig config_;
  std::unique_ptr<PreparedCodec> codec_;
  std::unique_ptr<SyncAggregator> rounds_;
  Bytes target_;  // of the last push that was admitted
  std::vector<std::vector<std::byte>> answers_;
  std::optional<int16_t> agreed_;
  ReplyFormat format_ = ReplyFormat::kDense;
  ReplyRecord last_;
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
    Open(setting);
    FrameHeader header = Header();
    const auto refuses = [&](uint8_t wrong) {
      FrameHeader bad = header;
      bad.packing = wrong;
      EXPECT_THAT(Begin(1, bad),
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
    EXPECT_EQ(*Begin(1, header), kDuplicate);
  }
  EXPECT_FALSE(Push(0, header, Payload(0, 0)));
  EXPECT_TRUE(Push(2, header, Payload(2, 0)));
  const std::vector<std::byte> with_duplicates = Finish();
  Make("2bit", ReplyMode::kSum);
  EXPECT_EQ(RunRound({0, 1, 2}, 0), with_duplicates);
}

TEST_F(Round, IgnoresAPushThatIsStillArriving) {
  Make("2bit", ReplyMode::kSum);
  EXPECT_EQ(*Begin(0, Header()), kAccept);
  EXPECT_EQ(*Begin(0, Header()), kDuplicate);
}

TEST_F(Round, IgnoresOldStepsAndRefusesNewOnes) {
  Make("none", ReplyMode::kDense);
  RunRound({0, 1, 2}, 0);
  RunRound({0, 1, 2}, 1);
  EXPECT_EQ(rounds_->num_rounds(), 2u);
  EXPECT_EQ(*Begin(0, Header(0)), kDuplicate);
  EXPECT_EQ(*Begin(0, Header(1)), kDuplicate);
  for (const uint64_t step : {uint64_t{3}, uint64_t{4}, UINT64_MAX}) {
    EXPECT_THAT(Begin(0, Header(step)),
                StatusIs(absl::StatusCode::kInvalidArgument, "step"));
  }
  EXPECT_EQ(*Begin(0, Header(2)), kAccept);
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
      [](FrameHeader& h) { h.reply_format = 0; },
      [](FrameHeader& h) { h.reply_format = 9; },
      [](FrameHeader& h) { h.scale = 0; },
      [](FrameHeader& h) { h.proposed_scale = kMaxScale + 1; },
      [](FrameHeader& h) { h.proposed_scale = kMinScale - 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    FrameHeader header = Header();
    changes[i](header);
    EXPECT_THAT(Begin(0, header),
                StatusIs(absl::StatusCode::kInvalidArgument, "push"))
        << i;
  }
  EXPECT_EQ(*Begin(0, Header()), kAccept);
}

TEST_F(Round, RefusesWishesForCodecsThatItHasNot) {
  Make("2bit", ReplyMode::kSum);
  FrameHeader header = Header();
  header.proposed_mode = CodecMode::kAlternative;
  EXPECT_THAT(Begin(0, header),
              StatusIs(absl::StatusCode::kInvalidArgument, "mode 3"));
  header.proposed_mode = CodecMode::kPaused;
  EXPECT_THAT(Begin(0, header), IsOk());
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

TEST_F(Round, TakesOneValueAtATimeBetweenRounds) {
  Make("none", ReplyMode::kDense);
  const size_t bytes = 4 * kElems;
  EXPECT_FALSE(rounds_->OnPull(1, {.step = 0}, *this).ok());  // none yet
  EXPECT_FALSE(rounds_->BeginValue(0, bytes - 4).ok());
  EXPECT_FALSE(rounds_->BeginValue(0, bytes + 4).ok());
  EXPECT_FALSE(rounds_->BeginValue(1, bytes).ok());
  EXPECT_THAT(rounds_->BeginValue(0, bytes), IsOk());
  EXPECT_FALSE(rounds_->BeginValue(0, bytes).ok());  // while it arrives
  EXPECT_THAT(rounds_->OnValue(0, 0, *this), IsOk());
  EXPECT_FALSE(rounds_->BeginValue(0, bytes).ok());
  EXPECT_EQ(*Begin(2, Header()), kAccept);
  EXPECT_FALSE(rounds_->BeginValue(1, bytes).ok());  // while a push arrives
}

// Who was fast may give the next value, from its own worker, before all others
// have asked for the one before.
TEST_F(Round, KeepsAValueUntilAllHaveIt) {
  Make("none", ReplyMode::kDense);
  const auto give = [this](int worker, uint64_t index) {
    const absl::StatusOr<Bytes> target = rounds_->BeginValue(index, 4 * kElems);
    ASSERT_THAT(target, IsOk());
    target->data[0] = static_cast<std::byte>(index);
    answers_.clear();
    EXPECT_THAT(rounds_->OnValue(worker, 0, *this), IsOk());
  };
  const auto take = [this](int worker, uint64_t index) {
    answers_.clear();
    EXPECT_THAT(rounds_->OnPull(
                    worker, {.step = index, .wants_broadcast = true}, *this),
                IsOk());
  };
  give(0, 0);
  take(1, 0);
  ASSERT_EQ(answers_.size(), 1u);
  give(1, 1);
  EXPECT_TRUE(answers_.empty());
  EXPECT_FALSE(rounds_->BeginValue(1, 4 * kElems).ok());  // it is there
  take(0, 1);
  EXPECT_TRUE(answers_.empty());
  take(2, 0);
  ASSERT_EQ(answers_.size(), 3u);  // worker 2, then who gave, and worker 0
  EXPECT_EQ(answers_[0][0], std::byte{0});
  EXPECT_EQ(answers_[2][0], std::byte{1});
  take(2, 1);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0][0], std::byte{1});
}

TEST_F(Round, AnswersPullsWhenThereIsWhatTheyWant) {
  Make("none", ReplyMode::kDense);
  const PullHeader pull{.step = 0, .wants_broadcast = true};
  EXPECT_THAT(rounds_->OnPull(2, pull, *this), IsOk());
  EXPECT_TRUE(answers_.empty());
  EXPECT_THAT(rounds_->OnPull(2, pull, *this),
              StatusIs(absl::StatusCode::kInvalidArgument, "second pull"));
  EXPECT_THAT(rounds_->OnPull(1, {.step = 1, .wants_broadcast = true}, *this),
              StatusIs(absl::StatusCode::kInvalidArgument, "broadcasts"));
  const absl::StatusOr<Bytes> target = rounds_->BeginValue(0, 4 * kElems);
  ASSERT_THAT(target, IsOk());
  target->data[0] = std::byte{7};
  EXPECT_THAT(rounds_->OnValue(0, 0, *this), IsOk());
  ASSERT_EQ(answers_.size(), 2u);  // whose value it is, and worker 2
  EXPECT_EQ(answers_[1][0], std::byte{7});
  const std::vector<std::byte> sums = RunRound({0, 1, 2}, 0);
  answers_.clear();
  EXPECT_THAT(rounds_->OnPull(1, {.step = 1}, *this), IsOk());
  EXPECT_THAT(answers_, ::testing::ElementsAre(sums));
  EXPECT_THAT(rounds_->OnPull(1, {.step = 0}, *this),
              StatusIs(absl::StatusCode::kInvalidArgument, "rounds"));
}

// Nothing of a header that is refused stays.
TEST_F(Round, KeepsThePackingOpenAfterAPushThatIsRefused) {
  const Codec* codec = *FindCodec("2bit");
  Make("2bit", ReplyMode::kSum);
  Open({.codec = codec,
        .options = StandardOptions(codec->traits()),
        .threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f},
        .is_packing_open = true});
  FrameHeader radix = Header();  // with the size of plain codes
  radix.packing = 1;
  EXPECT_THAT(Begin(0, radix),
              StatusIs(absl::StatusCode::kInvalidArgument, "packing"));
  EXPECT_EQ(*Begin(0, Header()), kAccept);
}

TEST_F(Round, AgreesOnTheLargestWishTwoRoundsLater) {
  Make("2bit", ReplyMode::kSum, {});
  EXPECT_FALSE(Begin(0, Header()).ok());  // nothing agreed yet
  EXPECT_FALSE(*Propose(0, -4));
  EXPECT_FALSE(Propose(0, -4).ok());  // once per worker
  EXPECT_FALSE(Propose(1, kMaxScale + 1).ok());
  EXPECT_FALSE(Propose(1, kFixedScale).ok());
  EXPECT_FALSE(*Propose(1, -6));
  EXPECT_TRUE(*Propose(2, kNoScale));
  EXPECT_EQ(agreed_, -4);
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
      EXPECT_FALSE(Begin(worker, header).ok());
      header.scale = in_force[step];
      Push(worker, header, Payload(worker, static_cast<int>(step)));
    }
    Finish();
    EXPECT_EQ(last_.settings.scale, in_force[step]) << step;
  }
}

TEST_F(Round, KeepsTheDefaultScaleWithoutWishes) {
  Make("2bit", ReplyMode::kSum, {});
  for (int worker = 0; worker < kWorkers; ++worker) {
    EXPECT_EQ(*Propose(worker, kNoScale), worker == kWorkers - 1);
  }
  EXPECT_EQ(agreed_, kDefaultScale);
}

TEST_F(Round, FindsPayloadsThatAreNoCodes) {
  Make("2bit", ReplyMode::kSum);
  ASSERT_EQ(*Begin(0, Header()), kAccept);
  const Bytes target = target_;
  std::memset(target.data, 0, target.size);
  target.data[0] = std::byte{0x40};  // code 01
  EXPECT_FALSE(rounds_->OnPushed(0, false).ok());
  target.data[0] = std::byte{0};
  target.data[target.size - 1] = std::byte{3};  // behind the end
  EXPECT_FALSE(rounds_->OnPushed(0, false).ok());
  target.data[target.size - 1] = std::byte{0};
  EXPECT_THAT(rounds_->OnPushed(0, false), IsOk());
}

}  // namespace
}  // namespace telegrad
