#include "kvstore/collective/bulk.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/collective/reduce.h"

namespace telegrad::collective {
namespace {

constexpr size_t kWindow = 8;  // pieces on their way to one rank

}  // namespace

Bulk::Bulk(Mesh& mesh, Schedule schedule)
    : mesh_(mesh),
      schedule_(std::move(schedule)),
      flows_(schedule_.peers.size()) {
  const int n = mesh.world_size();
  for (int distance = 1; distance < n; ++distance) {
    const int peer = (mesh.rank() + distance) % n;
    const Schedule::Peer& due = schedule_.peers[peer];
    if (due.sends.empty() && due.receives.empty()) continue;
    partners_.push_back(peer);
    flows_[peer].kept.resize(due.receives.size());
  }
}

absl::Status Bulk::Run() {
  mesh_.set_sink(this);
  const absl::Status status = Drive();
  if (!status.ok()) return mesh_.Fail(status);
  mesh_.set_sink(nullptr);
  return status;
}

absl::Status Bulk::Drive() {
  for (const int peer : partners_) {
    if (schedule_.peers[peer].receives.empty()) continue;
    RETURN_IF_ERROR(mesh_.Post(peer, MessageKind::kReady, 0, {}, nullptr));
  }
  absl::Status pumped;
  RETURN_IF_ERROR(mesh_.Wait(
      [this, &pumped] {
        pumped = Pump();
        return !pumped.ok() || IsDone();
      },
      [this] { return Awaited(); }));
  return pumped;
}

absl::Status Bulk::Pump() {
  for (const int peer : partners_) RETURN_IF_ERROR(PumpTo(peer));
  return CheckPeers();
}

absl::Status Bulk::PumpTo(int to) {
  const std::vector<PieceSend>& sends = schedule_.peers[to].sends;
  Flow& flow = flows_[to];
  if (sends.empty()) return absl::OkStatus();
  if (!flow.is_ready) {
    ASSIGN_OR_RETURN(flow.is_ready, mesh_.IsReady(to));
  }
  while (flow.is_ready && flow.num_sent < sends.size() &&
         flow.num_in_flight < kWindow) {
    const PieceSend& next = sends[flow.num_sent];
    if (!Has(next.after)) break;
    RETURN_IF_ERROR(SendNext(to));
  }
  return absl::OkStatus();
}

absl::Status Bulk::SendNext(int to) {
  Flow& flow = flows_[to];
  const PieceSend& next = schedule_.peers[to].sends[flow.num_sent];
  Buffer* kept = nullptr;
  const std::byte* from = next.from;
  if (from == nullptr) {
    kept = &flows_[next.after.peer].kept[next.after.count - 1];
    from = kept->data();
  }
  const auto index = static_cast<uint32_t>(flow.num_sent);
  ++flow.num_sent;
  ++flow.num_in_flight;
  // A send that fails is heard by OnClosed, too.
  return mesh_.Post(to, MessageKind::kData, index, {from, next.bytes},
                    [this, &flow, kept](const absl::Status&) {
                      --flow.num_in_flight;
                      if (kept != nullptr) {
                        mesh_.pool().Put(std::exchange(*kept, Buffer()));
                      }
                    });
}

absl::StatusOr<Bytes> Bulk::OnDataHeader(int from, uint32_t index,
                                         size_t bytes) {
  const std::vector<Receive>& receives = schedule_.peers[from].receives;
  Flow& flow = flows_[from];
  if (index != flow.num_announced || index >= receives.size() ||
      bytes != receives[index].bytes) {
    return absl::InternalError(absl::StrCat(
        "rank ", from, " sent piece ", index, " of ", bytes, " bytes, piece ",
        flow.num_announced, " of ", receives.size(), " is due"));
  }
  ++flow.num_announced;
  const Receive& receive = receives[index];
  if (receive.combine == Combine::kStore) return Bytes(receive.place, bytes);
  flow.arriving.push_back(mesh_.pool().Get(bytes));
  return flow.arriving.back().view();
}

bool Bulk::Has(const Mark& mark) const {
  return mark.peer < 0 || flows_[mark.peer].num_combined >= mark.count;
}

// What has come may be what others wait for.
void Bulk::OnData(int from) {
  ++flows_[from].num_arrived;
  bool goes_on = CombineFrom(from);
  while (goes_on) {
    goes_on = false;
    for (const int peer : partners_) goes_on |= CombineFrom(peer);
  }
}

// True if others may go on by it.
bool Bulk::CombineFrom(int from) {
  const std::vector<Receive>& receives = schedule_.peers[from].receives;
  Flow& flow = flows_[from];
  const size_t before = flow.num_combined;
  while (flow.num_combined < flow.num_arrived &&
         Has(receives[flow.num_combined].after)) {
    CombineNext(from);
  }
  return schedule_.is_ordered && flow.num_combined > before;
}

void Bulk::CombineNext(int from) {
  Flow& flow = flows_[from];
  const Receive& receive = schedule_.peers[from].receives[flow.num_combined];
  const size_t index = flow.num_combined++;
  if (receive.combine == Combine::kStore) return;
  Buffer came = std::move(flow.arriving.front());
  flow.arriving.pop_front();
  const size_t count = receive.bytes / SizeOf(schedule_.type);
  if (receive.combine == Combine::kKeep) {
    Reduce(schedule_.type, schedule_.op, receive.place, count, came.data());
    flow.kept[index] = std::move(came);
    return;
  }
  Reduce(schedule_.type, schedule_.op, came.data(), count, receive.place);
  mesh_.pool().Put(std::move(came));
}

bool Bulk::IsDone() const {
  for (const int peer : partners_) {
    const Schedule::Peer& due = schedule_.peers[peer];
    const Flow& flow = flows_[peer];
    if (flow.num_combined < due.receives.size() ||
        flow.num_sent < due.sends.size() || flow.num_in_flight > 0) {
      return false;
    }
  }
  return true;
}

// A rank that left after its part is none that is missed.
absl::Status Bulk::CheckPeers() const {
  for (const int peer : partners_) {
    const Flow& flow = flows_[peer];
    if (flow.num_arrived < schedule_.peers[peer].receives.size() ||
        flow.num_sent < schedule_.peers[peer].sends.size()) {
      RETURN_IF_ERROR(mesh_.CheckPeer(peer));
    }
  }
  return absl::OkStatus();
}

std::string Bulk::Awaited() const {
  std::string text;
  for (const int peer : partners_) {
    const Schedule::Peer& due = schedule_.peers[peer];
    const Flow& flow = flows_[peer];
    const char* separator = text.empty() ? "" : ", ";
    if (flow.num_arrived < due.receives.size()) {
      absl::StrAppend(&text, separator, "piece ", flow.num_arrived, " of ",
                      due.receives.size(), " of rank ", peer);
    } else if (!flow.is_ready && !due.sends.empty()) {
      absl::StrAppend(&text, separator, "rank ", peer, " to be ready");
    } else if (flow.num_in_flight > 0) {
      absl::StrAppend(&text, separator, "rank ", peer, " to take ",
                      flow.num_in_flight, " pieces");
    }
  }
  return text;
}

}  // namespace telegrad::collective
