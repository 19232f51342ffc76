#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/socket.h"
#include "tests/transport/tcp_bytes.h"
#include "transport/tcp/incoming.h"
#include "transport/tcp/send_queue.h"

// The parts of a connection of tcp: what is received, what is to be sent.
namespace telegrad::testing {
namespace {

using absl::StatusCode;
using tcp::Incoming;
using tcp::SendQueue;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConstBytes BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
std::string TextOf(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

// What `incoming` makes of `bytes` that come in pieces.
std::vector<std::string> Heard(const std::string& bytes, size_t piece_bytes) {
  Incoming incoming(/*is_local=*/false, kMaxHeaderBytes);
  std::vector<std::string> heard;
  std::string memory(64, '?');
  for (size_t at = 0; at < bytes.size(); at += piece_bytes) {
    const std::string piece = bytes.substr(at, piece_bytes);
    ConstBytes rest = BytesOf(piece);
    while (rest.size > 0) {
      const auto event = incoming.Take(&rest);
      if (!event.ok()) {
        heard.emplace_back(event.status().message());
        return heard;
      }
      if (*event == Incoming::Event::kHello) heard.push_back("hello");
      bool is_whole = *event == Incoming::Event::kWhole;
      if (*event == Incoming::Event::kHead) {
        heard.push_back(TextOf(incoming.header()));
        incoming.Begin({reinterpret_cast<std::byte*>(memory.data()), 64});
        is_whole = incoming.record().payload_bytes == 0;
      }
      if (!is_whole) continue;
      heard.push_back(TextOf(incoming.payload()));
      incoming.End();
    }
  }
  return heard;
}

TEST(TcpIncoming, HearsTheSameInPiecesOfAnySize) {
  const std::string bytes = kTcpHello + Record(1, 2, 5) + "abhello" +
                            Record(1, 0, 0) + Record(1, 0, 1) + "x" +
                            Record(1, 1, 0) + "y";
  for (size_t piece_bytes = 1; piece_bytes <= bytes.size(); ++piece_bytes) {
    EXPECT_THAT(Heard(bytes, piece_bytes),
                ElementsAre("hello", "ab", "hello", "", "", "", "x", "y", ""))
        << piece_bytes;
  }
}

TEST(TcpIncoming, RefusesWhatIsNoHelloAndWhatIsNoRecord) {
  EXPECT_THAT(Heard("GET / HTTP/1.1", 14),
              ElementsAre("no hello of this version"));
  EXPECT_THAT(Heard(kTcpHello + kTcpHello, 16),
              ElementsAre("hello", HasSubstr("a record of kind 84")));
}

TEST(TcpIncoming, ReadsStraightWhatIsMuch) {
  Incoming incoming(/*is_local=*/false, kMaxHeaderBytes);
  const std::string bytes = kTcpHello + Record(1, 0, 8192);
  ConstBytes rest = BytesOf(bytes);
  ASSERT_EQ(*incoming.Take(&rest), Incoming::Event::kHello);
  ASSERT_EQ(*incoming.Take(&rest), Incoming::Event::kHead);
  EXPECT_EQ(incoming.direct().size, 0u);
  std::vector<std::byte> memory(8192);
  incoming.Begin({memory.data(), memory.size()});
  EXPECT_EQ(incoming.direct().data, memory.data());
  EXPECT_EQ(incoming.AddDirect(4096), Incoming::Event::kNone);
  EXPECT_EQ(incoming.direct().data, memory.data() + 4096);
  EXPECT_EQ(incoming.direct().size, 4096u);
  EXPECT_EQ(incoming.AddDirect(1), Incoming::Event::kNone);
  EXPECT_EQ(incoming.direct().size, 0u);  // little is left
  EXPECT_EQ(incoming.AddDirect(4095), Incoming::Event::kWhole);
}

class TcpSendQueue : public ::testing::Test {
 protected:
  TcpSendQueue() {
    std::array<int, 2> fds = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()),
              0);
    ours_ = UniqueFd(fds[0]);
    theirs_ = UniqueFd(fds[1]);
  }
  void Add(int number, ConstBytes payload, bool is_exposed) {
    queue_.Add(tcp::MakeMessage({}, payload, is_exposed,
                                [this, number](const absl::Status& status) {
                                  done_.emplace_back(number, status.code());
                                }));
  }
  SendQueue::Written Write() {
    const auto written = queue_.Write(ours_.get(), 1 << 20, due_);
    due_.CallAll();
    return written;
  }

  UniqueFd ours_, theirs_;
  SendQueue queue_;
  DueCompletions due_;
  std::vector<std::pair<int, StatusCode>> done_;
};

TEST_F(TcpSendQueue, IsDoneWithWhatTheSocketHasTaken) {
  const std::vector<std::byte> large(size_t{1} << 20);
  Add(1, {}, false);
  Add(2, {large.data(), large.size()}, false);
  EXPECT_TRUE(Write().is_full);
  EXPECT_THAT(done_, ElementsAre(std::pair(1, StatusCode::kOk)));
  std::vector<std::byte> got(1 << 20);
  while (!queue_.empty()) {
    ASSERT_GT(recv(theirs_.get(), got.data(), got.size(), 0), 0);
    EXPECT_FALSE(Write().is_broken);
  }
  EXPECT_EQ(done_.back(), std::pair(2, StatusCode::kOk));
}

TEST_F(TcpSendQueue, KeepsWhatThePeerHasYetToCopy) {
  const std::vector<std::byte> payload(64);
  for (int i = 1; i <= 2; ++i) Add(i, {payload.data(), payload.size()}, true);
  EXPECT_FALSE(queue_.FinishExposed(due_));
  EXPECT_EQ(Write().bytes, 2 * (tcp::kRecordBytes + tcp::kPlaceBytes));
  EXPECT_TRUE(queue_.empty());
  EXPECT_TRUE(done_.empty());
  EXPECT_TRUE(queue_.FinishExposed(due_));
  Add(3, {}, false);
  queue_.End(absl::AbortedError(""), absl::CancelledError(""), due_);
  due_.CallAll();
  EXPECT_THAT(done_, ElementsAre(std::pair(1, StatusCode::kOk),
                                 std::pair(2, StatusCode::kAborted),
                                 std::pair(3, StatusCode::kCancelled)));
}

TEST_F(TcpSendQueue, SaysThatThePeerIsGone) {
  theirs_.Close();
  Add(1, {}, false);
  EXPECT_TRUE(Write().is_broken);
  EXPECT_FALSE(queue_.empty());
}

}  // namespace
}  // namespace telegrad::testing
