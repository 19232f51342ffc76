#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/decorators/resend/receive_window.h"
#include "transport/decorators/resend/resend_transport.h"
#include "transport/decorators/resend/send_window.h"
#include "transport/decorators/resend/wire.h"
#include "transport/forwarding.h"

namespace telegrad::resend {

class ResendContext : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler, const ResendLimits& limits);
  ~ResendContext() override { EndInner(); }

  TransportInfo info() const override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;

 private:
  // A message of the inner transport that has begun.
  struct Arriving {
    Prefix prefix = {};
    bool is_wanted = false;  // else it is read and forgotten
  };
  struct Endpoint {
    Endpoint(ResendContext& context, EndpointId own_id);

    const EndpointId id;
    absl::Status why = {};    // not OK: neither sends nor hears any more
    bool is_closed = false;   // the inner one was told
    TimePoint close_by = {};  // without acknowledgements
    SendWindow sends;
    ReceiveWindow receives;
    std::deque<Arriving> arriving = {};
    int num_harmed = 0;   // headers, since the last whole one
    bool is_due = false;  // in due_
  };

  ResendContext(const TransportOptions& options, TransportHandler* handler,
                const ResendLimits& limits);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  bool HandleEvents(TimePoint* next) override;

  Endpoint* Find(EndpointId id);
  void Cut(Endpoint& endpoint);
  // Unless it is OK.
  void Fail(Endpoint& endpoint, const absl::Status& why);
  static absl::Status Refuse(Endpoint& endpoint, const absl::Status& why);

  Bytes Forget(Endpoint& endpoint, const Prefix& prefix, size_t payload_bytes);
  absl::StatusOr<Bytes> TakeHarmed(Endpoint& endpoint, const absl::Status& why,
                                   size_t payload_bytes);
  absl::StatusOr<Bytes> BeginArriving(Endpoint& endpoint, const Prefix& prefix,
                                      ConstBytes header, size_t payload_bytes);
  void Deliver(Endpoint& endpoint);
  void Answer(Endpoint& endpoint);
  void SendAnswer(Endpoint& endpoint);

  const ResendLimits limits_;
  const size_t max_header_bytes_;
  uint64_t num_again_ = 0;
  ReceiveCounts counts_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::vector<EndpointId> due_;  // who are to be told what was taken
  Buffer forgotten_;             // for all that nobody will look at
};

}  // namespace telegrad::resend
