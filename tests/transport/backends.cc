#include "tests/transport/backend.h"

namespace telegrad::testing {
namespace {

constexpr char kFaults[] =
    "drop=0.05,duplicate=0.05,reorder=0.05,flip=0.05,seed=1";

// With a key; the default is open on loopback.
std::vector<Backend> KeyedBackends() {
  using enum Encryption;
  return {Keyed({"KeyedTcp", "tcp", "tcp"}),
          InMemory(Keyed({"KeyedTcpSameHost", "tcp", ""})),
          Keyed({"KeyedUcxTcp", "ucx", "tcp"}),
          InMemory(Keyed({"KeyedUcxShm", "ucx", "shm"})),
          Keyed({"KeyedOfiTcp", "ofi", "tcp"}),
          InMemory(Keyed({"KeyedOfiShm", "ofi", "shm"})),
          Keyed(Resent({"KeyedResendMultiRailTcp", "tcp", "tcp", 0, "", 2})),
          Sealed(kAuth, {"AuthTcp", "tcp", "tcp"}),
          Sealed(kOn, {"OnTcp", "tcp", "tcp"}),
          InMemory(Sealed(kOn, {"OnTcpSameHost", "tcp", ""})),
          InMemory(Sealed(kOn, {"OnInproc", "inproc", ""})),
          Sealed(kAuth, {"AuthUcxTcp", "ucx", "tcp"}),
          Sealed(kOn, {"OnUcxTcp", "ucx", "tcp"}),
          InMemory(Sealed(kOn, {"OnUcxShm", "ucx", "shm"})),
          Sealed(kAuth, {"AuthOfiTcp", "ofi", "tcp"}),
          Sealed(kOn, {"OnOfiTcp", "ofi", "tcp"}),
          InMemory(Sealed(kOn, {"OnOfiShm", "ofi", "shm"})),
          Sealed(kOn, Resent({"OnResendMultiRailTcp", "tcp", "tcp", 0, "", 2})),
          Staged(Sealed(kAuth, {"AuthBounceTcp", "tcp", "tcp"}))};
}

std::vector<Backend> OpenBackends() {
  return {InMemory({"Inproc", "inproc", ""}),
          Backend{"Tcp", "tcp", "tcp"},
          InMemory({"TcpSameHost", "tcp", ""}),
          Backend{"UcxTcp", "ucx", "tcp"},
          InMemory({"UcxShm", "ucx", "shm"}),
          InMemory({"UcxDefault", "ucx", ""}),
          Backend{"OfiTcp", "ofi", "tcp"},
          Backend{"OfiRxm", "ofi", "tcp;ofi_rxm"},
          InMemory({"OfiShm", "ofi", "shm"}),
          Backend{"LinkOverUcx", "ucx", "", 4e9},
          Backend{"LinkOverInproc", "inproc", "", 4e9},
          Backend{"LatencyOverInproc", "inproc", "", 0, "", 1, "", 2e-3},
          Backend{"LatencyOverTcp", "tcp", "tcp", 4e9, "", 1, "", 2e-3},
          Backend{"FaultOverInproc", "inproc", "", 0, "seed=1"},
          Backend{"FaultOverLink", "inproc", "", 4e9, "seed=1"},
          Backend{"MultiRailTcp", "tcp", "tcp", 0, "", 4},
          InMemory({"MultiRailTcpSameHost", "tcp", "", 0, "", 4}),
          Backend{"RailsOfTcp", "tcp", "tcp", 0, "", 1, "127.0.0.2"},
          Backend{"MultiRailUcxTcp", "ucx", "tcp", 0, "", 2},
          InMemory({"MultiRailUcxShm", "ucx", "shm", 0, "", 2}),
          Backend{"MultiRailOfiTcp", "ofi", "tcp", 0, "", 2},
          Backend{"FaultOverMultiRail", "tcp", "tcp", 4e9, "seed=1", 2},
          InMemory(Resent({"ResendInproc", "inproc", ""})),
          Resent({"ResendTcp", "tcp", "tcp"}),
          InMemory(Resent({"ResendTcpSameHost", "tcp", ""})),
          InMemory(Resent({"ResendUcxShm", "ucx", "shm"})),
          Resent({"ResendOfiTcp", "ofi", "tcp"}),
          Resent({"ResendMultiRailTcp", "tcp", "tcp", 0, "", 2}),
          Resent({"ResendFaultyInproc", "inproc", "", 0, kFaults}),
          Resent({"ResendFaultyTcp", "tcp", "tcp", 0, kFaults}),
          Resent({"ResendFaultyUcxTcp", "ucx", "tcp", 0, kFaults}),
          InMemory(Staged({"BounceInproc", "inproc", ""})),
          Staged({"BounceTcp", "tcp", "tcp"}),
          InMemory(Staged({"BounceTcpSameHost", "tcp", ""})),
          Staged({"BounceUcxTcp", "ucx", "tcp"}),
          InMemory(Staged({"BounceUcxShm", "ucx", "shm"})),
          Staged({"BounceOfiTcp", "ofi", "tcp"}),
          InMemory(Staged({"BounceOfiShm", "ofi", "shm"})),
          Staged({"BounceLink", "tcp", "tcp", 4e9, "", 1, "", 2e-3}),
          Staged({"BounceFault", "inproc", "", 0, "seed=1"}),
          Staged(Resent({"BounceResendFaulty", "inproc", "", 0, kFaults})),
          Staged({"BounceMultiRailTcp", "tcp", "tcp", 0, "", 2}),
          Staged({"BounceMultiRailUcxTcp", "ucx", "tcp", 0, "", 2})};
}

}  // namespace

std::vector<Backend> AllBackends() {
  std::vector<Backend> all = KeyedBackends();
  for (const Backend& each : OpenBackends()) all.push_back(each);
  return all;
}

}  // namespace telegrad::testing
