#pragma once

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "tests/transport/fake_device.h"
#include "transport/decorators/bounce/bounce_transport.h"
#include "transport/forwarding.h"

namespace telegrad::testing {

// What its owner sends and receives is memory of a device by its label, though
// the host's in fact, and passes through the staging decorator in fragments: so
// a suite that knows nothing of devices runs over that.
class Labelled : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      size_t fragment_bytes, TransportHandler* handler) {
    std::unique_ptr<Labelled> context(new Labelled(handler));
    const auto make_bounce = [&](const TransportOptions& bounce_options,
                                 TransportHandler* bounce_handler) {
      return MakeBounceTransport(make_inner, bounce_options,
                                 std::make_unique<FakeCopier>(context->device_),
                                 bounce_handler,
                                 {.fragment_bytes = fragment_bytes});
    };
    RETURN_IF_ERROR(context->MakeInner(make_bounce, options));
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
    payload.device.kind = DeviceKind::kCpu;
    handler().OnMessage(from, header, payload);
  }

  FakeDevice device_;
};

}  // namespace telegrad::testing
