#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/calibration.h"
#include "topology/cost_model.h"
#include "topology/fact.h"
#include "topology/machine.h"
#include "topology/profiles.h"
#include "topology/sums.h"

namespace telegrad {

// The network between all machines of a job. No two pairs of machines use
// different ones.
enum class NetworkKind : uint8_t { kLocal, kTcp, kInfiniBand, kRoceV2, kEfa };
const char* Name(NetworkKind network);  // "local", "TCP", "IB", "RoCEv2", "EFA"
// The transport that carries a network: "ucx".
const char* TransportOf(NetworkKind network);
// The transports that a plan may choose, each once; where all members have
// loopback addresses no card is reached.
std::vector<std::string> TransportsToChoose(bool is_loopback);
// The network that a name stands for, in any case; none where it is a run's
// transport that leaves the network to the machines: auto, inproc, ofi, ucx.
// InvalidArgument lists the names there are.
absl::StatusOr<std::optional<NetworkKind>> ParseNetwork(absl::string_view text);

// How a frame gets from the memory where it is encoded to the network card.
enum class MemoryPath : uint8_t {
  kHost,        // encoded on the CPU
  kStaging,     // through pinned host memory
  kGdrReceive,  // staging to send, GPUDirect RDMA to receive
  kGdr,         // GPUDirect RDMA both ways
};
const char* Name(MemoryPath path);  // "host", "staging", "gdr-receive", "gdr"

enum class GdrWish : uint8_t { kAuto, kOff, kOn };
const char* Name(GdrWish wish);  // "auto", "off", "on"
// Parses one of these names; InvalidArgument for all else.
absl::StatusOr<GdrWish> ParseGdr(absl::string_view text);

// A choice that the planner must take over, and who made it ("--transport
// tcp"). Without `by` the choice is open.
template <typename T>
struct Constraint {
  T value = {};
  std::string by = {};

  bool is_set() const { return !by.empty(); }
};

// The value of --gc-allow without the flag, in runs and in plans: the codec
// that loses least at two bits over docs/results/accuracy.md. The user must
// allow the others.
inline constexpr char kDefaultAllowed[] = "int2";
// Beside Adam, AdamW and Muon, where codecs get gradients of one size: two bits
// lose as little, but not at a rate that training without a codec hardly bears.
inline constexpr char kBesideSquares[] = "int3";
// The codec beside an optimizer that few bits harm, or one that nobody knows.
inline constexpr char kCarefulCodec[] = "int4";

struct GivenPlan;

// What a user asks for.
struct PlanRequest {
  GradientProfile profile = {};
  int workers = 0;  // machines with workers; 0: as many as there are machines
  int servers = 0;  // machines with servers only
  std::string gc_type = "auto";  // "auto", "none" or a codec, whatever it costs
  std::vector<std::string> gc_allow = {};  // codecs that "auto" may choose
  // By tensor of the profile: "none" or the codec that it has whatever is
  // chosen for others. "" leaves a tensor to `gc_type`; so does an empty list.
  std::vector<std::string> tensor_codecs = {};
  Constraint<int64_t> chunk_bytes = {};  // for all tensors
  // A network, which each machine must be able to use (FailedPrecondition), or
  // a transport: tcp, ucx, ofi, inproc; "auto" is as if it were open.
  Constraint<std::string> network = {};
  Constraint<std::string> tls = {};  // TransportOptions::tls: "tcp", "shm"
  Constraint<int> rails = {};  // addresses of a host that TCP is spread over
  // By name of a host: the interface with the address that the job's members
  // there were given; "lo": they stay on that machine.
  std::map<std::string, std::string> bound = {};
  // Transports that the builds of all members have; empty: all.
  std::vector<std::string> transports = {};
  // The host of each worker process of a run, by rank. Processes with the same
  // name share that host's memory.
  std::vector<std::string> worker_hosts = {};
  // The link is between any two workers: an emulated one.
  bool is_link_of_each_worker = false;
  double link_latency_s = 0;       // the emulated link's
  Constraint<bool> tier_one = {};  // workers of a host sum first
  Constraint<Aggregation> aggregation = {};
  Constraint<int> connections = {};
  // Gradients are in host memory, whatever GPUs there are.
  Constraint<bool> host_memory = {};
  GdrWish gdr = GdrWish::kAuto;
  double link_gbps = 0;  // each machine's link; 0: by calibration and machines
  // The link's rate was seen while all workers used the servers: these are no
  // further limit.
  bool is_link_of_busy_servers = false;
  // Seconds that a step takes without communication; backward is two thirds of
  // it. 0: unknown; then no communication hides behind it.
  double compute_s = 0;
  // A plan that PlanPath and PlanExchange obey as it is, once machines and the
  // other fields agree with it; null: none.
  std::shared_ptr<const GivenPlan> given = nullptr;
};

// A port that a GPU (or a machine without GPUs) uses.
struct Rail {
  std::string nic = {};
  int port = 1;
  int gid = -1;  // -1: none needed, or unknown
  PathClass path = PathClass::kUnknown;
  double gbps = 0;       // the slower of port and slot; 0: unknown
  double gpu_share = 1;  // share of the GPU's bytes that takes this rail
  int users = 1;         // GPUs that share the port
};

struct GpuPlan {
  std::string gpu = {};  // empty: the machine's CPU
  MemoryPath memory = MemoryPath::kHost;
  std::vector<Rail> rails = {};
  std::string why = {};
  std::vector<Evidence> evidence = {};
};

struct MachinePlan {
  std::string host = {};
  double gbps = 0;  // sum over rails, each port once; 0: unknown
  std::vector<GpuPlan> gpus = {};
};

struct TensorPlan {
  std::string name = {};
  int64_t elems = 0;
  std::string codec = "none";
  int64_t chunk_bytes = 0;  // bytes of float32 gradient in a chunk
  int priority = 0;         // higher goes first
  bool operator==(const TensorPlan&) const = default;
};

// One thing that was decided: "network" "TCP" "no RDMA network is usable on
// each of 2 machines", with the facts of detection that it rests on.
struct Decision {
  enum class Kind : uint8_t {
    kNetwork,
    kCards,
    kMemory,
    kAggregation,
    kLink,  // the rate that is predicted with
    kHierarchy,
    kTierOne,  // whether worker processes of a host sum first
    kSums,     // how groups of all workers sum
    kCodec,
    kConnections,
    kChunk,
    kPriority,
    kAdvice,  // what would be faster than a constraint
  };
  Kind what = Kind::kNetwork;
  std::string choice = {};
  std::string why = {};
  std::vector<Evidence> evidence = {};
  bool operator==(const Decision&) const = default;
};
const char* Name(Decision::Kind what);  // "network", "compression"

struct Plan {
  NetworkKind network = NetworkKind::kLocal;
  std::string transport = "tcp";  // carries the network: "tcp", "ucx", "ofi"
  std::string tls = {};
  Aggregation aggregation = Aggregation::kLocal;
  bool is_hierarchical = false;  // GPUs of a machine sum first
  // By worker the rank that pushes for all of its host, the lowest there, where
  // workers of a host sum first. Empty: each pushes for itself.
  std::vector<int> pushers = {};
  // By worker a number of its host, for groups; empty: each has its own.
  std::vector<int> hosts = {};
  // How groups of all workers sum; none of one worker.
  std::vector<SumRange> sums = {};
  int workers = 1;
  int servers = 0;
  int mtu = 0;          // bytes, smallest of all ports; 0: unknown
  int connections = 1;  // per pair of machines
  std::string codec = "none";
  std::vector<TensorPlan> tensors = {};
  std::vector<MachinePlan> machines = {};
  double link_bytes_per_s = 0;  // the slowest machine's link
  double comm_s = 0;            // predicted communication of a step
  double comm_dense_s = 0;      // the prediction without compression
  double exposed_s = 0;         // part of comm_s that backward does not hide
  // An aggregation with servers beside the workers, where the constraint is
  // slower by more than both the figures' spread and 5 %.
  std::optional<Aggregation> advised = {};
  std::vector<Decision> decisions = {};    // in order of kinds
  std::vector<std::string> warnings = {};  // "wanted IB, but ..."
  // SHA-256 over all that ranks must agree on, in hex; texts and predictions
  // are left out.
  std::string digest = {};
};

// A plan that a user gives.
struct GivenPlan {
  std::string by = {};  // "--plan FILE"
  Plan plan = {};
};

// Plans a run. The plan is a pure function of the arguments and independent of
// the order of `machines`. With fewer machines than workers it takes the others
// to be like these; with none all have one network card and no GPU.
// FailedPrecondition where an override does not fit a machine (named),
// InvalidArgument for a bad request.
absl::StatusOr<Plan> MakePlan(std::span<const Machine> machines,
                              const Calibration& calibration,
                              const PlanRequest& request);

// Plans what holds whatever tensors there are: network, transport, cards,
// memory, connections, and whose workers sum first. Members connect by it;
// `request` needs no profile. Errors are those of MakePlan, and
// FailedPrecondition where a given plan does not fit (named).
absl::StatusOr<Plan> PlanPath(std::span<const Machine> machines,
                              const PlanRequest& request);

// Goes on from a plan of PlanPath, when tensors are known: how they are
// exchanged over it. Together they are what MakePlan plans, but for whose
// workers sum first, which each job settles for its own hosts. Errors are
// PlanPath's.
absl::StatusOr<Plan> PlanExchange(Plan path, const Calibration& calibration,
                                  const PlanRequest& request);

// Whether the exchange of the plan that `request` gives is for its tensors,
// servers and flags; FailedPrecondition names what does not fit.
absl::Status CheckGivenExchange(const PlanRequest& request);

// The text under `digest`: a line for each thing that ranks must agree on.
std::string PlanFacts(const Plan& plan);

// Whether frames of some worker are in the memory of its GPUs.
bool UsesGdr(const Plan& plan);

// Finds the first decision of a kind; null where nothing was to decide.
const Decision* FindDecision(const Plan& plan, Decision::Kind what);

// These are the only places that make text of decisions.
// "network TCP: no RDMA ...".
std::string ToText(const Decision& decision);
// A JSON object and a line's end; `decisions` has what, choice, why, evidence.
std::string PlanToJson(const Plan& plan);
// Leaves out evidence where the text would be longer than `max_bytes`;
// ResourceExhausted if it is still longer.
absl::StatusOr<std::string> PlanToJson(Plan plan, size_t max_bytes);
// Lines for people.
std::string PlanToText(const Plan& plan);

}  // namespace telegrad
