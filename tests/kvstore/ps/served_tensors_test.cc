#include "kvstore/ps/server/served_tensors.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/ps/wire/json_fields.h"
#include "tests/testing/status_matchers.h"

// What a server makes of what worker 0 declares.
namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr auto kRefused = absl::StatusCode::kInvalidArgument;
constexpr int64_t kPlentyOfBytes = int64_t{1} << 40;

JobConfig Declaring(std::vector<TensorSpec> tensors) {
  JobConfig config;
  config.tensors = std::move(tensors);
  config.compression.type = "none";
  config.optimizer = {.update_on = UpdateOn::kServer,
                      .sgd = {.learning_rate = 1}};
  config.chunk_elems = 32;
  config.has_values = true;
  return config;
}

absl::Status Tell(ServedTensors& tensors, FrameType type,
                  const std::string& text) {
  return tensors.Apply({.type = type}, {text.data(), text.size()});
}

absl::Status Declare(ServedTensors& tensors, const JobConfig& config) {
  return Tell(tensors, FrameType::kDeclare, SerializeJobConfig(config));
}

TEST(ServedTensors, OfAllDeclarationsTogetherHaveALimit) {
  ServedTensors tensors(0, 1, 2, 400);
  EXPECT_THAT(Declare(tensors, Declaring({{"a", 60}})), IsOk());
  EXPECT_THAT(
      Declare(tensors, Declaring({{"b", 41}})),
      StatusIs(absl::StatusCode::kResourceExhausted, "--max-model-bytes"));
  EXPECT_THAT(Declare(tensors, Declaring({{"b", 40}})), IsOk());
}

// Those without elements are within any limit of bytes.
TEST(ServedTensors, OfAllDeclarationsTogetherAreSoMany) {
  ServedTensors tensors(0, 1, 2, 400);
  std::string text = SerializeJobConfig(Declaring({{"a", 0}}));
  EXPECT_THAT(Tell(tensors, FrameType::kDeclare, text), IsOk());
  EXPECT_THAT(tensors.Find({.key = 0, .chunk = 0}),
              StatusIs(kRefused, "is not served here"));
  std::string many;
  for (size_t i = 1; i < kMaxTensors; ++i) many += R"(["a",0],)";
  const std::string one = R"(["a",0])";
  text.insert(text.find(one), many);
  EXPECT_THAT(Tell(tensors, FrameType::kDeclare, text),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "1048576 tensors beside 1; at most 1048576"));
  EXPECT_THAT(Declare(tensors, Declaring({{"b", 100}})), IsOk());
}

TEST(ServedTensors, AreTheFirstDeclarationsSettings) {
  ServedTensors tensors(0, 1, 2, kPlentyOfBytes);
  ASSERT_THAT(Declare(tensors, Declaring({{"a", 60}})), IsOk());
  JobConfig other = Declaring({{"b", 60}});
  other.has_values = false;  // may differ
  EXPECT_THAT(Declare(tensors, other), IsOk());
  other.compression.type = "2bit";
  EXPECT_THAT(Declare(tensors, other), StatusIs(kRefused, "other settings"));
}

class NoSink : public AnswerSink {
  void Send(const Chunk&, const PayloadFormat&, const Answer&) override {}
};

// Gives the weights of tensor 0, which has one chunk.
void Give(ServedTensors& tensors, float value) {
  NoSink sink;
  Aggregator& chunk = *(*tensors.Find({.key = 0}))->aggregator;
  const auto target = chunk.BeginValue(0, 4 * 20);
  ASSERT_THAT(target, IsOk());
  std::fill_n(reinterpret_cast<float*>(target->data), 20, value);
  EXPECT_THAT(chunk.OnValue(0, 0, sink), IsOk());
}

// Through two epochs, of the second of which nobody declares anything; but not
// where the tensor is another one, and not those of synchronous stores.
TEST(ServedTensors, OfAsynchronousStoresOutliveAnEpoch) {
  for (const bool is_async : {true, false}) {
    for (const size_t size : {20u, 19u}) {
      JobConfig config = Declaring({{"a", 20}});
      config.is_async = is_async;
      ServedTensors first(0, 1, 1, kPlentyOfBytes);
      ASSERT_THAT(Declare(first, config), IsOk());
      Give(first, 3);
      ServedTensors none(0, 1, 1, kPlentyOfBytes, 0, first.TakeWeights());
      ServedTensors second(0, 1, 1, kPlentyOfBytes, 0, none.TakeWeights());
      config.tensors = {{"a", size}};
      ASSERT_THAT(Declare(second, config), IsOk());
      const ChunkWeights& weights =
          (*second.Find({.key = 0}))->aggregator->weights();
      const bool goes_on = is_async && size == 20;
      ASSERT_EQ(weights.value != nullptr, goes_on);
      if (!goes_on) continue;
      Give(second, 7);
      EXPECT_EQ(weights.value->as<float>()[19], 3);
    }
  }
}

// An asynchronous chunk has a place for each worker that pushes.
TEST(ServedTensors, OfWorkersThatOnlyReadAreNotAsynchronous) {
  JobConfig config = Declaring({{"a", 60}});
  config.is_async = true;
  ServedTensors with_readers(0, 1, 2, kPlentyOfBytes, /*num_readers=*/1);
  EXPECT_THAT(Declare(with_readers, config),
              StatusIs(kRefused, "1 workers for which others push"));
  ServedTensors tensors(0, 1, 2, kPlentyOfBytes);
  EXPECT_THAT(Declare(tensors, config), IsOk());
}

TEST(ServedTensors, HaveEachChunkOnOneServer) {
  ServedTensors first(0, 2, 2, kPlentyOfBytes);
  ServedTensors second(1, 2, 2, kPlentyOfBytes);
  const JobConfig config = Declaring({{"a", 100}, {"b", 7}});
  ASSERT_THAT(Declare(first, config), IsOk());
  ASSERT_THAT(Declare(second, config), IsOk());
  const std::vector<FrameHeader> chunks = {{.key = 0, .chunk = 0},
                                           {.key = 0, .chunk = 1},
                                           {.key = 0, .chunk = 2},
                                           {.key = 0, .chunk = 3},
                                           {.key = 1, .chunk = 0}};
  size_t of_first = 0;
  for (const FrameHeader& header : chunks) {
    EXPECT_NE(first.Find(header).ok(), second.Find(header).ok())
        << header.key << " " << header.chunk;
    of_first += first.Find(header).ok();
  }
  EXPECT_THAT(of_first, ::testing::AllOf(::testing::Gt(0u), ::testing::Lt(5u)));
  EXPECT_THAT(first.Find({.key = 0, .chunk = 4}).status(),
              StatusIs(kRefused, "not served here"));
  EXPECT_THAT(first.Find({.key = 2}).status(),
              StatusIs(kRefused, "not served here"));
}

TEST(ServedTensors, ChangeOnlyBetweenRounds) {
  ServedTensors tensors(0, 1, 2, kPlentyOfBytes);
  JobConfig config = Declaring({{"a", 60}});
  config.optimizer.sgd.learning_rate = 0.5f;
  const std::string rates = OptimizerFields(config.optimizer).dump();
  EXPECT_THAT(Tell(tensors, FrameType::kRates, rates),
              StatusIs(kRefused, "not expected"));
  ASSERT_THAT(Declare(tensors, Declaring({{"a", 60}})), IsOk());
  const FrameHeader ask{.type = FrameType::kAskState, .key = 0, .chunk = 1};
  ServedChunk& chunk = **tensors.Find(ask);
  ++chunk.num_arrived;
  EXPECT_THAT(Tell(tensors, FrameType::kRates, rates),
              StatusIs(kRefused, "within a round"));
  EXPECT_THAT(tensors.DescribeState(ask).status(),
              StatusIs(kRefused, "within a round"));
  --chunk.num_arrived;
  EXPECT_THAT(Tell(tensors, FrameType::kRates, rates), IsOk());
  EXPECT_THAT(tensors.DescribeState(ask).status(), IsOk());
}

}  // namespace
}  // namespace telegrad
