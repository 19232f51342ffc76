#pragma once

#include <string>

#include "transport/transport.h"

namespace telegrad {

struct FoundRdma {
  enum class Kind { kNone, kUcx, kEfa };
  Kind kind = Kind::kNone;
  std::string why = {};  // "mlx5_0:1 does RDMA", or what each active port lacks
};

// The first port of this host that does RDMA, of those in
// `options.rdma_ports` where they are given, by the rules that ChooseTransport
// states.
FoundRdma FindRdma(const TransportOptions& options);

}  // namespace telegrad
