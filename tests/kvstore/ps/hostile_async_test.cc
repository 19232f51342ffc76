#include "tests/kvstore/ps/hostile_worker.h"

// As hostile_worker_test.cc, of an asynchronous server: what is in order there
// depends on the worker alone.
namespace telegrad {
namespace {

using testing::ClusterConfig;
using testing::HostileWorker;
using testing::IsOk;
using testing::kElems;
using testing::Soon;

constexpr ExitCode kRefused = ExitCode::kMismatch;

class HostileAsync : public HostileWorker {
 protected:
  void SetUp() override {
    ClusterConfig config = testing::TwoBitJob();
    config.servers = 1;
    config.tensors = {{"a", kElems}};
    config.has_values = true;
    config.compression.type = "none";
    config.store = "dist_async";
    config.max_staleness = 1;
    config.optimizer = {.update_on = UpdateOn::kServer,
                        .sgd = {.learning_rate = 1, .rescale = -1}};
    Start(config);
  }

  // Of one in each element of chunk 1.
  void SendPush(uint64_t step) {
    FrameHeader push = Push();
    push.codec = static_cast<uint8_t>(CodecId::kNone);
    push.reply_format = 0;
    push.chunk = 1;
    push.step = step;
    std::string payload;
    for (int i = 0; i < 6; ++i) payload.append("\0\0\x80\x3f", 4);
    raw_->Send(push, payload);
  }
  void Send(FrameType type, uint64_t step, uint16_t flags, size_t num_bytes) {
    FrameHeader frame = Push();
    frame.type = type;
    frame.chunk = 1;
    frame.step = step;
    frame.flags = flags;
    raw_->Send(frame, std::string(num_bytes, '\0'));
  }
};

TEST_F(HostileAsync, DuplicatesCountOnce) {
  for (int i = 0; i < 20; ++i) SendPush(0);
  EXPECT_TRUE(raw_->Await(FrameType::kReply));
  Buffer out(4 * kElems);
  ASSERT_THAT((*store_)->Pull(0, out.view(), 0).Wait(Soon()), IsOk());
  EXPECT_EQ(out.as<float>()[63], 1 + 0.125f * 63);
  for (size_t i = 64; i < kElems; ++i) {
    EXPECT_EQ(out.as<float>()[i], 2 + 0.125f * static_cast<float>(i % 64));
  }
}

TEST_F(HostileAsync, NobodyGetsFurtherAheadThanIsAllowed) {
  SendPush(0);
  SendPush(1);  // its answer waits for worker 0
  SendPush(2);
  ExpectFatal(kRefused, "before the last one was answered");
}

TEST_F(HostileAsync, StepsAreNotLeftOut) {
  SendPush(1);
  ExpectFatal(kRefused, "step 1");
}

TEST_F(HostileAsync, APullWhileThePushIsNotAnswered) {
  SendPush(0);
  SendPush(1);
  Send(FrameType::kPull, 2, 0, 0);
  ExpectFatal(kRefused, "not expected");
}

TEST_F(HostileAsync, APullOfAnotherStep) {
  Send(FrameType::kPull, 3, 0, 0);
  ExpectFatal(kRefused, "after 3 steps");
}

TEST_F(HostileAsync, APullOfAnOldBroadcast) {
  Send(FrameType::kPull, 0, kFlagNextValue, 0);
  ExpectFatal(kRefused, "after 0 broadcasts");
}

TEST_F(HostileAsync, AValueOfOneThatWaitsForIt) {
  Send(FrameType::kPull, 1, kFlagNextValue, 0);
  Send(FrameType::kInit, 1, 0, 24);
  ExpectFatal(kRefused, "waits for it");
}

TEST_F(HostileAsync, AValueWhileAnotherWaits) {
  Send(FrameType::kInit, 1, 0, 24);
  Send(FrameType::kInit, 2, 0, 24);  // until worker 0 has the one before
  Send(FrameType::kInit, 3, 0, 24);
  ExpectFatal(kRefused, "value 3");
}

TEST_F(HostileAsync, AProposalWhereNothingIsAgreed) {
  Send(FrameType::kPropose, 0, 0, 0);
  ExpectFatal(kRefused, "proposal");
}

}  // namespace
}  // namespace telegrad
