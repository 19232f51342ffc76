#include <deque>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/decorators/bounce/fragment.h"
#include "transport/decorators/bounce/reassembly_transport.h"
#include "transport/forwarding.h"
#include "transport/send_checks.h"

namespace telegrad {
namespace bounce {
namespace {

class ReassemblyContext : public ForwardingContext {
 public:
  explicit ReassemblyContext(TransportHandler* handler)
      : ForwardingContext(handler) {}

  absl::Status Init(const TransportFactory& make_inner,
                    TransportOptions options) {
    options.prefix_bytes = kFragmentPrefixBytes;
    return MakeInner(make_inner, options);
  }

  bool Takes(DeviceKind device) const override { return inner().Takes(device); }
  bool TakesSome(DeviceKind device) const override {
    return inner().TakesSome(device);
  }
  bool TakesNow(Bytes target) override { return inner().TakesNow(target); }
  bool ChecksPackets(EndpointId endpoint) const override {
    return inner().ChecksPackets(endpoint);
  }
  bool IsSealed(EndpointId endpoint) const override {
    return inner().IsSealed(endpoint);
  }
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override {
    RETURN_IF_ERROR(CheckSizes(header, payload));
    return inner().Send(to, header, payload, std::move(done));
  }

 private:
  struct Incoming {
    Whole message;
    Bytes target = {};
    size_t arrived = 0;
  };

  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  absl::StatusOr<Bytes> OnFragment(EndpointId from, ConstBytes header,
                                   size_t fragment_bytes);
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override {
    incoming_.erase(endpoint);
    handler().OnClosed(endpoint, why);
  }

  // Messages in fragments that have begun; only the last may lack some.
  std::unordered_map<EndpointId, std::deque<Incoming>> incoming_;
};

absl::StatusOr<Bytes> ReassemblyContext::OnHeader(EndpointId from,
                                                  ConstBytes header,
                                                  size_t payload_bytes) {
  if (IsFragment(header)) return OnFragment(from, header, payload_bytes);
  if (const auto found = incoming_.find(from); found != incoming_.end()) {
    RETURN_IF_ERROR(CheckWhole(found->second.back().message));
  }
  return handler().OnHeader(from, header, payload_bytes);
}

absl::StatusOr<Bytes> ReassemblyContext::OnFragment(EndpointId from,
                                                    ConstBytes header,
                                                    size_t fragment_bytes) {
  ASSIGN_OR_RETURN(const Whole fragment, ParseFragment(header, fragment_bytes));
  const auto found = incoming_.find(from);
  if (found == incoming_.end() || found->second.back().message.is_whole()) {
    RETURN_IF_ERROR(CheckFirst(fragment, fragment_bytes));
    ASSIGN_OR_RETURN(const Bytes target,
                     handler().OnHeader(from, fragment.header_view(),
                                        fragment.payload_bytes));
    if (target.size < fragment.payload_bytes) {
      return absl::InternalError(absl::StrCat("OnHeader gave ", target.size,
                                              " bytes for ",
                                              fragment.payload_bytes));
    }
    incoming_[from].push_back({.message = fragment, .target = target});
    return Bytes(target.data, fragment_bytes, target.device);
  }
  Incoming& last = found->second.back();
  const size_t offset = last.message.begun;
  RETURN_IF_ERROR(AddFragment(fragment, fragment_bytes, &last.message));
  return Bytes(last.target.data + offset, fragment_bytes, last.target.device);
}

void ReassemblyContext::OnMessage(EndpointId from, ConstBytes header,
                                  Bytes payload) {
  if (!IsFragment(header)) return handler().OnMessage(from, header, payload);
  const auto found = incoming_.find(from);
  Incoming& first = found->second.front();  // since its fragments began
  first.arrived += payload.size;
  if (first.arrived < first.message.payload_bytes) return;
  const Incoming heard = std::move(first);
  found->second.pop_front();
  if (found->second.empty()) incoming_.erase(found);
  handler().OnMessage(
      from, heard.message.header_view(),
      {heard.target.data, heard.message.payload_bytes, heard.target.device});
}

}  // namespace
}  // namespace bounce

absl::StatusOr<std::unique_ptr<TransportContext>> MakeReassemblyTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  auto context = std::make_unique<bounce::ReassemblyContext>(handler);
  RETURN_IF_ERROR(context->Init(make_inner, options));
  return context;
}

}  // namespace telegrad
