#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/endian.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/fake_device.h"
#include "tests/transport/transport_node.h"
#include "transport/decorators/bounce/fragment.h"
#include "transport/decorators/bounce/receive_queue.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using bounce::FragmentHeader;
using bounce::Whole;

Whole Message(const std::string& header, size_t payload_bytes) {
  Whole message = {.header_bytes = header.size(),
                   .payload_bytes = payload_bytes};
  std::transform(header.begin(), header.end(), message.header.begin(),
                 [](char c) { return std::byte(c); });
  return message;
}

absl::StatusOr<Whole> Parse(const FragmentHeader& header,
                            size_t fragment_bytes) {
  return bounce::ParseFragment({header.data(), header.size()}, fragment_bytes);
}

TEST(Fragment, SaysWhatItIsOf) {
  const Whole message = Message("header", 1000);
  const FragmentHeader packed = bounce::PackFragment(message, 600);
  EXPECT_TRUE(bounce::IsFragment({packed.data(), packed.size()}));
  EXPECT_FALSE(bounce::IsFragment({packed.data(), kMaxHeaderBytes}));
  const auto fragment = Parse(packed, 400);
  ASSERT_THAT(fragment, IsOk());
  EXPECT_EQ(fragment->header, message.header);
  EXPECT_EQ(fragment->header_bytes, 6u);
  EXPECT_EQ(fragment->payload_bytes, 1000u);
  EXPECT_EQ(fragment->begun, 1000u);
  EXPECT_TRUE(fragment->is_whole());
}

TEST(Fragment, ThatCannotBeIsRefused) {
  const FragmentHeader good =
      bounce::PackFragment(Message("header", 1000), 600);
  std::vector<FragmentHeader> bad(5, good);
  bad[0][0] = std::byte{'P'};
  bad[1][1] = std::byte{2};
  StoreLittleEndian(&bad[2][2], static_cast<uint16_t>(kMaxHeaderBytes + 1));
  StoreLittleEndian(&bad[3][4], static_cast<uint32_t>(kMaxPayloadBytes + 1));
  bad[4][12] = std::byte{1};
  for (const FragmentHeader& header : bad) {
    EXPECT_THAT(Parse(header, 400), StatusIs(StatusCode::kInvalidArgument, ""));
  }
  for (const size_t fragment_bytes :
       {size_t{0}, size_t{401}, kMaxPayloadBytes}) {
    EXPECT_THAT(Parse(good, fragment_bytes),
                StatusIs(StatusCode::kInvalidArgument, ""));
  }
  EXPECT_THAT(bounce::ParseFragment({good.data(), good.size() - 1}, 400),
              StatusIs(StatusCode::kInvalidArgument, "143 bytes"));
}

TEST(Fragment, ComesBehindTheOneBefore) {
  const Whole message = Message("header", 1000);
  const Whole first = *Parse(bounce::PackFragment(message, 0), 600);
  const Whole second = *Parse(bounce::PackFragment(message, 600), 400);
  EXPECT_THAT(bounce::CheckFirst(first, 600), IsOk());
  EXPECT_THAT(bounce::CheckFirst(second, 400),
              StatusIs(StatusCode::kInvalidArgument, "600"));
  EXPECT_THAT(bounce::CheckWhole(first),
              StatusIs(StatusCode::kInvalidArgument, "600 of 1000"));
  const std::vector<std::pair<Whole, size_t>> wrong = {
      {first, 600},
      {*Parse(bounce::PackFragment(message, 601), 399), 399},
      {*Parse(bounce::PackFragment(Message("Header", 1000), 600), 400), 400},
      {*Parse(bounce::PackFragment(Message("header", 1001), 600), 401), 401}};
  for (const auto& [other, fragment_bytes] : wrong) {
    Whole sum = first;
    EXPECT_THAT(bounce::AddFragment(other, fragment_bytes, &sum),
                StatusIs(StatusCode::kInvalidArgument, ""));
  }
  Whole sum = first;
  EXPECT_THAT(bounce::AddFragment(second, 400, &sum), IsOk());
  EXPECT_THAT(bounce::CheckWhole(sum), IsOk());
}

// A peer of MakeTransport that stages nothing, and one that makes up its
// fragments.
class Reassembly : public ::testing::Test {
 protected:
  Reassembly()
      : server_(Options(0)), client_(Options(bounce::kFragmentPrefixBytes)) {
    to_server_ = *Connect(client_, server_);
  }
  static TransportOptions Options(size_t prefix_bytes) {
    TransportOptions options;
    options.name = "inproc";
    options.prefix_bytes = prefix_bytes;
    return options;
  }
  void SendFragment(const Whole& message, size_t offset,
                    const std::string& text) {
    const FragmentHeader header = bounce::PackFragment(message, offset);
    ASSERT_THAT(client_.Send(to_server_,
                             {reinterpret_cast<const char*>(header.data()),
                              header.size()},
                             text),
                IsOk());
  }
  bool Closes() {
    return Drive({&server_, &client_}, [&] {
      return !server_.closed.empty() && !client_.closed.empty();
    });
  }
  void ExpectRefused(const std::string& why) {
    ASSERT_TRUE(Closes());
    EXPECT_THAT(server_.closed.begin()->second,
                StatusIs(StatusCode::kCancelled, why));
    EXPECT_TRUE(server_.heard.empty());
    EXPECT_TRUE(client_.EachCompletedOnce());
  }

  Node server_, client_;
  EndpointId to_server_ = 0;
};

TEST_F(Reassembly, FragmentsOfAnySizeMakeOneMessage) {
  const std::string text = Pattern(1000, 1);
  size_t offset = 0;
  for (const size_t size : {1, 500, 499}) {
    SendFragment(Message("header", 1000), offset, text.substr(offset, size));
    offset += size;
  }
  ASSERT_TRUE(
      Drive({&server_, &client_}, [&] { return !server_.heard.empty(); }));
  EXPECT_EQ(server_.heard[0].header, "header");
  EXPECT_EQ(server_.heard[0].payload, text);
}

TEST_F(Reassembly, AGapEndsTheEndpoint) {
  SendFragment(Message("header", 1000), 0, Pattern(400));
  SendFragment(Message("header", 1000), 500, Pattern(500));
  ExpectRefused("a fragment at 500 of 1000 bytes where that at 400");
}

TEST_F(Reassembly, AMessageWithinAnotherEndsTheEndpoint) {
  SendFragment(Message("header", 1000), 0, Pattern(400));
  ASSERT_THAT(client_.Send(to_server_, "other"), IsOk());
  ExpectRefused("a message within another");
}

TEST_F(Reassembly, AMessageThatBeginsInTheMiddleEndsTheEndpoint) {
  SendFragment(Message("header", 1000), 400, Pattern(600));
  ExpectRefused("of a message that has not begun");
}

TEST_F(Reassembly, ALongHeaderThatIsNoFragmentEndsTheEndpoint) {
  ASSERT_THAT(client_.Send(to_server_, std::string(kMaxHeaderBytes + 1, 'h')),
              IsOk());
  ExpectRefused("a header of 129 bytes, and no fragment");
}

TEST_F(Reassembly, ARefusedMessageEndsTheEndpoint) {
  server_.on_header = [](EndpointId, ConstBytes header, size_t payload_bytes) {
    EXPECT_EQ(header.size, 6u);
    EXPECT_EQ(payload_bytes, 1000u);
    return absl::UnauthenticatedError("no such worker");
  };
  SendFragment(Message("header", 1000), 0, Pattern(400));
  ExpectRefused("no such worker");
}

// What is only announced comes no sooner for waiting.
TEST(ReceiveQueue, CountsOrdinaryMemoryOnceItHasCome) {
  FakeDevice device;
  bounce::Staging staging{.copies = {std::make_unique<FakeCopier>(device), 0},
                          .fragment_bytes = 64,
                          .ring_bytes = 64};
  bounce::ReceiveQueue queue(staging);
  ASSERT_THAT(queue.AddUnheard(100), IsOk());
  EXPECT_EQ(staging.ordinary_bytes, 0u);
  queue.HasCome();
  EXPECT_EQ(staging.ordinary_bytes, 100u);
  ASSERT_THAT(queue.AddUnheard(100), IsOk());
  queue.Drop(/*is_gone=*/true);
  EXPECT_EQ(staging.ordinary_bytes, 0u);
}

}  // namespace
}  // namespace telegrad::testing
