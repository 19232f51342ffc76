#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/ascii.h"
#include "base/exit_code.h"
#include "compression/codec.h"
#include "tests/kvstore/cluster.h"

// What callers are told when something is wrong.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Job;
using testing::Soon;
using testing::StatusIs;

constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Buffer Filled(size_t n, float value) {
  Buffer buffer(4 * n);
  std::fill_n(buffer.as<float>(), n, value);
  return buffer;
}

TEST(KVStore, GivesAllWorkersTheValuesOfWorkerZero) {
  ClusterConfig config = Job(3, 2);
  config.tensors = {{"a", 70}};
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    Buffer out(280);
    EXPECT_THAT(store.Pull(0, out.view(), 0).Wait(Soon()), IsOk());
    const std::vector<Buffer> expected = cluster.MakeValues(0);
    EXPECT_EQ(std::memcmp(out.data(), expected[0].data(), 280), 0);
  });
}

TEST(KVStore, RefusesMisuseWithoutHarm) {
  ClusterConfig config = Job(1);
  config.has_values = false;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    Buffer memory(132);
    const Bytes view = memory.view();
    const Bytes shorter(view.data, 128);
    const auto invalid = absl::StatusCode::kInvalidArgument;
    EXPECT_THAT(store.PushPull(1, view, view, 0).Wait(Soon()),
                StatusIs(invalid, "key 1 of 1"));
    EXPECT_THAT(store.Push(0, shorter, 0).Wait(Soon()),
                StatusIs(invalid, "128"));
    EXPECT_THAT(store.PushPull(0, view, shorter, 0).Wait(Soon()),
                StatusIs(invalid, "128"));
    EXPECT_THAT(store.Pull(0, view, 0).Wait(Soon()),
                StatusIs(kFailedPrecondition, "no value"));
    EXPECT_THAT(store.SetCompression({}),
                StatusIs(kFailedPrecondition, "Init"));
    OptimizerConfig other;
    other.kind = OptimizerKind::kAdam;
    EXPECT_THAT(store.SetOptimizer(other),
                StatusIs(kFailedPrecondition, "only rates"));
    EXPECT_THAT(store.Init({}, {}), StatusIs(invalid, "0 tensors"));
    EXPECT_THAT(store.Init(cluster.config().tensors, {}),
                StatusIs(invalid, "tensor a, which is there"));
    EXPECT_THAT(Ticket().Wait(Soon()), StatusIs(kFailedPrecondition, "ticket"));
    EXPECT_THAT(store.PushPull(0, view, view, 0).Wait(Soon()), IsOk());
    store.Close();
    EXPECT_THAT(store.Push(0, view, 0).Wait(Soon()),
                StatusIs(kFailedPrecondition, "closed"));
  });
}

TEST(KVStore, HasTypesByName) {
  EXPECT_THAT(MakeKVStore("disk", {}, nullptr),
              StatusIs(absl::StatusCode::kNotFound, "dist_sync"));
  EXPECT_THAT(MakeKVStore("dist_sync", {}, nullptr),
              StatusIs(kFailedPrecondition, "servers"));
  EXPECT_THAT(MakeKVStore("allreduce", {}, nullptr),
              StatusIs(kFailedPrecondition, "part of the sums"));
  EXPECT_THAT(MakeKVStore("local", {.max_staleness = 2}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, "for dist_async"));
}

TEST(KVStore, HasOtherNamesInAnyCase) {
  const std::vector<std::pair<std::string, std::string>> types = {
      {"local_update_cpu", "local"},
      {"Local_AllReduce_CPU", "local"},
      {"dist", "dist_sync"},
      {"dist_device_sync", "dist_sync"},
      {"DIST_SYNC_DEVICE", "dist_sync"},
      {"dist_async_device", "dist_async"},
      {"dist_device_async", "dist_async"},
      {"p3", "dist_sync"},
      {"BytePS", "dist_sync"},
      {"horovod", "allreduce"},
      {"AllReduce", "allreduce"}};
  const std::string help = DescribeKVStores();
  for (const auto& [name, type] : types) {
    const auto traits = FindStoreType(name);
    ASSERT_THAT(traits.status(), IsOk());
    EXPECT_EQ(traits->type, type);
    EXPECT_THAT(help, HasSubstr(absl::AsciiStrToLower(name)));
    EXPECT_THAT(std::string(FindStoreType("disk").status().message()),
                HasSubstr(absl::AsciiStrToLower(name)));
  }
  // Not by a part of it, as MXNet does.
  EXPECT_THAT(FindStoreType("xdist_sync"),
              StatusIs(absl::StatusCode::kNotFound, "xdist_sync"));
}

TEST(KVStore, TakesOneOperationPerKeyAndEndsItAtClose) {
  Cluster cluster(Job(2));
  cluster.Run([&](KVStore& store) {
    Buffer memory(132);
    const Bytes view = memory.view();
    if (store.group().rank() == 0) {
      const Ticket first = store.Push(0, view, 0);
      EXPECT_THAT(store.Push(0, view, 0).Wait(Soon()),
                  StatusIs(kFailedPrecondition, "tensor a"));
      EXPECT_FALSE(first.WaitUntil(Clock::now()));
      EXPECT_THAT(store.group().Gather("busy", ""), IsOk());
      EXPECT_THAT(first.Wait(Soon()), IsOk());
      return;
    }
    EXPECT_THAT(store.group().Gather("busy", ""), IsOk());
    EXPECT_THAT(store.Push(0, view, 0).Wait(Soon()), IsOk());
    const Ticket alone = store.Push(0, view, 0);
    store.Close();
    EXPECT_THAT(alone.Wait(Clock::now()),
                StatusIs(kFailedPrecondition, "closed"));
  });
}

// Two workers whose settings differ: all members must be told both values.
void ExpectMismatch(const ClusterConfig& a, const ClusterConfig& b,
                    const std::vector<std::string>& words) {
  Cluster cluster(a);
  cluster.StartServers();
  const auto join = [&](int rank, const ClusterConfig& config) {
    return std::async(std::launch::async, [&cluster, rank, config] {
      testing::Worker store = cluster.MakeWorker(rank);
      store.set_compression(config.compression);
      return store.Init(config.tensors, {});
    });
  };
  std::vector<std::future<absl::Status>> workers;
  workers.push_back(join(0, a));
  workers.push_back(join(1, b));
  std::vector<absl::Status> all;
  for (auto& worker : workers) all.push_back(worker.get());
  all.push_back(cluster.ServerStatus(0));
  for (const absl::Status& status : all) {
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch) << status;
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }
}

TEST(Mismatch, OfThresholdsNamesBoth) {
  ClusterConfig a;
  a.compression.type = "2bit";
  a.compression.threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f};
  ClusterConfig b = a;
  b.compression.threshold.value = 0.25f;
  ExpectMismatch(a, b, {"threshold", "worker/0 has 0.5", "worker/1 has 0.25"});
}

TEST(Mismatch, OfTensorsNamesBoth) {
  const ClusterConfig a;
  ClusterConfig b;
  b.tensors = {{"a", 34}};
  ExpectMismatch(
      a, b,
      {"tensor 1: worker/0 has a of 33 elements, worker/1 has a of 34 "
       "elements; give all"});
  b.tensors = {{"a", 0}};
  ExpectMismatch(a, b, {"tensor table", "33 elements", "0 elements"});
  b.tensors = {{"a", 33}, {"b", 2}};
  ExpectMismatch(a, b, {"tensor 2: worker/0 has none, worker/1 has b of 2"});
}

TEST(Mismatch, OfProgramsNamesBothVersions) {
  const ClusterConfig config = Job(1);
  Cluster cluster(config);
  auto server = std::async(std::launch::async, [&cluster] {
    JoinRequest request = JoinRequestOf(cluster.Options(), Role::kServer);
    request.on_fatal = nullptr;
    for (auto& [name, value] : request.facts) {
      if (name == "version") value = "0.0.1";
    }
    return telegrad::Job::Join(request).status();
  });
  testing::Worker worker = cluster.MakeWorker(0);
  for (const absl::Status& status :
       {cluster.Init(worker, cluster.MakeValues(0)), server.get()}) {
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("version: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("0.0.1"));
  }
}

TEST(Secrets, ThatDifferAreRefused) {
  ClusterConfig config = Job(1);
  config.secret = *Secret::Derive(std::string(32, 'a'), "local");
  Cluster cluster(config);
  DistOptions options = cluster.Options();
  options.secret = *Secret::Derive(std::string(32, 'b'), "local");
  const absl::Status status = testing::Worker(options).Init(config.tensors, {});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kAuthentication) << status;
}

TEST(Secrets, ThatAgreeLetTheJobRun) {
  ClusterConfig config = Job(2, 2);
  config.secret = *Secret::Derive(std::string(32, 'a'), "local");
  Cluster(config).Run([&](KVStore& store) {
    Buffer memory(132);
    EXPECT_THAT(store.PushPull(0, memory.view(), memory.view(), 0).Wait(Soon()),
                IsOk());
  });
}

// Worker 1's gradient has NaN at 40 and infinity at 50 of 70 elements.
ClusterConfig WithPolicy(const std::string& type, NonFinitePolicy policy) {
  ClusterConfig config;
  config.tensors = {{"ok", 5}, {"bad", 70}};
  config.compression.type = type;
  config.compression.threshold = {ThresholdSpec::Kind::kAbsolute, 0.5f};
  config.compression.nonfinite = policy;
  return config;
}

Buffer BadGradient(int rank) {
  Buffer grad = Filled(70, 1.0f);
  if (rank != 1) return grad;
  grad.as<float>()[40] = kNan;
  grad.as<float>()[50] = -std::numeric_limits<float>::infinity();
  return grad;
}

TEST(NonFinite, EndsTheJobUnderPolicyError) {
  for (const std::string type : {"none", "2bit"}) {
    Cluster cluster(WithPolicy(type, NonFinitePolicy::kError));
    cluster.Run([&](KVStore& store) {
      Buffer grad = BadGradient(store.group().rank());
      Buffer out = Filled(70, 9.0f);
      const absl::Status status =
          store.PushPull(1, grad.view(), out.view(), 0).Wait(Soon());
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("worker/1: gradient of bad holds 2"));
    });
    const auto events = cluster.log().Await(2);
    ASSERT_TRUE(events.has_value());
    for (const FatalEvent& event : *events) {
      EXPECT_EQ(event.code, ExitCode::kNumericFault);
      EXPECT_EQ(event.details_json,
                R"({"worker":1,"tensor":"bad","index":40,"count":2})");
    }
    EXPECT_EQ(ExitCodeOf(cluster.ServerStatus(0)), ExitCode::kNumericFault);
  }
}

TEST(NonFinite, SumsOfFiniteValuesEndTheJobAsThoseOfGradients) {
  ClusterConfig config;
  config.compression.type = "randomk:1";
  Cluster(config).Run([](KVStore& store) {
    Buffer memory = Filled(33, 3e38f);
    const absl::Status status =
        store.PushPull(0, memory.view(), memory.view(), 0).Wait(Soon());
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kNumericFault) << status;
  });
}

TEST(NonFinite, CountsAsZeroUnderPolicyZero) {
  for (const std::string type : {"none", "2bit"}) {
    Cluster cluster(WithPolicy(type, NonFinitePolicy::kZero));
    const float unit = type == "none" ? 1.0f : 0.5f;
    cluster.Run([&](KVStore& store) {
      Buffer grad = BadGradient(store.group().rank());
      Buffer out(280);
      EXPECT_THAT(store.PushPull(1, grad.view(), out.view(), 0).Wait(Soon()),
                  IsOk());
      for (size_t i = 0; i < 70; ++i) {
        const bool is_bad = i == 40 || i == 50;
        EXPECT_EQ(out.as<float>()[i], is_bad ? unit : 2 * unit) << i;
      }
      EXPECT_EQ(store.stats().num_nonfinite, store.group().rank() == 1 ? 2 : 0);
    });
  }
}

TEST(NonFinite, GoesThroughUnderPolicyPropagate) {
  Cluster dense(WithPolicy("none", NonFinitePolicy::kPropagate));
  dense.Run([&](KVStore& store) {
    Buffer grad = BadGradient(store.group().rank());
    Buffer out(280);
    EXPECT_THAT(store.PushPull(1, grad.view(), out.view(), 0).Wait(Soon()),
                IsOk());
    EXPECT_TRUE(std::isnan(out.as<float>()[40]));
    EXPECT_TRUE(std::isinf(out.as<float>()[50]));
    EXPECT_EQ(out.as<float>()[0], 2.0f);
  });
  // MXNet's rule: NaN gives code 0, -Inf gives -t, in every round.
  Cluster codes(WithPolicy("2bit", NonFinitePolicy::kPropagate));
  codes.Run([&](KVStore& store) {
    for (int step = 0; step < 3; ++step) {
      Buffer grad = BadGradient(store.group().rank());
      Buffer out(280);
      EXPECT_THAT(store.PushPull(1, grad.view(), out.view(), 0).Wait(Soon()),
                  IsOk());
      EXPECT_EQ(out.as<float>()[40], 0.5f);
      EXPECT_EQ(out.as<float>()[50], 0.0f);
    }
  });
}

void ExpectServerDiffers(const std::function<void(TransportOptions&)>& change,
                         const char* says) {
  Cluster cluster(Job(1));
  cluster.StartServers();
  DistOptions options = cluster.Options();
  change(options.path.transport);
  testing::Worker store(options);
  std::vector<Buffer> values = cluster.MakeValues(0);
  const absl::Status status = cluster.Init(store, values);
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
}

TEST(Mismatch, OfConnectionsNamesTheServer) {
  ExpectServerDiffers([](TransportOptions& own) { own.connections = 2; },
                      "connections: worker/0 has 2, server/0 has 1");
}

TEST(Mismatch, OfResendNamesTheServer) {
  ExpectServerDiffers([](TransportOptions& own) { own.resend = true; },
                      "resend: worker/0 has on, server/0 has off");
}

TEST(Mismatch, OfTheNetworkNamesBoth) {
  struct Case {
    std::function<void(DistOptions&)> change;
    const char* says;
  };
  const Case cases[] = {
      {[](DistOptions& options) { options.path.transport.tls = "shm"; },
       "tls: worker/0 has tcp, worker/1 has shm"},
      {[](DistOptions& options) { options.path.transport.name = "tcp"; },
       "transport: worker/0 has inproc, worker/1 has tcp"},
      {[](DistOptions& options) { options.path.transport.connections = 2; },
       "connections: worker/0 has 1, worker/1 has 2"},
      {[](DistOptions& options) { options.path.transport.resend = true; },
       "resend: worker/0 has off, worker/1 has on"},
      {[](DistOptions& options) { options.facts[0].second = "rc"; },
       "UCX_TLS: worker/0 has tcp, worker/1 has rc"}};
  for (const Case& each : cases) {
    Cluster cluster(Job(2));
    cluster.StartServers();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        DistOptions options = cluster.Options();
        options.wanted_rank = rank;
        options.facts = {{"UCX_TLS", "tcp"}};
        if (rank == 1) each.change(options);
        testing::Worker store(options);
        std::vector<Buffer> values = cluster.MakeValues(rank);
        const absl::Status status = cluster.Init(store, values);
        EXPECT_THAT(std::string(status.message()), HasSubstr(each.says));
        EXPECT_EQ(ExitCodeOf(status), ExitCode::kMismatch);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace telegrad
