#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "base/exit_code.h"
#include "base/socket.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/ps/fake_server.h"
#include "tests/testing/memory_limit.h"
#include "transport/transport.h"

// What becomes of operations when a member is lost or the job fails.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Job;
using ::testing::Not;
using testing::Soon;
using testing::StatusIs;

Buffer Ones(size_t n) {
  Buffer buffer(4 * n);
  std::fill_n(buffer.as<float>(), n, 1.0f);
  return buffer;
}

TEST(LostServer, FailsTicketsByName) {
  for (const std::string transport : {"inproc", "tcp", "ucx", "ofi"}) {
    if (absl::StrContains(DescribeTransports(), transport + ": not in")) {
      continue;
    }
    ClusterConfig config = Job(1);
    config.has_values = false;
    config.transport = transport;
    Cluster cluster(config);
    auto server = std::make_unique<FakeServer>(cluster.Options());
    testing::Worker store = cluster.MakeWorker(0);
    std::vector<Buffer> values;
    ASSERT_THAT(cluster.Init(store, values), IsOk());
    Buffer memory = Ones(33);
    const Ticket ticket = store->PushPull(0, memory.view(), memory.view(), 0);
    EXPECT_FALSE(
        ticket.WaitUntil(Clock::now() + std::chrono::milliseconds(50)));
    server = nullptr;  // as if killed
    const TimePoint start = Clock::now();
    const absl::Status status = ticket.Wait(Soon());
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kServerLost) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("server/0"));
  }
}

// A ticket's end gives the memory back, also from a peer that takes its time.
TEST(FailedStore, EndsTicketsWhenNobodyHasTheirMemory) {
  constexpr size_t kElems = size_t{1} << 20;  // pages of its own
  ClusterConfig config = Job(1);
  config.has_values = false;
  config.tensors = {{"a", kElems}};
  config.chunk_elems = kElems;
  const Buffer memory = Ones(kElems);
  Cluster cluster(config);
  FakeServer server(cluster.Options());
  testing::Worker store = cluster.MakeWorker(0);
  std::vector<Buffer> values;
  ASSERT_THAT(cluster.Init(store, values), IsOk());
  server.HoldPushes();
  const Ticket ticket = store->PushPull(0, memory.view(), memory.view(), 0);
  const TimePoint deadline = Soon();
  while (!server.holds_push() && Clock::now() < deadline) {
    ticket.WaitUntil(Clock::now() + std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(server.holds_push());
  store->group().Fail(absl::DataLossError("worker/0 gives up"));
  EXPECT_THAT(ticket.Wait(Soon()),
              StatusIs(absl::StatusCode::kDataLoss, "gives up"));
  // Whoever touches it now dies.
  ASSERT_EQ(mprotect(memory.data(), memory.size(), PROT_NONE), 0);
  server.TakePushes();
}

TEST(FailedStore, SaysThatThereIsNoMemoryForAnAnswer) {
  ClusterConfig config = Job(1);
  config.has_values = false;
  Cluster cluster(config);
  FakeServer server(cluster.Options());
  testing::Worker store = cluster.MakeWorker(0);
  std::vector<Buffer> values;
  ASSERT_THAT(cluster.Init(store, values), IsOk());
  const testing::MemoryLimit limit(FakeServer::kStateBytes / 2);
  const absl::Status status =
      store->states()->codec_states()->SaveCodec(0).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kResourceLimit) << status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               "server/0: no memory for a buffer"));
}

TEST(FalseServer, IsNotGivenGradientsWithoutAProof) {
  ClusterConfig config = Job(1);
  config.has_values = false;
  config.secret = *Secret::Derive(std::string(32, 'k'), "local");
  Cluster cluster(config);
  const FakeServer server(cluster.Options(), /*proves_itself=*/false);
  testing::Worker store = cluster.MakeWorker(0);
  const absl::Status status = cluster.Init(store, {});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kAuthentication) << status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnauthenticated,
                               "has not proved who it is"));
  store->Close();
}

TEST(LostWorker, FailsTicketsOfTheOthersByName) {
  Cluster cluster(Job(2));
  cluster.StartServers();
  auto other = std::async(std::launch::async, [&] {
    testing::Worker store = cluster.MakeWorker(1);
    std::vector<Buffer> values = cluster.MakeValues(1);
    EXPECT_THAT(cluster.Init(store, values), IsOk());
    store->group().Fail(WithExitCode(ExitCode::kNumericFault,
                                     absl::DataLossError("worker/1 gives up")));
  });
  testing::Worker store = cluster.MakeWorker(0);
  std::vector<Buffer> values = cluster.MakeValues(0);
  ASSERT_THAT(cluster.Init(store, values), IsOk());
  const absl::Status status = store->Push(0, values[0].view(), 0).Wait(Soon());
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker/1 gives up"));
}

// A member's way to the scheduler, on which the word of its failure takes
// longer than what others say.
class SlowWay {
 public:
  explicit SlowWay(const std::string& scheduler)
      : scheduler_(scheduler), listener_(*ListenOn(*ParseIp("127.0.0.1", 0))) {
    thread_ = std::thread([this] { Run(); });
  }
  ~SlowWay() {
    is_stopping_ = true;
    thread_.join();
  }
  std::string address() const {
    return ToString(*LocalAddress(listener_.get()));
  }

 private:
  static bool IsReadable(int fd) {
    pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&polled, 1, 5) > 0;
  }
  void Run() {
    while (!IsReadable(listener_.get())) {
      if (is_stopping_) return;
    }
    const UniqueFd member(accept(listener_.get(), nullptr, nullptr));
    const UniqueFd scheduler = *BeginConnect(*ParseIpPort(scheduler_));
    pollfd polled{.fd = scheduler.get(), .events = POLLOUT, .revents = 0};
    poll(&polled, 1, 20000);
    while (!is_stopping_ && Pass(member.get(), scheduler.get()) &&
           Pass(scheduler.get(), member.get())) {
    }
  }
  // False: one of them has hung up.
  static bool Pass(int from, int to) {
    if (!IsReadable(from)) return true;
    char bytes[65536];
    const ssize_t count = read(from, bytes, sizeof(bytes));
    if (count <= 0) return false;
    if (absl::StrContains({bytes, static_cast<size_t>(count)}, "\"fail\"")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    return write(to, bytes, static_cast<size_t>(count)) == count;
  }

  const std::string scheduler_;
  const UniqueFd listener_;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

// Two workers, of which the second one leaves after `rounds`, and what the
// first one's next step ends with. Only the leave can end it in time.
absl::Status StepAfterALeave(Cluster& cluster, int rounds) {
  const auto run = [&](int rank, int num_rounds) -> absl::Status {
    testing::Worker store = cluster.MakeWorker(rank);
    std::vector<Buffer> values = cluster.MakeValues(rank);
    absl::Status status = cluster.Init(store, values);
    for (int i = 0; i < num_rounds && status.ok(); ++i) {
      const Bytes bytes = values[0].view();
      status = store->PushPull(0, bytes, bytes, 0).Wait(Soon());
    }
    store->Close();
    return status;
  };
  auto other = std::async(std::launch::async, run, 1, rounds);
  const absl::Status status = run(0, rounds + 1);
  EXPECT_THAT(other.get(), IsOk());
  return status;
}

absl::Status StepAfterALeave(const ClusterConfig& config, int rounds) {
  Cluster cluster(config);
  if (!config.hosts_parts) cluster.StartServers();
  return StepAfterALeave(cluster, rounds);
}

TEST(LeftWorker, FailsTheNextStepOfTheOthersByName) {
  const absl::Status status = StepAfterALeave(Job(2), 2);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied) << status;
  EXPECT_EQ(status.message(),
            "worker/1 has left the job after step 2; tensor a, step 3 waits "
            "for it");
}

TEST(LeftWorker, IsToldBeforeTheServerThatSaysSoHangsUp) {
  Cluster cluster(Job(2));
  const SlowWay way(cluster.scheduler().address());
  ServerOptions options{.job = cluster.Options()};
  options.job.scheduler_address = way.address();
  options.job.on_fatal = nullptr;
  ::testing::internal::CaptureStderr();
  auto server =
      std::async(std::launch::async, [&] { return RunServer(options); });
  const absl::Status status = StepAfterALeave(cluster, 2);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied) << status;
  EXPECT_EQ(ExitCodeOf(server.get()), ExitCode::kPeerDied);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              Not(HasSubstr("suspect")));
}

TEST(LeftWorker, FailsTheFirstStepOfWorkersThatSumForEachOther) {
  ClusterConfig config = Job(2, 2);
  config.store = "allreduce";
  config.hosts_parts = true;
  const absl::Status status = StepAfterALeave(config, 0);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker/1 has left the job before the first step"));
}

TEST(LeftWorker, IsNamedByItsRankInTheJobWhereAHostSumsFirst) {
  ClusterConfig config = Job(2);
  config.hosts = {"a", "a"};
  const absl::Status status = StepAfterALeave(config, 1);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker/1 has left the job after step 1; tensor a"));
}

TEST(LeftWorker, FailsTheFirstScaleOfTheOthers) {
  ClusterConfig config = Job(2);
  config.compression.type = "2bit";
  const absl::Status status = StepAfterALeave(config, 0);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 1 waits for it"));
}

TEST(LeftWorker, FailsABroadcastAndAMeetingOfTheOthers) {
  for (const bool is_meeting : {false, true}) {
    Cluster cluster(Job(2));
    cluster.StartServers();
    const auto run = [&](int rank) {
      testing::Worker store = cluster.MakeWorker(rank);
      std::vector<Buffer> values = cluster.MakeValues(rank);
      absl::Status status = cluster.Init(store, values);
      if (status.ok() && rank == 0) {
        const TensorView views[] = {FloatTensor(values[0].view())};
        status = is_meeting ? store->group().Gather("late", "").status()
                            : store->Broadcast(0, 1, views, 0).Wait(Soon());
      }
      store->Close();
      return status;
    };
    auto other = std::async(std::launch::async, run, 1);
    const absl::Status status = run(0);
    EXPECT_THAT(other.get(), IsOk());
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kPeerDied) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("worker/1 has left the job"));
    const auto events = cluster.log().Await(1);
    ASSERT_TRUE(events.has_value());
    ASSERT_EQ(events->front().dead.size(), 1u);
    EXPECT_EQ(events->front().dead[0].rfind("worker/1@", 0), 0u);
  }
}

TEST(LeftWorker, IsNotWaitedForByOnesThatPullOrPushAsynchronously) {
  for (const bool is_async : {false, true}) {
    ClusterConfig config = Job(2);
    if (is_async) {
      config.store = "dist_async";
      config.optimizer.update_on = UpdateOn::kServer;
    }
    Cluster cluster(config);
    cluster.StartServers();
    const auto run = [&](int rank) {
      testing::Worker store = cluster.MakeWorker(rank);
      std::vector<Buffer> values = cluster.MakeValues(rank);
      absl::Status status = cluster.Init(store, values);
      const Bytes bytes = values[0].view();
      for (int i = 0; rank == 0 && i < 3 && status.ok(); ++i) {
        status = is_async ? store->PushPull(0, bytes, bytes, 0).Wait(Soon())
                          : store->Pull(0, bytes, 0).Wait(Soon());
      }
      store->Close();
      return status;
    };
    auto other = std::async(std::launch::async, run, 1);
    EXPECT_THAT(run(0), IsOk());
    EXPECT_THAT(other.get(), IsOk());
    EXPECT_THAT(cluster.ServerStatus(0), IsOk());
    EXPECT_THAT(cluster.scheduler().Wait(nullptr), IsOk());
  }
}

}  // namespace
}  // namespace telegrad
