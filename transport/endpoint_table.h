#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <memory_resource>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "transport/greeting.h"
#include "transport/transport.h"

// What contexts over connections share.
namespace telegrad {

// Endpoints by id, and those of them that time ends: whose peer has not greeted
// yet, and which are closing. An `Endpoint` has an id, a state of which kOpen
// and kFailed are two, `why` it is not open, `close_by`, `greet_by` and
// `is_accepted`. One thread.
template <typename Endpoint>
class EndpointTable {
 public:
  EndpointId NewId() { return next_id_++; }

  // Its peer's hello is due.
  Endpoint* Add(std::unique_ptr<Endpoint> endpoint) {
    Endpoint* const added = endpoint.get();
    added->greet_by = Clock::now() + kGreetGrace;
    greeting_.push_back(added->id);
    endpoints_[added->id] = std::move(endpoint);
    return added;
  }
  std::unique_ptr<Endpoint> Remove(EndpointId id) {
    std::erase(greeting_, id);
    return std::move(endpoints_.extract(id).mapped());
  }
  Endpoint* Find(EndpointId id) const {
    const auto found = endpoints_.find(id);
    return found == endpoints_.end() ? nullptr : found->second.get();
  }
  // (id, pointer) of each.
  const auto& all() const { return endpoints_; }
  size_t size() const { return endpoints_.size(); }

  // Nobody can be reached: it ends in the next Advance, and is open until then.
  void Refuse(Endpoint& endpoint, absl::Status why) {
    endpoint.why = std::move(why);
    endpoint.greet_by = TimePoint::min();
  }

  // Whether another peer may connect that has said nothing yet: if need be the
  // oldest such goes that has had its second.
  bool MakeRoom() {
    if (greeting_.size() < kMaxGreeting) return true;
    const TimePoint latest = Clock::now() + kGreetGrace - kStrangerRight;
    for (size_t i = 0; i < greeting_.size(); ++i) {
      Endpoint& endpoint = *Find(greeting_[i]);
      if (!endpoint.is_accepted || endpoint.greet_by > latest) continue;
      greeting_.erase(greeting_.begin() + static_cast<ptrdiff_t>(i));
      BeginClosing(endpoint, decltype(endpoint.state)::kFailed,
                   absl::UnavailableError("the peer sent no hello"));
      return true;
    }
    return false;
  }
  void HasGreeted(const Endpoint& endpoint) {
    std::erase(greeting_, endpoint.id);
  }

  // The first reason stays.
  template <typename State>
  void BeginClosing(Endpoint& endpoint, State state, absl::Status why) {
    if (endpoint.state == State::kOpen) {
      closing_.push_back(endpoint.id);
      endpoint.why = std::move(why);
      endpoint.close_by = Clock::now() + kCloseGrace;
    }
    endpoint.state = state;
  }

  // Closes those whose peers have not greeted in time or are refused, as
  // `failed`, and calls `cut` with those that are closing and settled, or whose
  // time is over; it removes them.
  template <typename State, typename IsSettled, typename Cut>
  void Advance(State failed, const IsSettled& is_settled, const Cut& cut) {
    if (closing_.empty() && greeting_.empty()) return;
    const TimePoint now = Clock::now();
    for (const EndpointId id : greeting_) {
      Endpoint& endpoint = *Find(id);
      if (endpoint.greet_by > now) continue;
      const absl::Status late =
          absl::UnavailableError("the peer sent no hello in time");
      BeginClosing(endpoint, failed, endpoint.why.ok() ? late : endpoint.why);
    }
    for (size_t i = 0; i < closing_.size();) {
      Endpoint& endpoint = *Find(closing_[i]);
      if (!is_settled(endpoint) && now < endpoint.close_by) {
        ++i;
        continue;
      }
      closing_[i] = closing_.back();
      closing_.pop_back();
      cut(endpoint);
    }
  }

  // When Advance has something to do.
  TimePoint NextTimer() const {
    TimePoint next = TimePoint::max();
    for (const EndpointId id : closing_) {
      next = std::min(next, Find(id)->close_by);
    }
    for (const EndpointId id : greeting_) {
      next = std::min(next, Find(id)->greet_by);
    }
    return next;
  }

 private:
  EndpointId next_id_ = 1;
  std::unordered_map<EndpointId, std::unique_ptr<Endpoint>> endpoints_;
  std::vector<EndpointId> closing_;   // not open
  std::vector<EndpointId> greeting_;  // endpoints whose peer's hello is due
};

// Endpoints that have something to do, each once; an `Endpoint` has an id and a
// flag has_turn, which belongs to this class. One thread.
class Turns {
 public:
  template <typename Endpoint>
  void Add(Endpoint& endpoint) {
    if (std::exchange(endpoint.has_turn, true)) return;
    waiting_.push_back(endpoint.id);
  }
  bool empty() const { return waiting_.empty(); }
  const std::vector<EndpointId>& waiting() const { return waiting_; }

  // work(endpoint), by find(id), for each that is still there; whoever is added
  // meanwhile has another turn, at the next call.
  template <typename Find, typename Work>
  void Take(const Find& find, const Work& work) {
    now_.swap(waiting_);
    for (const EndpointId id : now_) {
      auto* const endpoint = find(id);
      if (endpoint == nullptr) continue;
      endpoint->has_turn = false;
      work(*endpoint);
    }
    now_.clear();
  }

 private:
  std::vector<EndpointId> waiting_;
  std::vector<EndpointId> now_;  // endpoints that Take has yet to call
};

// Completions of sends that Progress has yet to call. One thread.
class DueCompletions {
 public:
  // Null: nobody waits for it.
  void Add(SendDone done, const absl::Status& status) {
    if (done) due_.push_back({std::move(done), status});
  }
  // Sends by `context`. False: it refuses, and `done` is due with Unavailable,
  // since the end of the endpoint is under way.
  bool Pass(TransportContext& context, EndpointId to, ConstBytes header,
            ConstBytes payload, const SendDone& done) {
    const absl::Status sent = context.Send(to, header, payload, done);
    if (!sent.ok()) Add(done, absl::UnavailableError(sent.message()));
    return sent.ok();
  }
  bool empty() const { return due_.empty(); }

  // Calls completions that come to be due meanwhile, too; how many.
  size_t CallAll() {
    size_t count = 0;
    for (; !due_.empty(); ++count) {
      const Due next = std::move(due_.front());
      due_.pop_front();
      next.done(next.status);
    }
    return count;
  }

 private:
  struct Due {
    SendDone done;
    absl::Status status;
  };
  // Memory that `due_` gave back.
  std::pmr::unsynchronized_pool_resource memory_;
  std::pmr::deque<Due> due_{&memory_};
};

}  // namespace telegrad
