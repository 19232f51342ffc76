#include "tests/transport/backend.h"

namespace telegrad::testing {
namespace {

constexpr char kFaults[] =
    "drop=0.05,duplicate=0.05,reorder=0.05,flip=0.05,seed=1";

}  // namespace

std::vector<Backend> AllBackends() {
  return {Backend{"Inproc", "inproc", ""},
          Backend{"Tcp", "tcp", "tcp"},
          Backend{"TcpNeighbour", "tcp", ""},
          Backend{"UcxTcp", "ucx", "tcp"},
          Backend{"UcxShm", "ucx", "shm"},
          Backend{"UcxDefault", "ucx", ""},
          Backend{"OfiTcp", "ofi", "tcp"},
          Backend{"OfiRxm", "ofi", "tcp;ofi_rxm"},
          Backend{"OfiShm", "ofi", "shm"},
          Backend{"LinkOverUcx", "ucx", "", 4e9},
          Backend{"LinkOverInproc", "inproc", "", 4e9},
          Backend{"LatencyOverInproc", "inproc", "", 0, "", 1, "", 2e-3},
          Backend{"LatencyOverTcp", "tcp", "tcp", 4e9, "", 1, "", 2e-3},
          Backend{"FaultOverInproc", "inproc", "", 0, "seed=1"},
          Backend{"FaultOverLink", "inproc", "", 4e9, "seed=1"},
          Backend{"StripedTcp", "tcp", "tcp", 0, "", 4},
          Backend{"StripedTcpNeighbour", "tcp", "", 0, "", 4},
          Backend{"RailsOfTcp", "tcp", "tcp", 0, "", 1, "127.0.0.2"},
          Backend{"StripedUcxTcp", "ucx", "tcp", 0, "", 2},
          Backend{"StripedUcxShm", "ucx", "shm", 0, "", 2},
          Backend{"StripedOfiTcp", "ofi", "tcp", 0, "", 2},
          Backend{"FaultOverStriped", "tcp", "tcp", 4e9, "seed=1", 2},
          Resent({"ResendInproc", "inproc", ""}),
          Resent({"ResendTcp", "tcp", "tcp"}),
          Resent({"ResendTcpNeighbour", "tcp", ""}),
          Resent({"ResendUcxShm", "ucx", "shm"}),
          Resent({"ResendOfiTcp", "ofi", "tcp"}),
          Resent({"ResendStripedTcp", "tcp", "tcp", 0, "", 2}),
          Resent({"ResendFaultyInproc", "inproc", "", 0, kFaults}),
          Resent({"ResendFaultyTcp", "tcp", "tcp", 0, kFaults}),
          Resent({"ResendFaultyUcxTcp", "ucx", "tcp", 0, kFaults}),
          Staged({"StagedInproc", "inproc", ""}),
          Staged({"StagedTcp", "tcp", "tcp"}),
          Staged({"StagedTcpNeighbour", "tcp", ""}),
          Staged({"StagedUcxTcp", "ucx", "tcp"}),
          Staged({"StagedUcxShm", "ucx", "shm"}),
          Staged({"StagedOfiTcp", "ofi", "tcp"}),
          Staged({"StagedOfiShm", "ofi", "shm"}),
          Staged({"StagedLink", "tcp", "tcp", 4e9, "", 1, "", 2e-3}),
          Staged({"StagedFault", "inproc", "", 0, "seed=1"}),
          Staged(Resent({"StagedResendFaulty", "inproc", "", 0, kFaults})),
          Staged({"StagedStripedTcp", "tcp", "tcp", 0, "", 2}),
          Staged({"StagedStripedUcxTcp", "ucx", "tcp", 0, "", 2})};
}

}  // namespace telegrad::testing
