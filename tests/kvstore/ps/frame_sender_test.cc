#include "kvstore/ps/wire/frame_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

// Which frame leaves when.
namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Keeps what it is given until it is told to let go. Payloads are told apart
// by their sizes.
class HeldFrames : public TransportContext {
 public:
  static constexpr size_t kTooLarge = 999;
  bool is_closed() const { return is_closed_; }
  std::vector<size_t> Take() { return std::exchange(sizes_, {}); }
  void LetGo() {
    const SendDone done = std::move(waiting_.front());
    waiting_.pop_front();
    done(absl::OkStatus());
  }

 private:
  TransportInfo info() const override { return {}; }
  absl::StatusOr<std::string> Listen() override { return ""; }
  absl::StatusOr<EndpointId> Connect(absl::string_view) override { return 0; }
  absl::Status Send(EndpointId, ConstBytes, ConstBytes payload,
                    SendDone done) override {
    if (payload.size == kTooLarge) return absl::InvalidArgumentError("large");
    sizes_.push_back(payload.size);
    waiting_.push_back(std::move(done));
    return absl::OkStatus();
  }
  void Close(EndpointId) override { is_closed_ = true; }
  bool Progress(TimePoint) override { return false; }
  void Wake() override {}

  std::vector<size_t> sizes_;
  std::deque<SendDone> waiting_;
  bool is_closed_ = false;
};

class FrameSenderTest : public ::testing::Test {
 protected:
  void Open(size_t window_bytes) {
    sender_ =
        std::make_unique<FrameSender>(&network_, 1, window_bytes, &leaving_);
  }
  void Enqueue(size_t size, int priority) {
    sender_->Enqueue({.payload = {payload_.data(), size},
                      .keep_alive = alive_,
                      .priority = priority,
                      .on_sent = [this] { ++num_sent_; }});
  }

  const std::vector<std::byte> payload_ = std::vector<std::byte>(1000);
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  int num_sent_ = 0;
  HeldFrames network_;
  FrameSender::Leaving leaving_;
  std::unique_ptr<FrameSender> sender_;
};

TEST_F(FrameSenderTest, SendsLargerPrioritiesFirstAndEqualOnesInOrder) {
  Open(1);  // one frame at a time
  Enqueue(100, -5);
  for (const auto& [size, priority] :
       {std::pair<size_t, int>{1, 0}, {2, 7}, {3, -6}, {4, 7}, {5, 0}}) {
    Enqueue(size, priority);
  }
  EXPECT_THAT(network_.Take(), ElementsAre(100)) << "the window is full";
  for (int i = 0; i < 3; ++i) network_.LetGo();
  Enqueue(6, 1);  // before what has waited for longer
  for (int i = 0; i < 3; ++i) network_.LetGo();
  EXPECT_THAT(network_.Take(), ElementsAre(2, 4, 1, 6, 5, 3));
  network_.LetGo();
  EXPECT_EQ(num_sent_, 7);
  EXPECT_EQ(alive_.use_count(), 1) << "payloads are kept for too long";
}

// Who waits for the frame would wait in vain.
TEST_F(FrameSenderTest, ClosesWhatCannotTakeAFrame) {
  Open(1000);
  Enqueue(10, 0);
  EXPECT_FALSE(network_.is_closed());
  Enqueue(HeldFrames::kTooLarge, 0);
  EXPECT_TRUE(network_.is_closed());
}

TEST_F(FrameSenderTest, HasNoMoreThanTheWindowInTheTransport) {
  Open(3 * (kFrameHeaderBytes + 10));
  for (int i = 0; i < 5; ++i) Enqueue(10, 0);
  EXPECT_EQ(network_.Take().size(), 3u);
  network_.LetGo();
  EXPECT_EQ(network_.Take().size(), 1u);
  network_.LetGo();
  network_.LetGo();
  EXPECT_EQ(network_.Take().size(), 1u);
  EXPECT_THAT(network_.Take(), IsEmpty());
}

}  // namespace
}  // namespace telegrad
