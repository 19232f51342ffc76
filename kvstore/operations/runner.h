#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "kvstore/collective/collective.h"
#include "kvstore/operations/negotiation.h"
#include "kvstore/operations/queue.h"
#include "kvstore/timeline.h"

namespace telegrad::operations {

// Does what was agreed, by the group of each process set. One thread, and
// `queue`, where it takes requests from and says how they ended.
class Runner {
 public:
  Runner(std::unique_ptr<Group> world, Queue& queue, bool has_timeline);

  Group& world() { return *sets_.at(0).group; }
  // Batches of Fuse, in the order of all ranks. An error is one of the group,
  // after which nothing more can be done.
  absl::Status Run(const std::vector<Response>& batch, TimePoint decided);
  // Chrome's trace events.
  std::string Trace();
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
  void Note(const std::vector<Shared>& mine, const char* what, TimePoint begin);

  Queue& queue_;
  const int rank_;
  std::map<int, ProcessSet> sets_;
  Buffer fusion_;
  Timeline timeline_;
  std::vector<std::string> names_;  // by key of the timeline
  std::unordered_map<std::string, Key> keys_;
};

}  // namespace telegrad::operations
