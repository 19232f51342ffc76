#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/backend.h"
#include "tests/transport/transport_node.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;

// A server and a client in this process, connected.
class Transport : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    server_ =
        std::make_unique<Node>(OptionsOf(GetParam()), FactoryOf(GetParam()));
    if (server_->status.code() == StatusCode::kNotFound) {
      GTEST_SKIP() << server_->status;
    }
    client_ =
        std::make_unique<Node>(OptionsOf(GetParam()), FactoryOf(GetParam()));
    ASSERT_THAT(server_->status, IsOk());
    ASSERT_THAT(client_->status, IsOk());
    const auto address = server_->context->Listen();
    ASSERT_THAT(address, IsOk());
    address_ = *address;
    to_server_ = Connect();
    ASSERT_TRUE(DriveBoth([&] { return server_->accepted.size() == 1; }));
    to_client_ = server_->accepted[0];
  }

  EndpointId Connect() {
    const auto endpoint = client_->context->Connect(address_);
    EXPECT_THAT(endpoint, IsOk());
    return endpoint.ok() ? *endpoint : 0;
  }

  bool DriveBoth(const std::function<bool()>& condition) {
    return Drive({server_.get(), client_.get()}, condition);
  }

  bool HaveBothEnded() const {
    return client_->closed.count(to_server_) > 0 &&
           server_->closed.count(to_client_) > 0;
  }

  void ExpectUnavailable(EndpointId peer) {
    ASSERT_THAT(client_->Send(peer, "h", Pattern(1 << 20, 1)), IsOk())
        << "an endpoint is open until OnClosed, whatever Connect has found";
    ASSERT_TRUE(
        Drive({client_.get()}, [&] { return client_->closed.count(peer); }));
    EXPECT_THAT(client_->closed[peer], StatusIs(StatusCode::kUnavailable, ""));
    EXPECT_TRUE(client_->EachCompletedOnce());
  }

  std::unique_ptr<Node> server_, client_;
  std::string address_;
  EndpointId to_server_ = 0, to_client_ = 0;
};

class TransportInBulk : public Transport {};

TEST_P(Transport, MessagesOfAllSizesArriveWholeAndInOrder) {
  const size_t sizes[] = {0,    1,     7,     200000, 8191,  8192, 8193,
                          64,   70000, 0,     3,      65536, 12,   1 << 20,
                          4096, 5,     16384, 2,      99999};
  std::vector<std::string> sent;
  for (int round = 0; round < 5; ++round) {
    for (size_t size : sizes) {
      const std::string header = absl::StrCat("h", sent.size());
      sent.push_back(Pattern(size, static_cast<uint32_t>(sent.size())));
      ASSERT_THAT(client_->Send(to_server_, header, sent.back()), IsOk());
    }
  }
  ASSERT_TRUE(DriveBoth([&] {
    return server_->heard.size() == sent.size() &&
           client_->num_completed == sent.size();
  }));
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(server_->heard[i].header, absl::StrCat("h", i));
    ASSERT_TRUE(server_->heard[i].payload == sent[i]) << "message " << i;
  }
  EXPECT_TRUE(server_->is_in_order);
  EXPECT_TRUE(client_->EachCompletedOnce());
  for (const auto& result : client_->results) EXPECT_THAT(result[0], IsOk());
}

// Memory of the host has ordinals, too: numbers of NUMA nodes, say.
TEST_P(Transport, PayloadsAreOnTheDeviceWhereTheHandlerWantedThem) {
  std::deque<std::string> places;
  server_->place = [&places](size_t size) {
    std::string& place = places.emplace_back(size, '?');
    return Bytes(place.data(), size, {DeviceKind::kCpu, 1});
  };
  for (const size_t size : {size_t{1}, size_t{5000}, size_t{600'000}}) {
    ASSERT_THAT(client_->Send(to_server_, "h", Pattern(size)), IsOk());
  }
  ASSERT_TRUE(DriveBoth([&] { return server_->heard.size() == 3; }));
  for (const Heard& heard : server_->heard) EXPECT_EQ(heard.device.ordinal, 1);
  DriveBoth([&] { return client_->num_completed == 3; });
}

TEST_P(TransportInBulk, LargestMessageArrivesWhole) {
  const auto payload =
      std::make_shared<const std::string>(Pattern(kMaxPayloadBytes, 9));
  const std::string header(kMaxHeaderBytes, 'x');
  ASSERT_THAT(client_->Send(to_server_, header, payload), IsOk());
  ASSERT_TRUE(DriveBoth([&] { return server_->heard.size() == 1; }));
  EXPECT_EQ(server_->heard[0].header, header);
  EXPECT_TRUE(server_->heard[0].payload == *payload);
}

TEST_P(Transport, OversizeIsRefusedAndNothingElseHappens) {
  static char byte;  // never read: the size is refused first
  const auto never = [](const absl::Status&) { ADD_FAILURE(); };
  EXPECT_THAT(client_->context->Send(to_server_, {},
                                     {&byte, kMaxPayloadBytes + 1}, never),
              StatusIs(StatusCode::kInvalidArgument, "67108865"));
  const std::string header(kMaxHeaderBytes + 1, 'x');
  EXPECT_THAT(client_->context->Send(to_server_, {header.data(), header.size()},
                                     {}, never),
              StatusIs(StatusCode::kInvalidArgument, "129"));
  ASSERT_THAT(client_->Send(to_server_, "next"), IsOk());
  ASSERT_TRUE(DriveBoth([&] { return server_->heard.size() == 1; }));
  EXPECT_EQ(server_->heard[0].header, "next");
}

TEST_P(Transport, SendNeverCompletesInside) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_THAT(client_->Send(to_server_, "h", std::string(i * 97, 'p')),
                IsOk());
    EXPECT_EQ(client_->num_completed, 0u);
  }
  ASSERT_TRUE(DriveBoth([&] { return client_->num_completed == 200; }));
  EXPECT_FALSE(client_->is_completed_inline);
}

TEST_P(Transport, SendToAnUnknownEndpointIsAPreconditionError) {
  EXPECT_THAT(client_->context->Send(12345, {}, {}, nullptr),
              StatusIs(StatusCode::kFailedPrecondition, "12345"));
}

TEST_P(TransportInBulk, BacklogsInBothDirectionsPassEachOther) {
  constexpr int kMessages = 64;
  const auto payload = std::make_shared<const std::string>(Pattern(1 << 20, 3));
  server_->keep_payloads = client_->keep_payloads = false;
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_THAT(client_->Send(to_server_, "c", payload), IsOk());
    ASSERT_THAT(server_->Send(to_client_, "s", payload), IsOk());
  }
  EXPECT_TRUE(DriveBoth([&] {
    return server_->heard.size() == kMessages &&
           client_->heard.size() == kMessages &&
           server_->num_completed == kMessages &&
           client_->num_completed == kMessages;
  }));
}

TEST_P(Transport, SmallMessagesWaitForALateReceiver) {
  constexpr size_t kMessages = 3000;
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_THAT(client_->Send(to_server_, absl::StrCat(i), Pattern(i % 300, 1)),
                IsOk());
  }
  for (int i = 0; i < 500; ++i) client_->context->Progress(Clock::now());
  ASSERT_TRUE(DriveBoth([&] { return server_->heard.size() == kMessages; }));
  for (size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(server_->heard[i].header, absl::StrCat(i));
  }
}

TEST_P(TransportInBulk, ReceiverThatDoesNotListenHoldsTheSenderBack) {
  constexpr size_t kMessages = 64, kInFlight = 8;
  const auto payload = std::make_shared<const std::string>(Pattern(1 << 20, 3));
  server_->keep_payloads = false;
  size_t sent = 0;
  const auto send_some = [&] {
    while (sent < kMessages && sent - client_->num_completed < kInFlight) {
      ASSERT_THAT(client_->Send(to_server_, absl::StrCat(sent++), payload),
                  IsOk());
    }
  };
  for (int i = 0; i < 2000; ++i) {
    send_some();
    client_->context->Progress(Clock::now());
  }
  EXPECT_LT(client_->num_completed, kMessages / 2);
  ASSERT_TRUE(DriveBoth([&] {
    send_some();
    return client_->num_completed == kMessages;
  }));
}

TEST_P(Transport, HandlersMaySendFromWithin) {
  constexpr size_t kTurns = 300;
  server_->on_message = [&](const Heard& message) {
    EXPECT_THAT(server_->Send(message.from, message.header, message.payload),
                IsOk());
  };
  client_->on_message = [&](const Heard& message) {
    if (client_->heard.size() == kTurns) return;
    EXPECT_THAT(client_->Send(message.from, message.header,
                              std::string(client_->heard.size() * 100, 'z')),
                IsOk());
  };
  ASSERT_THAT(client_->Send(to_server_, "ball"), IsOk());
  EXPECT_TRUE(DriveBoth([&] { return client_->heard.size() == kTurns; }));
}

TEST_P(Transport, ManyEndpointsAreKeptApart) {
  constexpr size_t kEndpoints = 64;
  std::map<std::string, EndpointId> endpoints = {{"0", to_server_}};
  for (size_t i = 1; i < kEndpoints; ++i) {
    endpoints[absl::StrCat(i)] = Connect();
  }
  for (int round = 0; round < 10; ++round) {
    for (const auto& [name, endpoint] : endpoints) {
      ASSERT_THAT(client_->Send(endpoint, name, name + Pattern(20000, 1)),
                  IsOk());
    }
  }
  ASSERT_TRUE(
      DriveBoth([&] { return server_->heard.size() == 10 * kEndpoints; }));
  EXPECT_EQ(server_->accepted.size(), kEndpoints);
  std::map<EndpointId, std::string> names;
  for (const Heard& message : server_->heard) {
    const auto [known, is_new] =
        names.try_emplace(message.from, message.header);
    EXPECT_EQ(known->second, message.header);
  }
  EXPECT_EQ(names.size(), kEndpoints);
  for (const auto& [id, name] : names) {
    ASSERT_THAT(server_->Send(id, name), IsOk());
  }
  ASSERT_TRUE(DriveBoth([&] { return client_->heard.size() == kEndpoints; }));
  for (const Heard& message : client_->heard) {
    EXPECT_EQ(endpoints[message.header], message.from);
  }
}

TEST_P(Transport, CloseDeliversWhatWasSentBefore) {
  for (int i = 0; i < 50; ++i) {
    ASSERT_THAT(
        client_->Send(to_server_, "h", Pattern(i % 2 ? 100 : 100000, 1)),
        IsOk());
  }
  client_->context->Close(to_server_);
  client_->context->Close(to_server_);  // again: ignored
  EXPECT_THAT(client_->context->Send(to_server_, {}, {}, nullptr),
              StatusIs(StatusCode::kFailedPrecondition, "not open"));
  ASSERT_TRUE(DriveBoth([&] { return HaveBothEnded(); }));
  EXPECT_EQ(server_->heard.size(), 50u);
  EXPECT_THAT(client_->closed[to_server_],
              StatusIs(StatusCode::kCancelled, ""));
  EXPECT_THAT(server_->closed[to_client_],
              StatusIs(StatusCode::kUnavailable, "closed"));
  for (const auto& result : client_->results) {
    ASSERT_EQ(result.size(), 1u);
    EXPECT_THAT(result[0], IsOk());
  }
  EXPECT_EQ(client_->num_closed[to_server_], 1);
  EXPECT_EQ(server_->num_closed[to_client_], 1);
}

TEST_P(Transport, CloseUnderLoadFromBothSidesCompletesEverySendOnce) {
  const auto payload = std::make_shared<const std::string>(Pattern(300000, 3));
  const auto small = std::make_shared<const std::string>(Pattern(3000, 3));
  for (int i = 0; i < 40; ++i) {
    ASSERT_THAT(client_->Send(to_server_, "c", i % 3 ? payload : small),
                IsOk());
    ASSERT_THAT(server_->Send(to_client_, "s", i % 3 ? payload : small),
                IsOk());
  }
  ASSERT_TRUE(DriveBoth([&] { return server_->heard.size() >= 3; }));
  client_->context->Close(to_server_);
  server_->context->Close(to_client_);
  ASSERT_TRUE(DriveBoth([&] { return HaveBothEnded(); }));
  EXPECT_TRUE(client_->EachCompletedOnce());
  EXPECT_TRUE(server_->EachCompletedOnce());
  EXPECT_EQ(client_->sends_due_at_close[to_server_], 0);
  EXPECT_EQ(server_->sends_due_at_close[to_client_], 0);
}

TEST_P(Transport, RefusedHeaderClosesThatEndpointOnly) {
  const EndpointId other = Connect();
  server_->on_header = [](EndpointId, ConstBytes header, size_t) {
    return header.data[0] == std::byte{'!'}
               ? absl::UnauthenticatedError("no such worker")
               : absl::OkStatus();
  };
  ASSERT_THAT(client_->Send(to_server_, "!", Pattern(100000, 1)), IsOk());
  ASSERT_THAT(client_->Send(other, "good", Pattern(100000, 2)), IsOk());
  ASSERT_TRUE(
      DriveBoth([&] { return HaveBothEnded() && server_->heard.size() == 1; }));
  EXPECT_EQ(server_->heard[0].header, "good");
  EXPECT_THAT(server_->closed[to_client_],
              StatusIs(StatusCode::kCancelled, "no such worker"));
  EXPECT_THAT(client_->closed[to_server_],
              StatusIs(StatusCode::kUnavailable, ""));
  ASSERT_THAT(client_->Send(other, "again"), IsOk());
  EXPECT_TRUE(DriveBoth([&] { return server_->heard.size() == 2; }));
}

TEST_P(Transport, ContextThatEndsIsSeenByItsPeer) {
  ASSERT_THAT(client_->Send(to_server_, "hello"), IsOk());
  ASSERT_TRUE(DriveBoth([&] { return server_->heard.size() == 1; }));
  server_->context.reset();
  ExpectUnavailable(to_server_);
}

TEST_P(Transport, ConnectThatIsRefusedAtOnceIsHeardInProgress) {
  // All hosts: nobody's, the kernel says.
  const auto made = client_->context->Connect("255.255.255.255:1");
  if (!made.ok()) GTEST_SKIP() << "addresses are others: " << made.status();
  ExpectUnavailable(*made);
}

TEST_P(Transport, ConnectToADeadAddressIsClosedSoon) {
  server_->context.reset();  // nobody listens there any more
  ExpectUnavailable(Connect());
}

TEST_P(Transport, WakeEndsAWaitingProgress) {
  ASSERT_TRUE(Drive({client_.get()}, [&] {  // nothing left to do
    return !client_->context->Progress(Clock::now());
  }));
  for (int i = 0; i < 50; ++i) {
    std::thread waker([&] { client_->context->Wake(); });
    const TimePoint deadline = Clock::now() + std::chrono::seconds(60);
    while (client_->context->Progress(deadline)) {
    }
    EXPECT_LT(Clock::now(), deadline);
    waker.join();
  }
}

TEST_P(Transport, PeersInMemoryAreToldFromThoseOnANetwork) {
  const bool is_in_memory = GetParam().is_in_memory;  // of backends.cc
  for (Node* node : {server_.get(), client_.get()}) {
    node->on_message = [node, is_in_memory](const Heard& message) {
      EXPECT_EQ(node->context->IsInMemory(message.from), is_in_memory);
    };
  }
  ASSERT_THAT(client_->Send(to_server_, "h", "there"), IsOk());
  ASSERT_TRUE(DriveBoth([&] { return server_->heard.size() == 1; }));
  ASSERT_THAT(server_->Send(to_client_, "h", "back"), IsOk());
  ASSERT_TRUE(DriveBoth([&] { return client_->heard.size() == 1; }));
  EXPECT_EQ(client_->context->IsInMemory(to_server_), is_in_memory);
  EXPECT_EQ(server_->context->IsInMemory(to_client_), is_in_memory);
  EXPECT_FALSE(client_->context->ChecksPackets(to_server_));
}

TEST_P(Transport, ProgressReturnsAtItsDeadline) {
  const TimePoint deadline = Clock::now() + std::chrono::milliseconds(30);
  while (client_->context->Progress(deadline)) {
  }
  EXPECT_GE(Clock::now(), deadline);
}

TEST_P(Transport, EachSideMayHaveItsOwnThread) {
  constexpr size_t kMessages = 200;
  std::atomic<bool> is_done{false};
  std::thread server_thread([&] {
    server_->on_message = [&](const Heard& message) {
      EXPECT_THAT(server_->Send(message.from, message.header, message.payload),
                  IsOk());
    };
    while (!is_done) {
      server_->context->Progress(Clock::now() + std::chrono::seconds(1));
    }
  });
  for (size_t i = 0; i < kMessages; ++i) {
    EXPECT_THAT(client_->Send(to_server_, "h", Pattern(i * 500, 1)), IsOk());
  }
  EXPECT_TRUE(Drive({client_.get()},
                    [&] { return client_->heard.size() == kMessages; }));
  is_done = true;
  server_->context->Wake();
  server_thread.join();
}

INSTANTIATE_TEST_SUITE_P(Over, Transport, ::testing::ValuesIn(AllBackends()),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Over, TransportInBulk,
                         ::testing::ValuesIn(BulkBackends()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace telegrad::testing
