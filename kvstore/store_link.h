#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "topology/calibration.h"

namespace telegrad {

// What a store's data goes over, for whoever measures and plans
// (kvstore/tuning). After the store's first Init.
class StoreLink {
 public:
  virtual ~StoreLink() = default;

  // How fast bytes go between the workers and the servers, over the connections
  // that gradients take, while all workers use them: bytes/s of a machine, out
  // and in, seconds of a small message, one way, and of a core per frame and
  // per byte (no figures where a worker's threads poll). All workers call it at
  // the same time, between rounds, with the same `at_most`, which it takes
  // about; all get the same, the slowest worker's. Servers on a worker's own
  // machine count for nothing where any worker has others.
  virtual absl::StatusOr<LinkFigures> Measure(Duration at_most) = 0;
  // How much goes over that link, each way, for each byte that every worker
  // pushes and pulls: of all workers of the busiest machine, to servers on
  // others; 1 where all servers are on the workers' machine.
  virtual double load() const = 0;
  // What these figures depend on: members' machines, transport, settings.
  virtual std::string identity() const = 0;
  // "ucx: UCX 1.13.1, ...": the transport, as it is set up.
  virtual std::string transport_details() const = 0;
};

}  // namespace telegrad
