#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/greeting.h"
#include "transport/ucx/mailbox.h"
#include "transport/ucx/records.h"
#include "transport/ucx/worker.h"

namespace telegrad::ucx {

// Endpoints by id and by UCX's handle, those that are closing, and what UCX
// says of their failures. One thread, except OnFailure.
class Endpoints {
 public:
  // Connects to a peer, or accepts one, as `params` say.
  absl::StatusOr<Endpoint*> Create(const Worker& worker,
                                   ucp_ep_params_t* params);
  Endpoint* Find(EndpointId id) const {
    if (found_ != nullptr && found_->id == id) return found_;
    const auto found = endpoints_.find(id);
    if (found == endpoints_.end()) return nullptr;
    return found_ = found->second.get();
  }
  Endpoint* FindByHandle(ucp_ep_h handle) const;
  // Nothing that comes is this endpoint's any more.
  void ForgetHandle(ucp_ep_h handle) { by_handle_.erase(handle); }
  // (id, pointer) of each.
  const auto& all() const { return endpoints_; }

  // Whether another peer may connect that has not greeted yet; if need be the
  // oldest such goes.
  bool MakeRoom() {
    return strangers_.MakeRoom(kMaxGreeting,
                               [this](EndpointId id) { FailStranger(id); });
  }
  void AddStranger(const Endpoint& endpoint) { strangers_.Add(endpoint.id); }
  void HasGreeted(const Endpoint& endpoint) { strangers_.Remove(endpoint.id); }
  bool has_strangers() const { return strangers_.size() > 0; }
  // Fails those that have not greeted in time.
  void FailLate() {
    strangers_.CutLate(kGreetGrace,
                       [this](EndpointId id) { FailStranger(id); });
  }

  // The first reason stays.
  void BeginClosing(Endpoint& endpoint, State state, absl::Status why);
  void Fail(Endpoint& endpoint, absl::Status why) {
    BeginClosing(endpoint, State::kFailed, std::move(why));
  }
  // For ucp_err_handler_t, with an endpoint as argument.
  static void OnFailure(void* endpoint, ucp_ep_h handle, ucs_status_t status);
  // From UCX's callbacks; status UCS_ERR_MESSAGE_TRUNCATED: what has come is
  // none of ours.
  void TellFailure(EndpointId id, ucs_status_t status) {
    failures_.Put({id, status});
  }
  // Fails those of which UCX has told.
  void HandleFailures();
  bool has_failures() const { return !failures_.is_empty(); }
  bool has_closing() const { return !closing_.empty(); }

  // Removes those that are closing and of which `is_gone`, and calls `removed`.
  template <typename IsGone, typename Removed>
  void AdvanceClosing(const IsGone& is_gone, const Removed& removed) {
    for (size_t i = 0; i < closing_.size();) {
      Endpoint& endpoint = *Find(closing_[i]);
      if (!is_gone(endpoint)) {
        ++i;
        continue;
      }
      closing_[i] = closing_.back();
      closing_.pop_back();
      found_ = nullptr;
      strangers_.Remove(endpoint.id);
      removed(*endpoints_.extract(endpoint.id).mapped());
    }
  }
  // When one of them is to be cut, or a stranger.
  TimePoint NextTimer() const;

 private:
  void FailStranger(EndpointId id);

  EndpointId next_id_ = 1;
  std::unordered_map<EndpointId, std::unique_ptr<Endpoint>> endpoints_;
  mutable Endpoint* found_ = nullptr;  // the last; most calls ask for it again
  std::unordered_map<ucp_ep_h, Endpoint*> by_handle_;
  std::vector<EndpointId> closing_;
  Strangers<EndpointId> strangers_;
  // UCX may tell of them from a thread of its own.
  Mailbox<std::pair<EndpointId, ucs_status_t>> failures_;
};

}  // namespace telegrad::ucx
