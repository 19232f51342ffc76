#include "base/mutex.h"
#include "perf/network/rendezvous.h"

namespace telegrad::perf {
namespace {

// What the threads share: the round that is being filled, and the last one.
class Table {
 public:
  explicit Table(int world_size) : texts_(static_cast<size_t>(world_size)) {}

  absl::StatusOr<std::vector<std::string>> Gather(size_t rank,
                                                  const std::string& mine,
                                                  TimePoint deadline) {
    MutexLock lock(&mutex_);
    const uint64_t round = round_;
    texts_[rank] = mine;
    if (++num_come_ == texts_.size()) {
      num_come_ = 0;
      last_ = texts_;
      ++round_;
      changed_.NotifyAll();
    }
    while (round_ == round) {
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError(
            "rendezvous: not all ranks came in time");
      }
      changed_.WaitUntil(&mutex_, deadline);
    }
    // The next round cannot end before this rank has come to it.
    return last_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_come_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> last_ ABSL_GUARDED_BY(mutex_);
};

class ThreadRendezvous : public Rendezvous {
 public:
  ThreadRendezvous(std::shared_ptr<Table> table, size_t rank)
      : table_(std::move(table)), rank_(rank) {}
  absl::StatusOr<std::vector<std::string>> Gather(const std::string& mine,
                                                  TimePoint deadline) override {
    return table_->Gather(rank_, mine, deadline);
  }
  std::string own_ip() const override { return "127.0.0.1"; }

 private:
  const std::shared_ptr<Table> table_;
  const size_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<Rendezvous>> LocalRendezvous(int world_size) {
  const auto table = std::make_shared<Table>(world_size);
  std::vector<std::unique_ptr<Rendezvous>> all;
  for (int rank = 0; rank < world_size; ++rank) {
    all.push_back(
        std::make_unique<ThreadRendezvous>(table, static_cast<size_t>(rank)));
  }
  return all;
}

}  // namespace telegrad::perf
