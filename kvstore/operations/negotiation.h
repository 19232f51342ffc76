#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "kvstore/operations/request.h"

namespace telegrad::operations {

// What all members want: their requests, null of those that have joined.
struct Agreed {
  std::vector<std::shared_ptr<const Request>> requests;  // by member
  const Request& any() const;
};

// One operation that is due, on the members of its process set.
struct Response {
  std::shared_ptr<const Agreed> agreed = nullptr;
  int64_t handle = 0;  // this rank's; 0: it has joined, or made no request
  absl::Status error = {};
  int64_t value = 0;  // the last rank that joined, or the new process set
};

struct Decision {
  std::vector<Response> due;  // in the order in which all ranks do them
  int stopped_by = -1;        // a rank that has ended the operations
};

// A request for which ranks are missing.
struct Stall {
  std::string name;
  int set = 0;
  std::vector<int> told, missing;  // ranks; none is missing: of its group
  double waited_s = 0;
};

// What is ready on all ranks. Each rank has one and gives it the same messages
// of all ranks, cycle by cycle, so that all decide alike without anybody who
// leads. A request that is the same as this rank's last one of its name costs
// a bit of the message. In order of use: Tell, then notice() and requests() of
// all ranks to Advance. One thread.
class Negotiation {
 public:
  Negotiation(int rank, int world_size, int cache_capacity);

  // `handle` above 0. For the next cycle.
  void Tell(int64_t handle, const Request& request);
  void Stop() { is_stopping_ = true; }
  // The first word: flags, of which bits 1 to 7 are free for others, and the
  // bytes of requests. Then a bit for each tensor in the cache. Of the same
  // size on all ranks.
  const std::vector<uint64_t>& notice();
  const std::string& requests() const { return untold_; }
  static size_t RequestBytes(uint64_t first_word) { return first_word >> 8; }

  // `notices`: all ranks', one behind the other; `requests` by rank, or none
  // where all have none. InvalidArgument: what cannot be.
  absl::StatusOr<Decision> Advance(std::span<const uint64_t> notices,
                                   const std::vector<std::string>& requests,
                                   TimePoint now);

  // Whether requests are under way, and this rank has told all that it can.
  bool waits_for_others() const { return num_open_ > 0 && num_lacking_ == 0; }
  bool is_idle() const { return num_open_ == 0; }
  // Requests that were told first longer than `after` ago.
  std::vector<Stall> Stalls(TimePoint now, Duration after) const;
  // For the next cycle, from one rank: it ends with an error, unless it is
  // ready by then. `waited_s` below 0: because somebody wants that.
  void End(int set, const std::string& name, double waited_s);

  // Null: there is none of that number.
  const std::vector<int>* RanksOf(int set) const;

 private:
  struct Entry {
    std::string name;
    int set = 0;
    int slot = -1;                                         // in the cache
    std::vector<std::shared_ptr<const Request>> requests;  // the last ones
    std::vector<char> told;                                // by member
    int num_told = 0;
    bool is_touched = false;  // in this cycle
    bool is_parked = false;   // it waits for its group
    bool is_open = false;     // among `open_`
    int64_t handle = 0;
    uint64_t last_use = 0;
    TimePoint since;
    std::shared_ptr<const Agreed> agreed;  // null: not compared
    absl::Status error = {};
  };
  struct ProcessSet {
    std::vector<int> ranks;
    std::vector<int> members;  // by rank of the job; -1
    std::unordered_map<std::string, std::unique_ptr<Entry>> entries;
    std::map<uint64_t, std::vector<Entry*>> groups;  // parked
    std::vector<char> joined;
    std::vector<std::shared_ptr<const Request>> joins;
    int num_joined = 0;
    int last_joined = -1;
    int64_t join_handle = 0;
  };

  void AddSet(int id, std::vector<int> ranks);
  Entry& FindOrMake(ProcessSet& set, const Request& request);
  void HearCommonBits(std::span<uint64_t> common);
  absl::Status HearBits(int from, std::span<const uint64_t> words,
                        std::span<const uint64_t> taken);
  absl::Status HearRequest(int from, Request request, int64_t handle);
  absl::Status HearJoin(int from, ProcessSet& set, Request request,
                        int64_t handle);
  absl::Status MarkTold(int from, Entry& entry, int64_t handle);
  void EndExpired(int from, const Request& request);
  // Decides on what was touched.
  void Settle(TimePoint now, std::vector<Response>* due);
  bool IsComplete(const ProcessSet& set, const Entry& entry) const;
  void Compare(const ProcessSet& set, Entry& entry) const;
  void Park(ProcessSet& set, Entry& entry, std::vector<Response>* due);
  void Finish(ProcessSet& set, Entry& entry, std::vector<Response>* due);
  void SettleJoin(ProcessSet& set, std::vector<Response>* due);
  void ChangeSets(std::vector<Response>* due);
  void SetOpen(Entry& entry, bool is_open);
  bool Cache(Entry& entry);
  void Erase(Entry& entry);
  void Count();

  const int rank_;
  const int world_size_;
  const size_t cache_capacity_;
  bool is_stopping_ = false;
  // This rank's, for the next cycle.
  std::vector<uint64_t> notice_;
  std::vector<std::pair<Entry*, int64_t>> bits_;
  std::string untold_;
  std::deque<int64_t> untold_handles_;

  std::map<int, ProcessSet> sets_;
  int next_set_ = 1;
  std::vector<Entry*> slots_;  // null: free
  uint64_t num_uses_ = 0;
  std::vector<Entry*> touched_;
  std::unordered_set<Entry*> open_;  // told by some, after the cycle
  std::vector<Response> expired_;
  int num_open_ = 0;
  int num_lacking_ = 0;  // by this rank, or by a group
};

}  // namespace telegrad::operations
