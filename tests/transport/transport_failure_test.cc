#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <filesystem>
#include <set>

#include "tests/testing/status_matchers.h"
#include "tests/transport/backend.h"
#include "tests/transport/transport_node.h"
#include "transport/transport.h"

namespace telegrad::testing {
namespace {

namespace fs = std::filesystem;

// A child process; killed and waited for at the end.
class Peer {
 public:
  Peer(const Backend& backend, std::string address, std::string deed) {
    std::string program = TELEGRAD_TEST_PEER;
    std::string name = backend.name, tls = backend.tls;
    std::string connections = std::to_string(backend.connections);
    std::string resend = "resend";
    char* argv[] = {program.data(),
                    name.data(),
                    tls.data(),
                    address.data(),
                    connections.data(),
                    deed.data(),
                    backend.resend ? resend.data() : nullptr,
                    nullptr};
    if (posix_spawn(&pid_, argv[0], nullptr, nullptr, argv, environ) != 0) {
      pid_ = 0;
    }
  }
  ~Peer() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) { ASSERT_EQ(kill(pid_, signal), 0); }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

std::set<std::string> SharedMemoryFiles() {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it("/dev/shm", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    // "ucx..." of UCX, "PID:UID:N" of libfabric.
    if (name.find("ucx") != std::string::npos ||
        name.find(':') != std::string::npos) {
      names.insert(name);
    }
  }
  return names;
}

// libfabric's shm takes spin locks inside its peers' segments: one that is
// killed while it holds one hangs the others (docs/transports.md).
bool MayHangWhenKilled(const Backend& backend) {
  return std::string(backend.name) == "ofi" &&
         std::string(backend.tls) == "shm";
}

class TransportPeer : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    const std::string test =
        ::testing::UnitTest::GetInstance()->current_test_info()->name();
    if (test.find("Killed") == 0 && MayHangWhenKilled(GetParam())) {
      GTEST_SKIP() << "a killed peer may hold libfabric's locks";
    }
    files_before_ = SharedMemoryFiles();
    server_ =
        std::make_unique<Node>(OptionsOf(GetParam()), FactoryOf(GetParam()));
    if (server_->status.code() == absl::StatusCode::kNotFound) {
      GTEST_SKIP() << server_->status;
    }
    ASSERT_THAT(server_->status, IsOk());
    const auto address = server_->context->Listen();
    ASSERT_THAT(address, IsOk());
    address_ = *address;
    server_->keep_payloads = false;
    StartPeer("take");
  }

  void StartPeer(const char* deed) {
    server_->heard.clear();
    peer_ = std::make_unique<Peer>(GetParam(), address_, deed);
    ASSERT_GT(peer_->pid(), 0);
    ASSERT_TRUE(DriveServer([&] { return !server_->heard.empty(); }));
    endpoint_ = server_->heard[0].from;
  }

  bool DriveServer(const std::function<bool()>& condition) {
    return Drive({server_.get()}, condition);
  }

  // More than the queues of shared memory take.
  static constexpr int kBacklog = 100;
  void SendBacklog(size_t num_bytes = 1 << 20) {
    const auto payload = std::make_shared<const std::string>(num_bytes, 'p');
    for (int i = 0; i < kBacklog; ++i) {
      ASSERT_THAT(server_->Send(endpoint_, "h", payload), IsOk());
    }
  }

  void ExpectClosedOnce() {
    ASSERT_TRUE(DriveServer([&] { return server_->closed.count(endpoint_); }));
    EXPECT_THAT(server_->closed[endpoint_],
                StatusIs(absl::StatusCode::kUnavailable, ""));
    EXPECT_EQ(server_->num_closed[endpoint_], 1);
    EXPECT_EQ(server_->sends_due_at_close[endpoint_], 0);
    EXPECT_TRUE(server_->EachCompletedOnce());
  }

  std::set<std::string> files_before_;
  std::string address_;
  std::unique_ptr<Node> server_;
  std::unique_ptr<Peer> peer_;
  EndpointId endpoint_ = 0;
};

TEST_P(TransportPeer, KilledWhileReceivingFailsTheSendsAndCloses) {
  SendBacklog();
  ASSERT_TRUE(DriveServer([&] { return server_->num_completed > 2; }));
  SendBacklog();
  peer_->Signal(SIGKILL);
  ExpectClosedOnce();
  EXPECT_THAT(server_->results.back()[0],
              StatusIs(absl::StatusCode::kUnavailable, ""));
}

TEST_P(TransportPeer, KilledWhileReceivingSmallMessagesCloses) {
  SendBacklog(3000);
  peer_->Signal(SIGSTOP);
  SendBacklog(30);
  SendBacklog(3000);
  peer_->Signal(SIGKILL);
  ExpectClosedOnce();
}

TEST_P(TransportPeer, KilledWhileSendingCloses) {
  peer_->Signal(SIGKILL);
  ExpectClosedOnce();
  for (int i = 0; i < 2; ++i) {
    StartPeer("flood");
    const size_t heard = server_->heard.size() + 20 + i;
    ASSERT_TRUE(DriveServer([&] { return server_->heard.size() >= heard; }));
    peer_->Signal(SIGKILL);
    ExpectClosedOnce();
  }
}

TEST_P(TransportPeer, KilledWhileIdleCloses) {
  peer_->Signal(SIGKILL);
  ExpectClosedOnce();
}

TEST_P(TransportPeer, KilledLeavesNoSharedMemoryBehind) {
  peer_->Signal(SIGKILL);
  ExpectClosedOnce();
  server_.reset();
  // Files of tests that run beside this one come and go; a lost one stays.
  std::set<std::string> stay = SharedMemoryFiles();
  for (const std::string& name : files_before_) stay.erase(name);
  const TimePoint deadline = Clock::now() + std::chrono::seconds(30);
  while (!stay.empty() && Clock::now() < deadline) {
    poll(nullptr, 0, 20);
    const std::set<std::string> now = SharedMemoryFiles();
    std::erase_if(stay, [&](const auto& name) { return !now.contains(name); });
  }
  EXPECT_THAT(stay, ::testing::IsEmpty());
}

TEST_P(TransportPeer, StoppedHoldsUpNobody) {
  peer_->Signal(SIGSTOP);
  SendBacklog();
  const TimePoint deadline = Clock::now() + std::chrono::milliseconds(200);
  while (Clock::now() < deadline) server_->context->Progress(deadline);
  EXPECT_EQ(server_->closed.count(endpoint_), 0u);
  peer_->Signal(SIGCONT);
  EXPECT_TRUE(DriveServer([&] { return server_->num_completed == kBacklog; }));
  EXPECT_TRUE(server_->EachCompletedOnce());
}

TEST_P(TransportPeer, StoppedDoesNotOutliveTheGraceOfClose) {
  peer_->Signal(SIGSTOP);
  SendBacklog();
  server_->context->Close(endpoint_);
  ASSERT_TRUE(DriveServer([&] { return server_->closed.count(endpoint_); }));
  EXPECT_THAT(server_->closed[endpoint_],
              StatusIs(absl::StatusCode::kCancelled, ""));
  EXPECT_TRUE(server_->EachCompletedOnce());
}

INSTANTIATE_TEST_SUITE_P(
    Over, TransportPeer,
    ::testing::Values(
        Backend{"Tcp", "tcp", "tcp"}, Backend{"TcpSameHost", "tcp", ""},
        Backend{"UcxTcp", "ucx", "tcp"}, Backend{"UcxShm", "ucx", "shm"},
        Backend{"UcxDefault", "ucx", ""}, Backend{"OfiTcp", "ofi", "tcp"},
        Backend{"OfiRxm", "ofi", "tcp;ofi_rxm"},
        Backend{"OfiShm", "ofi", "shm"},
        Backend{"MultiRailTcp", "tcp", "tcp", 0, "", 4},
        Backend{"MultiRailUcxTcp", "ucx", "tcp", 0, "", 2},
        Resent({"ResendTcp", "tcp", "tcp"}),
        Resent({"ResendUcxShm", "ucx", "shm"}),
        Staged({"BounceTcp", "tcp", "tcp"}),
        Staged({"BounceUcxTcp", "ucx", "tcp"}),
        Staged({"BounceOfiTcp", "ofi", "tcp"})),
    [](const auto& param) { return param.param.test_name; });

}  // namespace
}  // namespace telegrad::testing
