#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/stranger.h"
#include "tests/transport/transport_node.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/provider.h"
#include "transport/ofi/wire.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

TransportOptions OptionsOf(const char* tls) {
  TransportOptions options;
  options.name = "ofi";
  options.tls = tls;
  return options;
}

// One of libfabric's libraries would exit() in a handler of its own.
TEST(OfiTransport, SignalsEndTheProcessAsEver) {
  for (const int number : {SIGTERM, SIGABRT}) {
    struct sigaction action = {};
    ASSERT_EQ(sigaction(number, nullptr, &action), 0);
    EXPECT_EQ(action.sa_handler, SIG_DFL) << number;
  }
}

TEST(OfiTransport, DetailsNameProviderDomainAndDeviceMemory) {
  const Node tcp(OptionsOf("tcp")), shm(OptionsOf("shm"));
  ASSERT_THAT(tcp.status, IsOk());
  EXPECT_THAT(tcp.context->info().details,
              ::testing::ContainsRegex(
                  "libfabric 1.[0-9]+, provider [a-z;_]+ [0-9.]+, domain lo, "
                  "FI_HMEM (yes|no), records of [0-9]+ bytes"));
  ASSERT_THAT(shm.status, IsOk());
  EXPECT_THAT(shm.context->info().details, HasSubstr("provider shm"));
}

// Who was killed leaves memory that is named after its number. Once a later
// process has this number it looks like its own.
TEST(OfiTransport, ShmTakesTheNumberOfAProcessThatWasKilled) {
  namespace fs = std::filesystem;
  const Node living(OptionsOf("shm"));
  ASSERT_THAT(living.status, IsOk());
  const std::string own = absl::StrCat(getpid(), ":", getuid(), ":");
  std::set<fs::path> mine;
  for (const auto& each : fs::directory_iterator("/dev/shm")) {
    const std::string name = each.path().filename();
    if (absl::StartsWith(name, own)) mine.insert(each.path());
  }
  ASSERT_FALSE(mine.empty());
  std::set<fs::path> left;
  for (int i = 0; i < 32; ++i) {
    const fs::path path = absl::StrCat("/dev/shm/", own, i);
    if (mine.count(path) > 0) continue;
    fs::copy_file(*mine.begin(), path);
    fs::last_write_time(
        path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    left.insert(path);
  }
  const Node later(OptionsOf("shm"));
  EXPECT_THAT(later.status, IsOk());
  for (const fs::path& each : mine) EXPECT_TRUE(fs::exists(each)) << each;
  // One of the names may be the later one's now.
  size_t num_left = 0;
  for (const fs::path& each : left) num_left += fs::exists(each) ? 1 : 0;
  EXPECT_LE(num_left, 1u);
  if (later.status.ok()) return;
  for (const fs::path& each : left) fs::remove(each);
}

TEST(OfiTransport, UnusableOptionsAreErrors) {
  EXPECT_THAT(Node(OptionsOf("carrier-pigeon")).status,
              StatusIs(StatusCode::kInvalidArgument, "carrier-pigeon"));
  EXPECT_THAT(Node(OptionsOf("pigeon")).status,
              StatusIs(StatusCode::kInvalidArgument, "pigeon"));
  TransportOptions options = OptionsOf("tcp");
  options.bind_address = "localhost";
  EXPECT_THAT(Node(options).status,
              StatusIs(StatusCode::kInvalidArgument, "localhost"));
  options.bind_address = "203.0.113.77";
  EXPECT_THAT(Node(options).status, StatusIs(StatusCode::kUnavailable, ""));
}

TEST(OfiTransport, MalformedAddressesAreErrors) {
  Node node(OptionsOf("tcp"));
  ASSERT_THAT(node.status, IsOk());
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",
                           "127.0.0.1:65536", "name:80", "[::1:80"}) {
    EXPECT_THAT(node.context->Connect(text),
                StatusIs(StatusCode::kInvalidArgument, ""))
        << text;
  }
}

TEST(OfiTransport, PeersOfDifferentProvidersPartWithAReason) {
  Node server(OptionsOf("tcp")), client(OptionsOf("shm"));
  ASSERT_THAT(server.status, IsOk());
  ASSERT_THAT(client.status, IsOk());
  const auto endpoint = client.context->Connect(*server.context->Listen());
  ASSERT_THAT(endpoint, IsOk());
  ASSERT_THAT(client.Send(*endpoint, "h"), IsOk());
  ASSERT_TRUE(Drive({&server, &client},
                    [&] { return client.closed.count(*endpoint) > 0; }));
  EXPECT_THAT(client.closed[*endpoint], StatusIs(StatusCode::kUnavailable, ""));
  EXPECT_TRUE(client.EachCompletedOnce());
  EXPECT_TRUE(server.accepted.empty());
}

class OfiLargeMessages : public ::testing::TestWithParam<const char*> {};

TEST_P(OfiLargeMessages, GoAnotherWayOnceAgreed) {
  Node server(OptionsOf(GetParam())), client(OptionsOf(GetParam()));
  ASSERT_THAT(server.status, IsOk());
  const auto endpoint = client.context->Connect(*server.context->Listen());
  ASSERT_THAT(endpoint, IsOk());
  const auto payload = std::make_shared<const std::string>(1 << 20, 'p');
  const auto is_agreed = [&] {
    const std::string details = client.context->info().details;
    return details.find(" 0 large messages") == std::string::npos;
  };
  // The first ones are copied: nobody waits for the agreement.
  ASSERT_TRUE(Drive({&server, &client}, [&] {
    if (!is_agreed() && client.sends_due[*endpoint] == 0) {
      EXPECT_THAT(client.Send(*endpoint, "large", payload), IsOk());
      EXPECT_THAT(client.Send(*endpoint, "small"), IsOk());
    }
    return is_agreed() && client.EachCompletedOnce() &&
           server.heard.size() == client.results.size();
  }));
  for (size_t i = 0; i < server.heard.size(); ++i) {
    EXPECT_EQ(server.heard[i].header, i % 2 == 0 ? "large" : "small");
    EXPECT_TRUE(server.heard[i].payload ==
                (i % 2 == 0 ? *payload : std::string()));
  }
  client.context->Close(*endpoint);
  ASSERT_TRUE(Drive({&server, &client}, [&] {
    return server.closed.size() == 1 && client.closed.size() == 1;
  }));
  EXPECT_THAT(client.context->info().details, HasSubstr(" 0 lanes"));
  EXPECT_THAT(server.context->info().details, HasSubstr(" 0 lanes"));
}

INSTANTIATE_TEST_SUITE_P(Over, OfiLargeMessages,
                         ::testing::Values("tcp", "shm"),
                         [](const auto& param) {
                           return std::string(param.param);
                         });

// A handler that answers keeps messages coming: sends must complete meanwhile.
TEST(OfiTransport, ConversationsDoNotHoldUpCompletions) {
  constexpr size_t kRounds = 20000;
  constexpr size_t kAtOnce = 4;
  Node server(OptionsOf("tcp")), client(OptionsOf("tcp"));
  const auto to_server = *client.context->Connect(*server.context->Listen());
  size_t most_due = 0;
  server.on_message = [&](const Heard& heard) {
    ASSERT_THAT(server.Send(heard.from, ""), IsOk());
    most_due = std::max(most_due, server.results.size() - server.num_completed);
  };
  size_t num_asked = kAtOnce;
  client.on_message = [&](const Heard&) {
    if (num_asked++ < kRounds) {
      ASSERT_THAT(client.Send(to_server, ""), IsOk());
    }
  };
  for (size_t i = 0; i < kAtOnce; ++i) {
    ASSERT_THAT(client.Send(to_server, ""), IsOk());
  }
  const TimePoint deadline = Clock::now() + std::chrono::seconds(60);
  std::atomic<bool> is_over = false;
  std::thread serving([&] {
    while (!is_over) {
      server.context->Progress(Clock::now() + std::chrono::milliseconds(10));
    }
  });
  while (client.heard.size() < kRounds && Clock::now() < deadline) {
    client.context->Progress(deadline);
  }
  is_over = true;
  server.context->Wake();
  serving.join();
  EXPECT_EQ(client.heard.size(), kRounds);
  EXPECT_LE(most_due, 64u);
}

TEST(OfiTransport, StrangersAreCutAndNobodyElseNotices) {
  Node server(OptionsOf("tcp")), client(OptionsOf("tcp"));
  const std::string address = *server.context->Listen();
  const auto endpoint = client.context->Connect(address);
  ASSERT_THAT(endpoint, IsOk());
  ofi::Hello wrong_address{
      .endpoint = 7, .token = 9, .fabric = "net", .address = "x"};
  ofi::Hello wrong_fabric{
      .endpoint = 7, .token = 9, .fabric = "shm", .address = ""};
  std::string long_text = ofi::PackHello(wrong_address);
  long_text[24] = long_text[25] = '\x7f';
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\0'),
        ofi::PackHello(wrong_address), ofi::PackHello(wrong_fabric), long_text,
        ofi::PackHello(wrong_fabric) + "more"}) {
    Stranger stranger(address);
    ASSERT_TRUE(Drive({&server, &client}, [&] {
      stranger.Say(text);
      return stranger.IsCut();
    }));
  }
  Stranger silent(address), half(address);
  half.Say(ofi::PackHello(wrong_fabric).substr(0, 20));
  ASSERT_THAT(client.Send(*endpoint, "h", "good"), IsOk());
  ASSERT_TRUE(
      Drive({&server, &client}, [&] { return server.heard.size() == 1; }));
  EXPECT_EQ(server.accepted.size(), 1u);
  EXPECT_TRUE(server.closed.empty());
}

// libfabric takes addresses without a look at them.
TEST(OfiTransport, NothingOfAStrangerReachesLibfabricAndNothingIsToldToIt) {
  TransportOptions options = OptionsOf("shm");
  options.key = MakeConnectionKey("the job's");
  Node server(options);
  ASSERT_THAT(server.status, IsOk());
  const std::string address = *server.context->Listen();
  const auto fabric = *ofi::Fabric::Make(options);
  // The hello of somebody of this host and user.
  const std::string right = ofi::PackHello({.endpoint = 7,
                                            .token = 9,
                                            .fabric = fabric->identity(),
                                            .address = fabric->address()});
  Stranger greeting(address);
  ASSERT_TRUE(Drive({&server}, [&] {
    greeting.Say(right);
    return greeting.IsCut();
  }));
  Stranger stranger(address);
  ASSERT_TRUE(Drive({&server}, [&] {
    stranger.Say(std::string(1, 'n'));
    return !stranger.HearsNothing();
  }));
  const std::string answer = stranger.Hear(65);
  EXPECT_EQ(answer.size(), 64u);  // nonce and MAC
  EXPECT_THAT(answer, Not(HasSubstr("uid:")));
  EXPECT_TRUE(server.accepted.empty());
}

// A name that is not of this user's endpoints is none to remove.
TEST(OfiProvider, AnAddressOfSharedMemoryIsOfThisUser) {
  const auto info = ofi::ChooseProvider(OptionsOf("shm"));
  ASSERT_THAT(info, IsOk());
  const auto is_address = [&](const std::string& name) {
    return ofi::IsAddressLike(**info, "",
                              "fi_shm://" + name + std::string(1, '\0'));
  };
  const std::string uid = absl::StrCat(getuid());
  EXPECT_TRUE(is_address("17:" + uid + ":0"));
  const std::vector<std::string> others = {
      "17", "17:" + uid,     uid + ":" + uid,      "17:9" + uid + ":0",
      "::", ":" + uid + ":", "17:" + uid + ":../x"};
  for (const std::string& name : others) {
    EXPECT_FALSE(is_address(name)) << name;
  }
}

ofi::Record MakeRecord(const std::string& header, const std::string& data) {
  ofi::Record record;
  record.token = 0x0123456789abcdef;
  record.to = 5;
  record.sequence = 77;
  record.payload_bytes = static_cast<uint32_t>(data.size());
  record.header = {header.data(), header.size()};
  record.data = {data.data(), data.size()};
  return record;
}

std::vector<std::byte> Pack(const ofi::Record& record) {
  std::vector<std::byte> bytes(ofi::kRecordBytes + record.header.size +
                               record.data.size);
  const size_t used = ofi::PackRecord(record, bytes.data());
  std::copy_n(record.data.data, record.data.size, bytes.data() + used);
  return bytes;
}

TEST(OfiWire, RecordSurvivesARoundTrip) {
  const std::string header = "header", data = "some data";
  const auto bytes = Pack(MakeRecord(header, data));
  const auto record = ofi::ParseRecord({bytes.data(), bytes.size()});
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->token, 0x0123456789abcdefu);
  EXPECT_EQ(record->to, 5u);
  EXPECT_EQ(record->sequence, 77u);
  EXPECT_EQ(record->header.size, header.size());
  EXPECT_EQ(record->data.size, data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(),
                         reinterpret_cast<const char*>(record->data.data)));
}

TEST(OfiWire, LargeMessageNamesAPlaceOrNone) {
  const std::string header = "header", place = "8 bytes!";
  for (const std::string& data : {place, std::string()}) {
    ofi::Record sent = MakeRecord(header, data);
    sent.kind = ofi::Kind::kLarge;
    sent.payload_bytes = 1 << 20;
    const auto bytes = Pack(sent);
    const auto record = ofi::ParseRecord({bytes.data(), bytes.size()});
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->payload_bytes, 1u << 20);
    EXPECT_EQ(record->data.size, data.size());
  }
}

TEST(OfiWire, ContradictoryRecordsAreRefused) {
  const std::string header = "header", data = "some data";
  const ofi::Record good = MakeRecord(header, data);
  std::vector<ofi::Record> bad(10, good);
  bad[0].payload_bytes = 3;           // more data than payload
  bad[1].offset = 4;                  // a header behind the beginning
  bad[2].payload_bytes = 0xffffffff;  // too large
  bad[3].kind = static_cast<ofi::Kind>(7);
  bad[4].kind = ofi::Kind::kGoodbye;  // with a payload
  bad[5].data = {};                   // brings nothing
  bad[6].header = {};
  bad[6].offset = 100;              // behind the end
  bad[7].kind = ofi::Kind::kLarge;  // with data that is no place
  bad[8].kind = ofi::Kind::kOffer;  // with a payload
  bad[9].kind = ofi::Kind::kTaken;
  bad[9].data = {};
  bad[9].payload_bytes = 0;  // with a header
  for (const ofi::Record& record : bad) {
    const auto bytes = Pack(record);
    EXPECT_FALSE(ofi::ParseRecord({bytes.data(), bytes.size()}).has_value());
  }
  const auto bytes = Pack(good);
  for (size_t size = 0; size < ofi::kRecordBytes + header.size(); ++size) {
    EXPECT_FALSE(ofi::ParseRecord({bytes.data(), size}).has_value()) << size;
  }
}

TEST(OfiWire, AnyBytesAreJudgedWithinTheirBounds) {
  Random random(1);
  const std::string header = "h", data = "d";
  const auto good = Pack(MakeRecord(header, data));
  for (int i = 0; i < 100000; ++i) {
    std::vector<std::byte> bytes = good;
    bytes.resize(random.NextBelow(good.size() + 1));
    for (int k = 0; k < 3 && !bytes.empty(); ++k) {
      bytes[random.NextBelow(bytes.size())] =
          static_cast<std::byte>(random.NextU32());
    }
    const auto record = ofi::ParseRecord({bytes.data(), bytes.size()});
    if (!record.has_value()) continue;
    EXPECT_EQ(ofi::kRecordBytes + record->header.size + record->data.size,
              bytes.size());
    EXPECT_LE(uint64_t{record->offset} + record->data.size,
              std::max<uint64_t>(record->payload_bytes, ofi::kPlaceBytes));
  }
}

TEST(OfiWire, HelloIsReadInPieces) {
  const std::string text = ofi::PackHello({.endpoint = 3,
                                           .token = 0xfedcba9876543210,
                                           .fabric = "net",
                                           .address = "address"});
  for (size_t size = 0; size < text.size(); ++size) {
    const auto hello = ofi::ParseHello(absl::string_view(text).substr(0, size));
    ASSERT_THAT(hello, IsOk()) << size;
    EXPECT_FALSE(hello->has_value()) << size;
  }
  const auto hello = ofi::ParseHello(text);
  ASSERT_THAT(hello, IsOk());
  ASSERT_TRUE(hello->has_value());
  EXPECT_EQ((*hello)->endpoint, 3u);
  EXPECT_EQ((*hello)->token, 0xfedcba9876543210u);
  EXPECT_EQ((*hello)->fabric, "net");
  EXPECT_EQ((*hello)->address, "address");
  EXPECT_THAT(ofi::ParseHello(text + "x"),
              StatusIs(StatusCode::kInvalidArgument, ""));
}

}  // namespace
}  // namespace telegrad::testing
