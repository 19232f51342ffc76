#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transport/endpoint_table.h"
#include "transport/transport.h"

namespace telegrad {

// The base of decorators: owns an inner context, is its handler, and hands on
// everything both ways; a decorator overrides what it changes. Memory of
// devices is not taken unless it says so. One thread, except Wake.
class ForwardingContext : public TransportContext, protected TransportHandler {
 public:
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
    return inner_->Send(to, header, payload, std::move(done));
  }
  void Close(EndpointId endpoint) override { inner_->Close(endpoint); }
  bool Progress(TimePoint deadline) override;
  void Wake() final;

 protected:
  explicit ForwardingContext(TransportHandler* handler) : handler_(handler) {}

  // Before anything else.
  absl::Status MakeInner(const TransportFactory& make,
                         const TransportOptions& options);
  // In the destructor of a decorator that lends memory of its own to the inner
  // context, which cuts what is under way.
  void EndInner() { inner_.reset(); }
  TransportContext& inner() const { return *inner_; }
  TransportHandler& handler() const { return *handler_; }

  void OnAccept(EndpointId endpoint) override { handler_->OnAccept(endpoint); }
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override {
    return handler_->OnHeader(from, header, payload_bytes);
  }
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override {
    handler_->OnMessage(from, header, payload);
  }
  void OnClosed(EndpointId endpoint, const absl::Status& why) override {
    handler_->OnClosed(endpoint, why);
  }

  // What Progress has to do beside the inner context's events: true after some
  // was done, else `next` is lowered to when there will be more.
  virtual bool HandleEvents(TimePoint* /*next*/) { return CallDue(); }

  // CallDue calls `done`, unless it is null.
  void Defer(SendDone done, const absl::Status& status) {
    due_.Add(std::move(done), status);
  }
  // Sends by the inner context; DueCompletions::Pass.
  bool Pass(EndpointId to, ConstBytes header, ConstBytes payload,
            const SendDone& done) {
    return due_.Pass(*inner_, to, header, payload, done);
  }
  // Whether there were any.
  bool CallDue() { return due_.CallAll() > 0; }
  DueCompletions& due() { return due_; }

 private:
  TransportHandler* const handler_;
  DueCompletions due_;
  std::atomic<bool> is_woken_{false};
  // Last: it ends first, while what it borrows is still there.
  std::unique_ptr<TransportContext> inner_;
};

}  // namespace telegrad
