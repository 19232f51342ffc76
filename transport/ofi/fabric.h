#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/ofi/lane.h"
#include "transport/ofi/provider.h"
#include "transport/ofi/registrar.h"
#include "transport/ofi/slot.h"
#include "transport/transport.h"

namespace telegrad::ofi {

// libfabric's objects of one context: an endpoint for all peers, one completion
// queue, and slots. One thread.
class Fabric {
 public:
  static absl::StatusOr<std::unique_ptr<Fabric>> Make(
      const TransportOptions& options);
  ~Fabric();

  std::string Describe() const;
  const std::string& identity() const { return identity_; }
  const std::string& address() const { return address_; }
  size_t slot_bytes() const { return slot_bytes_; }

  // Peers are counted: those of equal addresses are one to libfabric.
  // InvalidArgument for an address that is not of our kind.
  absl::StatusOr<fi_addr_t> AddPeer(const std::string& address);
  void RemovePeer(const std::string& address);
  // Shared memory of this very process, which libfabric does not map a second
  // time: a record sent to a peer that has ended is a write into the void.
  bool IsFragile(const std::string& address) const;

  // Null: all are in use.
  Slot* TakeSlot();
  void ReturnSlot(Slot* slot);
  // 0, FI_EAGAIN, or another error of libfabric; only with 0 does libfabric
  // have the slot, until a completion gives it back.
  int Send(Slot* slot, size_t num_bytes, fi_addr_t to);

  // An endpoint with this context's completion queue, for one peer.
  absl::StatusOr<std::unique_ptr<Lane>> OpenLane() {
    return Lane::Open(parts());
  }
  bool is_shm() const { return is_shm_; }
  bool checks_packets() const { return ChecksPackets(*info_); }
  // From this size on a payload goes another way than in records.
  size_t large_bytes() const { return large_bytes_; }
  // False: payloads of any size go in records, but for shared memory.
  bool has_lanes() const { return has_lanes_; }
  // Whether lanes take memory of CUDA devices.
  bool has_device_memory() const { return HasDeviceMemory(*info_); }
  // For an operation of a lane on `memory`, which is registered as `given` says
  // if it is on a device, else here; null when that failed. ReturnSlot after
  // the completion.
  Slot* TakeLaneSlot(Role role, ConstBytes memory, const Registration& given);
  absl::StatusOr<Registration> Register(ConstBytes memory) {
    return registrar_.Register(memory);
  }

  // Appends what has completed; at most a batch of it. A received slot goes
  // back by Receive.
  void Poll(std::vector<Completion>* completions);
  void Receive(Slot* slot);
  // Nobody waits for the sends of `endpoint` any more.
  void Forget(EndpointId endpoint);

  // Readable when there may be completions; -1: this provider has no such file.
  int wait_fd() const { return wait_fd_; }
  // False: poll again before waiting for wait_fd.
  bool MayWait();

 private:
  explicit Fabric(InfoPtr info);
  EndpointParts parts() const {
    return {info_.get(), domain_.get(), av_.get(), queue_.get()};
  }
  absl::Status Open();
  absl::Status OpenQueue();
  absl::Status MakeSlots();
  void PollError(std::vector<Completion>* completions);
  void RetryReceives();

  const InfoPtr info_;
  const std::string identity_;
  const bool is_shm_ = false;
  const size_t large_bytes_ = 0;
  const bool has_lanes_ = false;
  size_t slot_bytes_ = 0;
  std::string address_;
  int wait_fd_ = -1;
  struct Peer {
    fi_addr_t handle = FI_ADDR_NOTAVAIL;
    int count = 0;
  };
  std::map<std::string, Peer> peers_;
  std::set<std::string> departed_;  // may be killed later: RemoveLeftovers
  Buffer memory_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
  std::vector<Slot*> free_lane_slots_;
  std::vector<Slot*> unposted_;  // libfabric had no room for these receives
  // In the order of opening; closed in reverse, and before the slots end.
  FidPtr<fid_fabric> fabric_;
  FidPtr<fid_domain> domain_;
  FidPtr<fid_av> av_;
  FidPtr<fid_cq> queue_;
  Registrar registrar_;
  Registration registered_;  // memory_
  FidPtr<fid_ep> endpoint_;
};

}  // namespace telegrad::ofi
