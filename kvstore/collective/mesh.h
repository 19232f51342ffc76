#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "kvstore/collective/agreement.h"
#include "kvstore/collective/buffer_pool.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/keeper.h"
#include "kvstore/collective/message.h"
#include "kvstore/collective/rank_table.h"
#include "transport/greeting.h"
#include "transport/transport.h"

namespace telegrad::collective {

// Larger pieces go by kReady and kData.
constexpr size_t kMaxEagerBytes = size_t{64} << 10;

// Takes the data of one collective.
class DataSink {
 public:
  virtual ~DataSink() = default;
  // Where piece `index` of rank `from` goes; an error ends the collective.
  virtual absl::StatusOr<Bytes> OnDataHeader(int from, uint32_t index,
                                             size_t bytes) = 0;
  virtual void OnData(int from) = 0;
};

// What another rank has sent without being asked.
struct Piece {
  uint32_t index = 0;
  size_t bytes = 0;
  Buffer payload = {};
};

// One endpoint to each other rank; compares what they say with what this rank
// does, and remembers the first error for ever. One thread at a time (Turn).
class Mesh : public TransportHandler {
 public:
  static absl::StatusOr<std::unique_ptr<Mesh>> Make(
      const GroupOptions& options, const AddressExchange& exchange);
  ~Mesh() override;

  int rank() const { return options_.rank; }
  int world_size() const { return options_.world_size; }
  const GroupOptions& options() const { return options_; }
  // With the turn, as all below.
  void set_timeout(Duration timeout) { options_.timeout = timeout; }
  const GroupTraffic& traffic() const { return traffic_; }
  TransportInfo info() const;
  BufferPool& pool() { return pool_; }

  // While it lives the calling thread drives the transport. In between nobody
  // does, or, where peers need answers all the time, a thread of the mesh's.
  class Turn {
   public:
    // Without `drives` it only reads.
    explicit Turn(const Mesh& mesh, bool drives = true) : mesh_(mesh) {
      if (mesh_.keeper_ != nullptr) mesh_.keeper_->Yield(drives);
    }
    ~Turn() {
      if (mesh_.keeper_ != nullptr) mesh_.keeper_->Keep();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    const Mesh& mesh_;
  };

  // The next collective begins.
  absl::Status Begin(const Signature& signature);
  // Ends it: what went to others needs this rank no more.
  absl::Status End();
  // Ends it, and the group, with `why` unless there was an error before: tells
  // the other ranks and closes. All sends have completed. Returns the first
  // error.
  absl::Status Fail(absl::Status why);

  // Copies `payload`, at most kMaxEagerBytes.
  absl::Status SendEager(int to, uint32_t index, ConstBytes payload);
  // Waits for piece `index` of `bytes` bytes from `from`; give it back to
  // pool().
  absl::StatusOr<Buffer> Take(int from, uint32_t index, size_t bytes);
  // Waits for a piece of any index and size.
  absl::StatusOr<Piece> TakeNext(int from);

  // `payload` is borrowed until `done`, which may be null.
  absl::Status Post(int to, MessageKind kind, uint32_t index,
                    ConstBytes payload, SendDone done);
  // True once rank `from` takes data of this collective.
  absl::StatusOr<bool> IsReady(int from);
  // Hears what comes until `until`; an error once the group is broken.
  absl::Status Listen(TimePoint until) {
    context_->Progress(until);
    return agreement_.broken();
  }
  absl::Status TimedOut(const std::string& awaited);
  void set_sink(DataSink* sink) { sink_ = sink; }
  // What it says about `rank` that we need and that is gone, else OK.
  absl::Status CheckPeer(int rank) const;

  // Drives the transport until `is_done()`; `awaited()` says for what, should
  // nothing happen for the timeout.
  template <typename IsDone, typename Awaited>
  absl::Status Wait(const IsDone& is_done, const Awaited& awaited) {
    TimePoint deadline = Clock::now() + options_.timeout;
    while (!is_done()) {
      if (!agreement_.broken().ok()) return agreement_.broken();
      const uint64_t before = num_events_;
      context_->Progress(deadline);
      const TimePoint now = Clock::now();
      if (num_events_ != before) {
        deadline = now + options_.timeout;
      } else if (now >= deadline) {
        return TimedOut(awaited());
      }
    }
    return agreement_.broken();
  }

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;

 private:
  struct Message {
    Header header = {};
    size_t bytes = 0;
    Buffer payload = {};
  };
  struct Inbox {
    std::deque<Message> announced;  // but not arrived; all kinds but kData
    std::deque<Message> arrived;    // kEager and kReady, not yet wanted
  };

  explicit Mesh(const GroupOptions& options);
  // connect.cc
  absl::Status Connect(const AddressExchange& exchange);
  absl::Status AwaitPeers(TimePoint deadline);

  absl::StatusOr<Bytes> ReceivePeer(int from, const Header& header,
                                    size_t bytes);
  void SendAbort();
  void Close();

  GroupOptions options_;
  BufferPool pool_;
  Buffer discarded_;  // where data goes that nobody wants any more
  std::vector<std::string> addresses_;  // by rank, until all have greeted
  Strangers<EndpointId> strangers_;     // they have not said their rank
  RankTable ranks_;
  Agreement agreement_;
  std::vector<Inbox> inboxes_;  // by rank
  uint64_t digest_ = 0;         // digest of all addresses and settings
  DataSink* sink_ = nullptr;
  uint64_t num_events_ = 0;
  int64_t num_pending_ = 0;  // sends
  GroupTraffic traffic_;
  // Last: they go first, while all that they call is there.
  std::unique_ptr<TransportContext> context_;
  std::unique_ptr<Keeper> keeper_;
};

}  // namespace telegrad::collective
