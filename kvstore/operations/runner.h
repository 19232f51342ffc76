#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "kvstore/collective/collective.h"
#include "kvstore/operations/coded.h"
#include "kvstore/operations/negotiation.h"
#include "kvstore/operations/queue.h"
#include "kvstore/timeline.h"

namespace telegrad::operations {

// Does what was agreed, by the group of each process set. One thread, and
// `queue`, where it takes requests from and says how they ended.
class Runner {
 public:
  Runner(std::unique_ptr<Group> world, Queue& queue);

  Group& world() { return *sets_.at(0).group; }
  // Batches of Fuse, in the order of all ranks. An error is one of the group,
  // after which nothing more can be done.
  absl::Status Run(const std::vector<Response>& batch, TimePoint decided);
  // Notes what comes from now on, or no more; any thread.
  void SwitchTimeline(bool is_on) { timeline_.Switch(is_on); }
  void NoteCycle(TimePoint begin);
  // Chrome's trace events, which are forgotten; any thread.
  std::string Trace();
  // For requests with a codec, from now on; any thread. FailedPrecondition:
  // there is one.
  absl::Status UseStore(std::shared_ptr<KVStore> store, Duration timeout);
  bool has_store() const { return coded_ != nullptr; }
  // Waits for what runs beside this thread.
  void Drain();
  // The other ranks hear that this one does no more.
  void Close() { sets_.clear(); }

 private:
  using Shared = std::shared_ptr<Submission>;
  struct ProcessSet {
    std::unique_ptr<Group> group;
    std::vector<int> ranks;
    size_t member = 0;  // this rank
  };

  absl::Status Allreduce(ProcessSet& set, const std::vector<Response>& batch,
                         const std::vector<Shared>& mine);
  absl::Status ReduceFused(ProcessSet& set, const std::vector<Response>& batch,
                           const std::vector<Shared>& mine);
  absl::Status Reduce(ProcessSet& set, const Request& request, size_t count,
                      std::byte* data);
  absl::Status RunAdasum(ProcessSet& set, const Request& request,
                         Submission* mine);
  absl::Status Allgather(ProcessSet& set, const Agreed& agreed,
                         Submission* mine);
  absl::Status GatherFused(ProcessSet& set, const std::vector<Response>& batch,
                           const std::vector<Shared>& mine);
  absl::Status Broadcast(ProcessSet& set, const Request& request,
                         Submission* mine);
  absl::Status ReduceScatter(ProcessSet& set, const Request& request,
                             Submission* mine);
  absl::Status Alltoall(ProcessSet& set, const Agreed& agreed,
                        Submission* mine);
  absl::Status AddSet(const Response& response, Submission* mine);
  absl::Status RunBatch(ProcessSet& set, const std::vector<Response>& batch,
                        const std::vector<Shared>& mine);
  absl::Status RunOne(ProcessSet& set, const Response& response,
                      Submission* mine);
  absl::Status Reserve(size_t bytes);
  void FinishCoded(const Shared& mine, TimePoint begin,
                   const absl::Status& status);
  // Any thread.
  void Note(const std::vector<Shared>& mine, const char* what, TimePoint begin);

  Queue& queue_;
  const int rank_;
  std::map<int, ProcessSet> sets_;
  Buffer fusion_;
  Timeline timeline_;
  Mutex mutex_;
  // By key of the timeline.
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Key> keys_ ABSL_GUARDED_BY(mutex_);
  // The last one: its thread uses the others.
  std::unique_ptr<Coded> made_coded_;
  std::atomic<Coded*> coded_{nullptr};
};

}  // namespace telegrad::operations
