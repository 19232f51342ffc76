#include "kvstore/ps/worker/server_questions.h"

#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"

// What worker 0 asks servers, and links that are not open.
namespace telegrad {
namespace {

using testing::StatusIs;

class NoReceiver : public ServerLinks::Receiver {
 public:
  absl::StatusOr<Bytes> OnHeader(int, const FrameHeader&) override {
    return absl::UnimplementedError("there is no server");
  }
  void OnFrame(const FrameHeader&, ConstBytes, Bytes) override {}
  void OnEnd() override {}
};

class ServerQuestionsTest : public ::testing::Test {
 protected:
  const std::unique_ptr<WorkerGroup> group_ = MakeSoloGroup();
  WorkerFailure failure_{*group_, [] {}};
  NoReceiver receiver_;
  ServerLinks links_{*group_, failure_, receiver_};
};

// Its late answer would be taken for that of the next one.
TEST_F(ServerQuestionsTest, IsTheLastIfNobodyAnswers) {
  ServerQuestions questions(links_, failure_, std::chrono::milliseconds(1));
  const auto ask = [&] {
    return questions.Ask({.type = FrameType::kAskState}, "",
                         ServerQuestions::kAllServers);
  };
  const absl::Status first = ask().status();
  EXPECT_EQ(ExitCodeOf(first), ExitCode::kTimeout);
  EXPECT_THAT(first, StatusIs(absl::StatusCode::kDeadlineExceeded,
                              "did not answer between rounds"));
  EXPECT_EQ(failure_.status(), first);
  EXPECT_EQ(ask().status(), first);
}

TEST_F(ServerQuestionsTest, LinksThatAreNotOpenHaveNoCards) {
  const CardAccess cards = links_.CardsFor({DeviceKind::kCuda, 0});
  EXPECT_FALSE(cards.sends || cards.receives);
}

}  // namespace
}  // namespace telegrad
