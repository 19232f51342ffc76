#include "kvstore/backups.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <future>

#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

// Synchronous stores whose rounds do not wait for the slowest workers.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr size_t kBackedSize = 70;            // three chunks, on two servers
constexpr float kBackedThreshold = 1 / 64.f;  // on the gradients' grid

ClusterConfig WithBackups(int workers, int dropped,
                          const std::string& type = "none") {
  ClusterConfig config = testing::Job(workers, 2);
  config.drop_slowest = dropped;
  config.tensors = {{"a", kBackedSize}, {"b", 33}};
  config.compression.type = type;
  config.compression.has_guard = false;  // the codec stays
  config.compression.threshold = *ParseThreshold("0.015625");
  config.optimizer = {.update_on = UpdateOn::kServer,
                      .sgd = {.learning_rate = 1, .rescale = -1}};
  return config;
}

// What a worker has sent of tensor a, by the rule of its codec in ten lines:
// with 2bit what is beyond the threshold goes as the threshold, the rest stays.
class Ledger {
 public:
  explicit Ledger(bool is_coded) : is_coded_(is_coded) {}
  void Add(int worker, int step) {
    for (size_t i = 0; i < kBackedSize; ++i) {
      left_[i] += static_cast<double>(GradOf(worker, step, i));
      double code = left_[i];
      if (is_coded_) {
        code = left_[i] >= kBackedThreshold    ? kBackedThreshold
               : left_[i] <= -kBackedThreshold ? -kBackedThreshold
                                               : 0;
      }
      left_[i] -= code;
      sent_[i] += code;
    }
  }
  double sent(size_t i) const { return sent_[i]; }

 private:
  const bool is_coded_;
  std::array<double, kBackedSize> left_{};
  std::array<double, kBackedSize> sent_{};
};

class BackedWorker {
 public:
  BackedWorker(KVStore& store, Ledger& ledger)
      : store_(store), ledger_(ledger) {}

  // A step, whatever its round is; of tensor b in halves.
  void Step(int step) {
    const int rank = store_.group().rank();
    ledger_.Add(rank, step);
    Buffer a(4 * kBackedSize);
    const Buffer b(4 * 33);
    for (size_t i = 0; i < kBackedSize; ++i) {
      a.as<float>()[i] = GradOf(rank, step, i);
    }
    const Ticket whole = store_.PushPull(0, a.view(), weights_.view(), 0);
    ASSERT_THAT(store_.Push(1, b.view(), 0).Wait(Soon()), IsOk());
    ASSERT_THAT(store_.Pull(1, b.view(), 0).Wait(Soon()), IsOk());
    ASSERT_THAT(whole.Wait(Soon()), IsOk());
  }
  // One that takes all, behind a meeting; then the weights are those of all.
  void LastStep(int step) {
    ASSERT_THAT(store_.group().Gather("met", "").status(), IsOk());
    ASSERT_THAT(store_.extras().backups->TakeAll(true), IsOk());
    Step(step);
    ASSERT_THAT(store_.extras().backups->TakeAll(false), IsOk());
  }
  void CheckWeights(const std::vector<Ledger>& ledgers) const {
    for (size_t i = 0; i < kBackedSize; ++i) {
      double weight = 1 + 0.125 * static_cast<double>(i % 64);
      for (const Ledger& each : ledgers) weight += each.sent(i);
      ASSERT_EQ(static_cast<double>(weights_.as<float>()[i]), weight) << i;
    }
  }

 private:
  KVStore& store_;
  Ledger& ledger_;
  const Buffer weights_{4 * kBackedSize};
};

// The others make ten steps while worker 2 is in its first one.
TEST(Backups, OneThatIsSlowHoldsNobodyUpAndItsPushesCount) {
  constexpr int kSteps = 10;
  for (const char* type : {"none", "2bit"}) {
    const ClusterConfig config = WithBackups(3, 1, type);
    std::vector<Ledger> ledgers(3, Ledger(config.compression.type == "2bit"));
    std::promise<void> others_are_through;
    auto through = others_are_through.get_future().share();
    std::atomic<int> num_through{0};
    Cluster(config).Run([&](KVStore& store) {
      const int rank = store.group().rank();
      BackedWorker worker(store, ledgers[static_cast<size_t>(rank)]);
      if (rank == 2) {
        ASSERT_EQ(through.wait_for(testing::kPatience),
                  std::future_status::ready);
        worker.Step(0);
        const auto missed = store.extras().backups->CatchUp();
        ASSERT_THAT(missed, IsOk());
        EXPECT_EQ(*missed, kSteps - 1);
        EXPECT_EQ(*store.extras().backups->CatchUp(), 0) << "told once";
      } else {
        for (int step = 0; step < kSteps; ++step) worker.Step(step);
        EXPECT_EQ(*store.extras().backups->CatchUp(), 0);
        if (++num_through == 2) others_are_through.set_value();
      }
      const StoreStats stats = store.stats();
      EXPECT_EQ(stats.max_staleness, rank == 2 ? kSteps : 0);
      EXPECT_EQ(stats.num_late, rank == 2 ? 5 : 0) << "chunks of two tensors";
      worker.LastStep(kSteps);
      ASSERT_THAT(store.group().Gather("pushed", "").status(), IsOk());
      worker.CheckWeights(ledgers);
    });
  }
}

// Whoever is slow in whichever chunk: each push counts once, and whoever leaves
// out what the others have done is where they are in the end.
TEST(Backups, EveryPushCountsOnceInAnyOrder) {
  constexpr int kSteps = 40;
  for (const bool catches_up : {false, true}) {
    const ClusterConfig config = WithBackups(4, 2, "2bit");
    std::vector<Ledger> ledgers(4, Ledger(true));
    Cluster(config).Run([&](KVStore& store) {
      const int rank = store.group().rank();
      BackedWorker worker(store, ledgers[static_cast<size_t>(rank)]);
      int step = 0;
      while (step < kSteps) {
        worker.Step(step++);
        if (!catches_up) continue;
        const auto missed = store.extras().backups->CatchUp();
        ASSERT_THAT(missed, IsOk());
        step += static_cast<int>(*missed);
      }
      ASSERT_EQ(step, kSteps);
      worker.LastStep(step);
      ASSERT_THAT(store.group().Gather("pushed", "").status(), IsOk());
      worker.CheckWeights(ledgers);
    });
  }
}

// A round without the slowest is of all, if all come: the bits of a store that
// waits for all.
TEST(Backups, RoundsThatTakeAllHaveTheBitsOfAStoreThatWaits) {
  for (const char* type : {"none", "2bit", "1bit", "topk:0.1"}) {
    std::vector<std::vector<float>> weights;
    for (const int dropped : {1, 0}) {
      ClusterConfig config = WithBackups(2, dropped, type);
      config.compression.threshold = {};
      Cluster(config).Run([&](KVStore& store) {
        EXPECT_EQ(store.extras().backups != nullptr, dropped > 0);
        if (dropped > 0) {
          ASSERT_THAT(store.extras().backups->TakeAll(true), IsOk());
        }
        Ledger ledger(false);
        BackedWorker worker(store, ledger);
        for (int step = 0; step < 9; ++step) worker.Step(step);
        const Buffer out(4 * kBackedSize);
        ASSERT_THAT(store.Pull(0, out.view(), 0).Wait(Soon()), IsOk());
        if (store.group().rank() != 0) return;
        weights.emplace_back(out.as<float>(), out.as<float>() + kBackedSize);
      });
    }
    ASSERT_EQ(weights.size(), 2u);
    EXPECT_EQ(weights[0], weights[1]) << type;
  }
}

TEST(Backups, AreRefusedByNameWhereTheyCannotBe) {
  constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(MakeKVStore("local", {.drop_slowest = 1}, nullptr),
              StatusIs(kWrong, "has no servers; take dist_sync"));
  const auto refused = [&](ClusterConfig config, const char* why) {
    Cluster cluster(config);
    cluster.StartServers();
    testing::Worker worker = cluster.MakeWorker(0);
    std::thread other([&] {
      testing::Worker second = cluster.MakeWorker(1);
      EXPECT_FALSE(cluster.Init(second, cluster.MakeValues(1)).ok());
    });
    EXPECT_THAT(cluster.Init(worker, cluster.MakeValues(0)),
                StatusIs(kWrong, why));
    other.join();
  };
  ClusterConfig config = WithBackups(2, 2);
  refused(config, "0 to 1, as 2 workers push");
  config = WithBackups(2, -1);
  refused(config, "0 to 1, as 2 workers push");
  config = WithBackups(2, 1);
  config.store = "dist_async";
  refused(config, "do not wait for each other");
  config = WithBackups(2, 1);
  config.optimizer.update_on = UpdateOn::kWorker;
  refused(config, "--update-on server");
  config = WithBackups(2, 1, "2bit");
  config.compression.reply = ReplyMode::kSum;
  refused(config, "take dense or auto");
}

}  // namespace
}  // namespace telegrad
