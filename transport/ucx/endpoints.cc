#include "transport/ucx/endpoints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace telegrad::ucx {

absl::StatusOr<Endpoint*> Endpoints::Create(const Worker& worker,
                                            ucp_ep_params_t* params) {
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->table = this;
  endpoint->id = next_id_++;
  params->field_mask |=
      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params->err_handler = {&Endpoints::OnFailure, endpoint.get()};
  RETURN_IF_ERROR(Check("ucp_ep_create", ucp_ep_create(worker.handle, params,
                                                       &endpoint->handle)));
  Endpoint* const added = endpoint.get();
  by_handle_[added->handle] = added;
  endpoints_[added->id] = std::move(endpoint);
  return added;
}

Endpoint* Endpoints::FindByHandle(ucp_ep_h handle) const {
  const auto found = by_handle_.find(handle);
  return found == by_handle_.end() ? nullptr : found->second;
}

void Endpoints::BeginClosing(Endpoint& endpoint, State state,
                             absl::Status why) {
  if (endpoint.state == State::kOpen) {
    closing_.push_back(endpoint.id);
    endpoint.why = std::move(why);
    endpoint.close_by = Clock::now() + kCloseGrace;
  }
  endpoint.state = state;
}

void Endpoints::OnFailure(void* endpoint, ucp_ep_h, ucs_status_t status) {
  const auto* failed = static_cast<Endpoint*>(endpoint);
  failed->table->TellFailure(failed->id, status);
}

void Endpoints::HandleFailures() {
  for (const auto& [id, status] : failures_.Take()) {
    Endpoint* endpoint = Find(id);
    if (endpoint == nullptr) continue;
    const absl::string_view what = status == UCS_ERR_MESSAGE_TRUNCATED
                                       ? "the peer breaks the protocol"
                                       : "the peer is gone";
    Fail(*endpoint, absl::UnavailableError(
                        absl::StrCat(what, ": ", ucs_status_string(status))));
  }
}

void Endpoints::FailStranger(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr) return;
  Fail(*endpoint, absl::UnavailableError("the peer sent no hello in time"));
}

TimePoint Endpoints::NextTimer() const {
  TimePoint next = strangers_.NextTimer(kGreetGrace);
  for (const EndpointId id : closing_) {
    const Endpoint& endpoint = *endpoints_.at(id);
    if (!endpoint.is_cut) next = std::min(next, endpoint.close_by);
  }
  return next;
}

}  // namespace telegrad::ucx
