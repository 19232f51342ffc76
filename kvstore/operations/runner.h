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
#include "kvstore/operations/device_groups.h"
#include "kvstore/operations/devices.h"
#include "kvstore/operations/negotiation.h"
#include "kvstore/operations/place.h"
#include "kvstore/operations/queue.h"
#include "kvstore/timeline.h"

namespace telegrad::operations {

// Does what was agreed, by the group of each process set. One thread, and
// `queue`, where it takes requests from and says how they ended.
class Runner {
 public:
  // `devices` of this process, and `groups` of all ranks' devices.
  Runner(std::unique_ptr<Group> world, Queue& queue, Devices& devices,
         DeviceGroups groups);

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
  void Close() {
    groups_.Close();
    sets_.clear();
  }

 private:
  using Shared = std::shared_ptr<Submission>;
  struct ProcessSet {
    std::unique_ptr<Group> group;
    std::vector<int> ranks;
    size_t member = 0;  // this rank
  };

  using Batch = std::vector<Response>;
  using Own = std::vector<Shared>;

  absl::Status Allreduce(Place& place, ProcessSet& set, const Batch& batch,
                         const Own& mine);
  absl::Status ReduceFused(Place& place, ProcessSet& set, const Batch& batch,
                           const Own& mine);
  absl::Status Reduce(Place& place, const ProcessSet& set,
                      const Request& request, size_t count, std::byte* data);
  absl::Status RunAdasum(Place& place, const Request& request,
                         Submission* mine);
  absl::Status Allgather(Place& place, const Agreed& agreed, Submission* mine);
  absl::Status GatherFused(Place& place, ProcessSet& set, const Batch& batch,
                           const Own& mine);
  absl::Status Broadcast(Place& place, ProcessSet& set, const Request& request,
                         Submission* mine);
  absl::Status ReduceScatter(Place& place, ProcessSet& set,
                             const Request& request, Submission* mine);
  absl::Status Alltoall(Place& place, ProcessSet& set, const Agreed& agreed,
                        Submission* mine);
  absl::Status AddSet(const Response& response, Submission* mine);
  absl::Status RunBatch(ProcessSet& set, const Batch& batch, const Own& mine);
  absl::Status RunOnDevices(ProcessSet& set, const Batch& batch,
                            const Own& mine);
  absl::Status RunThroughHost(ProcessSet& set, const Batch& batch,
                              const Own& mine);
  absl::Status RunIn(Place& place, ProcessSet& set, const Batch& batch,
                     const Own& mine);
  absl::Status RunOne(Place& place, ProcessSet& set, const Response& response,
                      Submission* mine);
  void FinishCoded(const Shared& mine, TimePoint begin,
                   const absl::Status& status);
  // Any thread.
  void Note(const std::vector<Shared>& mine, const char* what, TimePoint begin);

  Queue& queue_;
  Devices& devices_;
  const int rank_;
  std::map<int, ProcessSet> sets_;
  DeviceGroups groups_;
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
