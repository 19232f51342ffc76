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
  // A payload on its way, whose sender may use its memory again.
  struct Copy {
    Copy(ConstBytes payload, std::shared_ptr<size_t> all);
    ~Copy();
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;

    const size_t num_bytes;
    const std::unique_ptr<std::byte[]> bytes;
    const std::shared_ptr<size_t> total;  // of all copies of the endpoint
  };
  struct Message {
    TimePoint leaves;
    std::array<std::byte, kMaxCarriedBytes> header;
    size_t header_bytes = 0;
    ConstBytes payload;
    SendDone done;  // null once called
    std::shared_ptr<const Copy> copy;
  };
  struct Endpoint {
    std::deque<Message> queue;
    size_t num_left = 0;  // of the queue's first, which are on their way
    std::shared_ptr<size_t> copied_bytes = std::make_shared<size_t>(0);
    TimePoint free_from;  // when the link has sent all that is queued
    bool is_closing = false;
    TimePoint close_by;
  };
  struct Due {
    SendDone done;
    absl::Status status;
  };

  LinkContext(const TransportOptions& options, TransportHandler* handler);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;

  // Completes what leaves now, as far as there is room for copies.
  void Leave(Endpoint& endpoint, TimePoint now);
  // Hands to the inner transport what arrives now.
  void Release(EndpointId id, Endpoint& endpoint, TimePoint now);
  void Refuse(Endpoint& endpoint, const absl::Status& status);
  bool CallDue();
  TimePoint NextOf(const Endpoint& endpoint) const;
  // Moves what is due; returns when the next message is.
  TimePoint MoveDue();

  const double bytes_per_s_;  // 0: any rate
  const Duration latency_;
  const size_t max_copied_bytes_;  // of an endpoint
  const size_t max_header_bytes_;
  TransportHandler* const handler_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::deque<Due> due_;
  std::atomic<bool> is_woken_{false};
  // Last: it ends first, while what it borrows is still there.
  std::unique_ptr<TransportContext> inner_;
};

}  // namespace telegrad::link
