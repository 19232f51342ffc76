#include "transport/ofi/fabric.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad::ofi {
namespace {

constexpr size_t kReceiveSlots = 64;
constexpr size_t kSendSlots = 64;
constexpr size_t kMaxSlotBytes = size_t{64} << 10;
// Up to here ofi_rxm sends at once; above, it asks the receiver first.
constexpr size_t kRxmEagerBytes = size_t{16} << 10;

// Starting values: above, a copy costs more than to agree on the way.
constexpr size_t kLargeBytes = size_t{64} << 10;
constexpr size_t kLargeBytesInShm = size_t{16} << 10;

// Living processes whose shared memory is looked at again in the end.
constexpr size_t kMaxDeparted = 1024;

// Shared memory completes these sends alone, without the peer, who may be dead.
size_t SlotBytes(const fi_info& info) {
  size_t bytes = kMaxSlotBytes;
  if (IsShm(info)) bytes = info.tx_attr->inject_size;
  if (absl::StrContains(info.fabric_attr->prov_name, "tcp;ofi_rxm")) {
    bytes = kRxmEagerBytes;
  }
  return std::min(bytes, info.ep_attr->max_msg_size);
}

}  // namespace

Fabric::Fabric(InfoPtr info)
    : info_(std::move(info)),
      identity_(FabricIdentity(*info_)),
      is_shm_(IsShm(*info_)),
      large_bytes_(is_shm_ ? kLargeBytesInShm : kLargeBytes),
      has_lanes_(HasLanes(*info_)),
      slot_bytes_(SlotBytes(*info_)),
      registrar_(info_->domain_attr->mr_mode, domain_) {}

absl::StatusOr<std::unique_ptr<Fabric>> Fabric::Make(
    const TransportOptions& options) {
  ASSIGN_OR_RETURN(InfoPtr info, ChooseProvider(options));
  std::unique_ptr<Fabric> fabric(new Fabric(std::move(info)));
  RETURN_IF_ERROR(fabric->Open());
  return fabric;
}

Fabric::~Fabric() {
  for (const auto& slot : slots_) slot->registered.reset();
  for (const auto& [address, peer] : peers_) departed_.insert(address);
  for (const std::string& address : departed_) {
    (void)RemoveLeftovers(*info_, address);
  }
}

absl::Status Fabric::Open() {
  RemoveForerunners(*info_);
  fid_fabric* fabric = nullptr;
  RETURN_IF_ERROR(
      CheckFi("fi_fabric", fi_fabric(info_->fabric_attr, &fabric, nullptr)));
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  RETURN_IF_ERROR(CheckFi(
      "fi_domain", fi_domain(fabric_.get(), info_.get(), &domain, nullptr)));
  domain_.reset(domain);
  RETURN_IF_ERROR(OpenQueue());
  ASSIGN_OR_RETURN(OpenedEndpoint opened, OpenEndpoint(parts()));
  endpoint_ = std::move(opened.endpoint);
  address_ = std::move(opened.address);
  return MakeSlots();
}

absl::Status Fabric::OpenQueue() {
  fi_av_attr av_attr{};
  av_attr.type = FI_AV_UNSPEC;
  fid_av* av = nullptr;
  RETURN_IF_ERROR(
      CheckFi("fi_av_open", fi_av_open(domain_.get(), &av_attr, &av, nullptr)));
  av_.reset(av);
  fi_cq_attr attr{};
  attr.size = kReceiveSlots + kSendSlots;
  attr.format = FI_CQ_FORMAT_MSG;
  attr.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  int result = fi_cq_open(domain_.get(), &attr, &queue, nullptr);
  if (result != 0) {  // shared memory and efa cannot be waited for
    attr.wait_obj = FI_WAIT_NONE;
    result = fi_cq_open(domain_.get(), &attr, &queue, nullptr);
  }
  RETURN_IF_ERROR(CheckFi("fi_cq_open", result));
  queue_.reset(queue);
  if (attr.wait_obj == FI_WAIT_NONE) return absl::OkStatus();
  return CheckFi("fi_control of the completion queue",
                 fi_control(&queue_->fid, FI_GETWAIT, &wait_fd_));
}

absl::Status Fabric::MakeSlots() {
  const size_t num_slots = kReceiveSlots + kSendSlots;
  memory_ = Buffer(num_slots * slot_bytes_);
  ASSIGN_OR_RETURN(registered_, Register(memory_.view()));
  for (size_t i = 0; i < num_slots; ++i) {
    auto slot = std::make_unique<Slot>();
    slot->bytes = memory_.data() + i * slot_bytes_;
    slot->descriptor = registered_.descriptor;
    slot->role = i < kReceiveSlots ? Role::kReceive : Role::kSend;
    if (slot->role == Role::kReceive) {
      unposted_.push_back(slot.get());
    } else {
      free_.push_back(slot.get());
    }
    slots_.push_back(std::move(slot));
  }
  RetryReceives();
  return absl::OkStatus();
}

std::string Fabric::Describe() const {
  return absl::StrCat(ofi::Describe(*info_), ", records of ", slot_bytes_,
                      " bytes, ", wait_fd_ < 0 ? "polling" : "waiting",
                      " when idle, memory: host",
                      has_device_memory() ? ", cuda via FI_HMEM" : "",
                      registrar_.DescribeRefused());
}

absl::StatusOr<fi_addr_t> Fabric::AddPeer(const std::string& address) {
  if (!IsAddressLike(*info_, address_, address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer's address of ", address.size(),
                     " bytes is not one of ", info_->fabric_attr->prov_name));
  }
  Peer& peer = peers_[address];
  if (peer.count++ > 0) return peer.handle;
  const int inserted =
      fi_av_insert(av_.get(), address.data(), 1, &peer.handle, 0, nullptr);
  if (inserted == 1) return peer.handle;
  peers_.erase(address);
  return FabricError("fi_av_insert", inserted < 0 ? -inserted : FI_EINVAL);
}

void Fabric::RemovePeer(const std::string& address) {
  const auto found = peers_.find(address);
  if (found == peers_.end() || --found->second.count > 0) return;
  // An error would mean that it is not there.
  (void)fi_av_remove(av_.get(), &found->second.handle, 1, 0);
  if (!RemoveLeftovers(*info_, address) && departed_.size() < kMaxDeparted) {
    departed_.insert(address);
  }
  peers_.erase(found);
}

// "fi_shm://PID:...": the host and the namespaces are the same already.
bool Fabric::IsFragile(const std::string& address) const {
  const size_t end = address_.find(':', address_.rfind('/') + 1);
  return IsShm(*info_) && end != std::string::npos &&
         address.compare(0, end + 1, address_, 0, end + 1) == 0;
}

Slot* Fabric::TakeSlot() {
  if (free_.empty()) return nullptr;
  Slot* slot = free_.back();
  free_.pop_back();
  return slot;
}

void Fabric::ReturnSlot(Slot* slot) {
  slot->endpoint = 0;
  slot->message = nullptr;
  slot->registered.reset();
  (slot->role == Role::kSend ? free_ : free_lane_slots_).push_back(slot);
}

Slot* Fabric::TakeLaneSlot(Role role, ConstBytes memory,
                           const Registration& given) {
  Registration own;
  if (memory.device.kind == DeviceKind::kCpu) {
    absl::StatusOr<Registration> made = Register(memory);
    if (!made.ok()) return nullptr;
    own = *std::move(made);
  }
  if (free_lane_slots_.empty()) {
    slots_.push_back(std::make_unique<Slot>());
    free_lane_slots_.push_back(slots_.back().get());
  }
  Slot* slot = free_lane_slots_.back();
  free_lane_slots_.pop_back();
  slot->role = role;
  slot->descriptor =
      own.registered != nullptr ? own.descriptor : given.descriptor;
  slot->registered = std::move(own.registered);
  return slot;
}

int Fabric::Send(Slot* slot, size_t num_bytes, fi_addr_t to) {
  const ssize_t result = fi_send(endpoint_.get(), slot->bytes, num_bytes,
                                 slot->descriptor, to, slot);
  return static_cast<int>(-result);
}

void Fabric::Receive(Slot* slot) {
  unposted_.push_back(slot);
  RetryReceives();
}

void Fabric::RetryReceives() {
  while (!unposted_.empty()) {
    Slot* slot = unposted_.back();
    const ssize_t result = fi_recv(endpoint_.get(), slot->bytes, slot_bytes_,
                                   slot->descriptor, FI_ADDR_UNSPEC, slot);
    if (result != 0) return;  // tried again by the next Poll
    unposted_.pop_back();
  }
}

void Fabric::Poll(std::vector<Completion>* completions) {
  std::array<fi_cq_msg_entry, 16> entries;
  const ssize_t count =
      fi_cq_read(queue_.get(), entries.data(), entries.size());
  if (count == -FI_EAVAIL) PollError(completions);
  for (ssize_t i = 0; i < count; ++i) {
    const fi_cq_msg_entry& entry = entries[static_cast<size_t>(i)];
    auto* slot = static_cast<Slot*>(entry.op_context);
    completions->push_back({slot,
                            slot->role == Role::kReceive
                                ? std::min(entry.len, slot_bytes_)
                                : entry.len,
                            0});
  }
  if (!unposted_.empty()) RetryReceives();
}

void Fabric::PollError(std::vector<Completion>* completions) {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.get(), &entry, 0) != 1) return;
  if (entry.op_context == nullptr) return;  // no operation of ours
  completions->push_back(
      {static_cast<Slot*>(entry.op_context), 0, std::max(entry.err, 1)});
}

void Fabric::Forget(EndpointId endpoint) {
  for (const auto& slot : slots_) {
    if (slot->endpoint != endpoint) continue;
    slot->endpoint = 0;
    slot->message = nullptr;
    slot->registered.reset();
  }
}

bool Fabric::MayWait() {
  fid* const queue = &queue_->fid;
  fid* files[] = {queue};
  return fi_trywait(fabric_.get(), files, 1) == 0;
}

}  // namespace telegrad::ofi
