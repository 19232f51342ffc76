#pragma once

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "tests/transport/fake_device.h"
#include "transport/staged/staged_transport.h"
#include "transport/transport.h"

namespace telegrad::testing {

// What its owner sends and receives is memory of a device by its label, though
// the host's in fact, and passes through the staging decorator in pieces: so a
// suite that knows nothing of devices runs over that.
class Labelled : public TransportContext, private TransportHandler {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      size_t piece_bytes, TransportHandler* handler) {
    std::unique_ptr<Labelled> context(new Labelled(handler));
    ASSIGN_OR_RETURN(
        context->inner_,
        MakeStagedTransport(make_inner, options,
                            std::make_unique<FakeCopier>(context->device_),
                            context.get(), {.piece_bytes = piece_bytes}));
    return context;
  }

  TransportInfo info() const override { return inner_->info(); }
  bool IsInMemory(EndpointId endpoint) const override {
    return inner_->IsInMemory(endpoint);
  }
  absl::StatusOr<std::string> Listen() override { return inner_->Listen(); }
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override {
    return inner_->Connect(address);
  }
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override {
    payload.device.kind = DeviceKind::kCuda;
    return inner_->Send(to, header, payload, std::move(done));
  }
  void Close(EndpointId endpoint) override { inner_->Close(endpoint); }
  absl::Status RegisterMemory(Bytes memory) override {
    return inner_->RegisterMemory(memory);
  }
  bool Progress(TimePoint deadline) override {
    return inner_->Progress(deadline);
  }
  void Wake() override { inner_->Wake(); }

 private:
  explicit Labelled(TransportHandler* handler) : handler_(handler) {
    device_.is_host = true;
  }

  void OnAccept(EndpointId endpoint) override { handler_->OnAccept(endpoint); }
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override {
    ASSIGN_OR_RETURN(Bytes target,
                     handler_->OnHeader(from, header, payload_bytes));
    target.device.kind = DeviceKind::kCuda;
    return target;
  }
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override {
    payload.device = {};
    handler_->OnMessage(from, header, payload);
  }
  void OnClosed(EndpointId endpoint, const absl::Status& why) override {
    handler_->OnClosed(endpoint, why);
  }

  TransportHandler* const handler_;
  FakeDevice device_;
  std::unique_ptr<TransportContext> inner_;
};

}  // namespace telegrad::testing
