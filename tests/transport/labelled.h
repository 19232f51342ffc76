#pragma once

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "tests/transport/fake_device.h"
#include "transport/forwarding.h"
#include "transport/staged/staged_transport.h"

namespace telegrad::testing {

// What its owner sends and receives is memory of a device by its label, though
// the host's in fact, and passes through the staging decorator in pieces: so a
// suite that knows nothing of devices runs over that.
class Labelled : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      size_t piece_bytes, TransportHandler* handler) {
    std::unique_ptr<Labelled> context(new Labelled(handler));
    const auto make_staged = [&](const TransportOptions& staged_options,
                                 TransportHandler* staged_handler) {
      return MakeStagedTransport(make_inner, staged_options,
                                 std::make_unique<FakeCopier>(context->device_),
                                 staged_handler, {.piece_bytes = piece_bytes});
    };
    RETURN_IF_ERROR(context->MakeInner(make_staged, options));
    return context;
  }
  ~Labelled() override { EndInner(); }

  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override {
    payload.device.kind = DeviceKind::kCuda;
    return inner().Send(to, header, payload, std::move(done));
  }

 private:
  explicit Labelled(TransportHandler* handler) : ForwardingContext(handler) {
    device_.is_host = true;
  }

  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override {
    ASSIGN_OR_RETURN(Bytes target,
                     handler().OnHeader(from, header, payload_bytes));
    target.device.kind = DeviceKind::kCuda;
    return target;
  }
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override {
    payload.device = {};
    handler().OnMessage(from, header, payload);
  }

  FakeDevice device_;
};

}  // namespace telegrad::testing
