#include "transport/tcp/same_host.h"

#include <unistd.h>

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process_memory.h"

namespace telegrad::tcp {

std::string SameHostName(absl::string_view address) {
  return absl::StrCat("telegrad ", address);
}

PeerSocket ReachOnSameHost(absl::string_view address) {
  absl::StatusOr<UniqueFd> socket = ConnectLocal(SameHostName(address));
  return socket.ok() ? Trusted(*std::move(socket)) : PeerSocket();
}

PeerSocket Trusted(UniqueFd socket) {
  const absl::StatusOr<LocalPeer> peer = PeerOf(socket.get());
  if (!peer.ok() || !peer->is_same_user) return {};
  return {std::move(socket), *peer};
}

Mark MakeMark() {
  std::random_device random;
  return {.process = static_cast<uint64_t>(getpid()),
          .secret = uint64_t{random()} << 32 | random()};
}

absl::Status PeerMemory::TakeOffer(const Offer& offer) {
  if (std::exchange(has_offered_, true)) {
    return absl::InvalidArgumentError("a second offer");
  }
  Mark seen;
  reads_peer_ =
      offer.mark.process == static_cast<uint64_t>(peer_process_) &&
      Read({reinterpret_cast<std::byte*>(&seen), sizeof(seen)}, offer.place) &&
      seen == offer.mark;
  return absl::OkStatus();
}

absl::Status PeerMemory::TakeAccept() {
  if (std::exchange(is_read_by_peer_, true)) {
    return absl::InvalidArgumentError("an offer is accepted twice");
  }
  return absl::OkStatus();
}

bool PeerMemory::Read(Bytes target, uint64_t place) const {
  return ReadProcess(peer_process_, target, place);
}

// Less is copied through the kernel faster than it is asked for.
bool PeerMemory::IsExposable(ConstBytes payload) const {
  constexpr size_t kExposedBytes = size_t{16} << 10;
  return is_read_by_peer_ && payload.size >= kExposedBytes &&
         IsReadableByProcesses(payload);
}

}  // namespace telegrad::tcp
