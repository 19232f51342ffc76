#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/local_socket.h"
#include "base/resource_limit.h"
#include "tests/testing/as_nobody.h"
#include "tests/testing/status_matchers.h"
#include "tests/transport/stranger.h"
#include "tests/transport/transport_node.h"
#include "transport/greeting.h"
#include "transport/proof.h"

// That nobody is heard, and told anything, who has not proved that he holds the
// job's key, and that such do not keep others out.
namespace telegrad::testing {
namespace {

using absl::StatusCode;

const ConnectionKey& Key() {
  static const auto* const key =
      new ConnectionKey(MakeConnectionKey("the job's"));
  return *key;
}

// What each side has said, in turn, until both are done or one refuses.
struct Dialogue {
  Dialogue(
      Proof client, Proof server,
      const std::function<void(size_t, std::string&)>& change =
          [](size_t, std::string&) {}) {
    said.push_back(client.Begin());
    while (!(client.is_done() && server.is_done()) && result.ok()) {
      Proof& hearer = said.size() % 2 == 1 ? server : client;
      change(said.size() - 1, said.back());
      absl::string_view bytes = said.back();
      absl::StatusOr<std::string> answer = hearer.Take(&bytes);
      result = answer.status();
      if (answer.ok()) said.push_back(*answer);
      if (said.size() > 10) result = absl::AbortedError("no end");
    }
  }
  std::vector<std::string> said;
  absl::Status result;
};

TEST(Proof, IsDoneAtOnceWithoutAKey) {
  Proof client(nullptr, true), server(nullptr, false);
  EXPECT_TRUE(client.is_done() && server.is_done());
  EXPECT_EQ(client.Begin(), "");
}

TEST(Proof, TakesThreeMessagesThatAreNewEachTime) {
  const Dialogue one(Proof(Key(), true), Proof(Key(), false));
  const Dialogue two(Proof(Key(), true), Proof(Key(), false));
  ASSERT_THAT(one.result, IsOk());
  ASSERT_EQ(one.said.size(), 4u);
  EXPECT_EQ(one.said[0].size(), 32u);
  EXPECT_EQ(one.said[1].size(), 64u);
  EXPECT_EQ(one.said[2].size(), 32u);
  EXPECT_EQ(one.said[3], "");
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(one.said[i], two.said[i]);
}

TEST(Proof, IsReadInPiecesAndNoFurther) {
  Proof client(Key(), true), server(Key(), false);
  const std::string nonce = client.Begin() + "more";
  for (size_t i = 0; i < 31; ++i) {
    absl::string_view byte = absl::string_view(nonce).substr(i, 1);
    EXPECT_EQ(*server.Take(&byte), "");
  }
  absl::string_view rest = absl::string_view(nonce).substr(31);
  EXPECT_EQ(server.Take(&rest)->size(), 64u);
  EXPECT_EQ(rest, "more");
}

TEST(Proof, AnotherKeyAReplayAReflectionAndEachFlippedBitAreRefused) {
  const auto expect_refused = [](const absl::Status& result) {
    EXPECT_THAT(result, StatusIs(StatusCode::kUnauthenticated, "secret"));
  };
  const ConnectionKey other = MakeConnectionKey("another's");
  expect_refused(Dialogue(Proof(Key(), true), Proof(other, false)).result);
  const Dialogue old(Proof(Key(), true), Proof(Key(), false));
  for (const size_t message : {1, 2}) {
    const auto replay = [&](size_t at, std::string& text) {
      if (at == message) text = old.said[message];
    };
    expect_refused(
        Dialogue(Proof(Key(), true), Proof(Key(), false), replay).result);
  }
  std::string of_server;
  const auto reflect = [&](size_t at, std::string& text) {
    if (at == 1) of_server = text.substr(32);
    if (at == 2) text = of_server;
  };
  expect_refused(
      Dialogue(Proof(Key(), true), Proof(Key(), false), reflect).result);
  for (size_t message = 0; message < 3; ++message) {
    for (size_t bit = 0; bit < 8 * old.said[message].size(); ++bit) {
      const auto flip = [&](size_t at, std::string& text) {
        if (at != message) return;
        text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
      };
      expect_refused(
          Dialogue(Proof(Key(), true), Proof(Key(), false), flip).result);
    }
  }
}

// Every transport whose peers are other processes, and "" for both.
std::vector<TransportOptions> Networks() {
  std::vector<TransportOptions> all;
  for (const auto& [name, tls] :
       {std::pair("tcp", "tcp"), std::pair("tcp", ""), std::pair("ucx", "tcp"),
        std::pair("ucx", "shm"), std::pair("ofi", "tcp"),
        std::pair("ofi", "shm")}) {
    if (absl::StrContains(DescribeTransports(),
                          absl::StrCat(name, ": not in"))) {
      continue;
    }
    TransportOptions& options = all.emplace_back();
    options.name = name;
    options.tls = tls;
    options.key = Key();
  }
  return all;
}

TEST(Key, WithoutItNobodyIsHeard) {
  for (const TransportOptions& options : Networks()) {
    SCOPED_TRACE(absl::StrCat(options.name, " ", options.tls));
    Node server(options);
    const std::string address = *server.context->Listen();
    for (const ConnectionKey& key :
         {ConnectionKey(), MakeConnectionKey("another's")}) {
      TransportOptions wrong = options;
      wrong.key = key;
      Node stranger(wrong);
      const EndpointId endpoint = *stranger.context->Connect(address);
      ASSERT_THAT(stranger.Send(endpoint, "h", Pattern(1 << 20)), IsOk());
      ASSERT_TRUE(Drive({&server, &stranger},
                        [&] { return stranger.closed.contains(endpoint); }));
      if (key == nullptr) continue;
      EXPECT_THAT(stranger.closed[endpoint],
                  StatusIs(StatusCode::kUnauthenticated, "secret"));
    }
    EXPECT_TRUE(server.accepted.empty());
    EXPECT_TRUE(server.heard.empty());
    EXPECT_TRUE(server.closed.empty());
    Node member(options);
    const EndpointId endpoint = *member.context->Connect(address);
    ASSERT_THAT(member.Send(endpoint, "h", "good"), IsOk());
    member.context->Close(endpoint);  // what was sent leaves all the same
    ASSERT_TRUE(Drive({&server, &member},
                      [&] { return member.closed.contains(endpoint); }));
    ASSERT_EQ(server.heard.size(), 1u);
    EXPECT_EQ(server.heard[0].payload, "good");
  }
}

TEST(Key, OfTheServerIsAskedForToo) {
  for (const TransportOptions& options : Networks()) {
    SCOPED_TRACE(absl::StrCat(options.name, " ", options.tls));
    TransportOptions wrong = options;
    wrong.key = MakeConnectionKey("another's");
    Node impostor(wrong), member(options);
    const EndpointId endpoint =
        *member.context->Connect(*impostor.context->Listen());
    ASSERT_THAT(member.Send(endpoint, "h", "gradients"), IsOk());
    ASSERT_TRUE(Drive({&impostor, &member},
                      [&] { return member.closed.contains(endpoint); }));
    EXPECT_THAT(member.closed[endpoint],
                StatusIs(StatusCode::kUnauthenticated, "secret"));
    EXPECT_TRUE(impostor.heard.empty());
  }
}

std::set<std::string> SharedFiles() {
  std::set<std::string> files;
  for (const auto& each : std::filesystem::directory_iterator("/dev/shm")) {
    files.insert(each.path());
  }
  return files;
}

// What it may open of `files`, or reach of us: 0 is nothing.
int AsAnotherUser(const std::set<std::string>& files,
                  const std::string& address) {
  if (setgid(kNobody) != 0 || setuid(kNobody) != 0) return 100;
  int num_open = 0;
  for (const std::string& file : files) {
    if (open(file.c_str(), O_RDONLY) >= 0) ++num_open;
  }
  char here, there = 0;
  const iovec own{&here, 1}, theirs{&there, 1};
  if (process_vm_readv(getppid(), &own, 1, &theirs, 1, 0) > 0) num_open += 10;
  absl::StatusOr<UniqueFd> socket = ConnectLocal("telegrad " + address);
  // Whoever is not trusted is hung up on.
  if (socket.ok() && recv(socket->get(), &here, 1, 0) > 0) num_open += 20;
  return num_open;
}

TEST(SharedMemory, GivesNothingToAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  for (const TransportOptions& options : Networks()) {
    if (options.tls == "tcp") continue;
    SCOPED_TRACE(absl::StrCat(options.name, " ", options.tls));
    const std::set<std::string> before = SharedFiles();
    Node server(options), member(options);
    const std::string address = *server.context->Listen();
    const EndpointId endpoint = *member.context->Connect(address);
    ASSERT_THAT(member.Send(endpoint, "h", Pattern(1 << 20)), IsOk());
    ASSERT_TRUE(
        Drive({&server, &member}, [&] { return !server.heard.empty(); }));
    ASSERT_TRUE(member.context->IsInMemory(endpoint));
    std::set<std::string> files;
    for (const std::string& file : SharedFiles()) {
      if (!before.contains(file)) files.insert(file);
    }
    const pid_t child = fork();
    if (child == 0) _exit(AsAnotherUser(files, address));
    int status = -1;
    ASSERT_TRUE(Drive({&server, &member}, [&] {
      return waitpid(child, &status, WNOHANG) == child;
    }));
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(server.accepted.size(), 1u);
  }
}

TEST(Loopback, IsOfOneUserWithoutAKey) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  for (TransportOptions options : Networks()) {
    // UCX 1.13 ends the process now and then when a connection is rejected.
    if (options.name == "ucx") continue;
    options.key = nullptr;
    SCOPED_TRACE(absl::StrCat(options.name, " ", options.tls));
    Node server(options), member(options);
    const std::string address = *server.context->Listen();
    Node stranger(options);
    EndpointId knocking;
    {
      const AsNobody nobody;
      knocking = *stranger.context->Connect(address);
      (void)stranger.Send(knocking, "h", "gradients");
    }
    EXPECT_TRUE(Drive({&server, &stranger},
                      [&] { return stranger.closed.contains(knocking); }));
    EXPECT_TRUE(server.accepted.empty());
    const EndpointId endpoint = *member.context->Connect(address);
    ASSERT_THAT(member.Send(endpoint, "h", "gradients"), IsOk());
    EXPECT_TRUE(
        Drive({&server, &member}, [&] { return !server.heard.empty(); }));
  }
}

// A newer one takes the place of the oldest that has had its second.
TEST(SilentStrangers, KeepNobodyOut) {
  RaiseOpenFileLimit();
  for (const TransportOptions& options : Networks()) {
    if (options.name == "ucx") continue;  // they are UCX's until it accepts
    SCOPED_TRACE(absl::StrCat(options.name, " ", options.tls));
    Node server(options), member(options);
    const std::string address = *server.context->Listen();
    std::vector<std::unique_ptr<Stranger>> silent;
    while (silent.size() < kMaxGreeting + 50) {
      silent.push_back(std::make_unique<Stranger>(address));
      server.context->Progress(Clock::now());
    }
    const TimePoint start = Clock::now();
    while (server.accepted.empty() && Clock::now() < start + kGreetGrace) {
      const EndpointId endpoint = *member.context->Connect(address);
      ASSERT_TRUE(Drive({&server, &member}, [&] {
        return !server.accepted.empty() || member.closed.contains(endpoint);
      }));
    }
    EXPECT_EQ(server.accepted.size(), 1u);
    EXPECT_LT(Clock::now(), start + kGreetGrace / 2);
  }
}

}  // namespace
}  // namespace telegrad::testing
