#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "transport/link/link_transport.h"
#include "transport/transport.h"

namespace telegrad::link {

// The owner of the inner context and its handler. One thread, except Wake.
class LinkContext : public TransportContext, private TransportHandler {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler);

  TransportInfo info() const override;
  absl::StatusOr<std::string> Listen() override { return inner_->Listen(); }
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  absl::Status RegisterMemory(Bytes memory) override {
    return inner_->RegisterMemory(memory);
  }
  bool Progress(TimePoint deadline) override;
  void Wake() override;

 private:
  struct Message {
    TimePoint arrives;
    std::array<std::byte, kMaxCarriedBytes> header;
    size_t header_bytes = 0;
    ConstBytes payload;
    SendDone done;
  };
  struct Endpoint {
    std::deque<Message> queue;
    TimePoint free_from;  // when the link has sent all that is queued
    bool is_closing = false;
    TimePoint close_by;
  };
  struct Refused {
    SendDone done;
    absl::Status status;
  };

  LinkContext(const TransportOptions& options, TransportHandler* handler);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;

  void Release(EndpointId id, Endpoint& endpoint, TimePoint now);
  void Refuse(Endpoint& endpoint, const absl::Status& status);
  bool CallRefused();
  // Sends what is due; returns when the next message is.
  TimePoint ReleaseDue();

  const double bytes_per_s_;  // 0: any rate
  const Duration latency_;
  const size_t max_header_bytes_;
  TransportHandler* const handler_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::deque<Refused> refused_;
  std::atomic<bool> is_woken_{false};
  // Last: it ends first, while what it borrows is still there.
  std::unique_ptr<TransportContext> inner_;
};

}  // namespace telegrad::link
