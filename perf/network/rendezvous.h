#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/job/control/secret.h"

// How the ranks of a benchmark meet.
namespace telegrad::perf {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Each rank gives `mine` (at most 4 MiB) and gets all, by rank; a barrier,
  // too. All ranks call it equally often.
  virtual absl::StatusOr<std::vector<std::string>> Gather(
      const std::string& mine, TimePoint deadline) = 0;
  // The address by which other ranks reach this machine: "127.0.0.1".
  virtual std::string own_ip() const = 0;
};

// Who may meet here: those with the same secret. Without one it is anybody who
// reaches the address; beyond loopback that must be wanted, else listening is
// refused with exit code 30.
struct Admission {
  Secret secret = {};
  bool insecure = false;
};

// Where rank 0 waits for the others.
class RendezvousRoot {
 public:
  // `host_port`: "node1:7777"; port 0: any free one. Listens at once.
  static absl::StatusOr<std::unique_ptr<RendezvousRoot>> Listen(
      const std::string& host_port, const Admission& admission = {});
  // The same, or null where HOST is another machine or somebody listens there:
  // of processes with the same address, wherever they run, one listens. The
  // error says why none can.
  static absl::StatusOr<std::unique_ptr<RendezvousRoot>> ListenIfFirst(
      const std::string& host_port, const Admission& admission = {});
  virtual ~RendezvousRoot() = default;
  // "127.0.0.1:40123".
  virtual std::string address() const = 0;
  // Returns when all other ranks are here, and listens no more; the error names
  // who is not.
  virtual absl::StatusOr<std::unique_ptr<Rendezvous>> Accept(
      int world_size, TimePoint deadline) = 0;
};

// Another rank; tries until somebody listens.
absl::StatusOr<std::unique_ptr<Rendezvous>> JoinRendezvous(
    const std::string& host_port, int rank, int world_size, TimePoint deadline,
    const Admission& admission = {});

// For ranks that are threads of this process, by rank.
std::vector<std::unique_ptr<Rendezvous>> LocalRendezvous(int world_size);

}  // namespace telegrad::perf
