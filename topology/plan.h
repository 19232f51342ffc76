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

namespace telegrad {

// What all machines of a job use between them. Never one for some pairs and
// another for others.
enum class NetworkKind : uint8_t { kLocal, kTcp, kInfiniBand, kRoceV2, kEfa };
const char* Name(NetworkKind network);  // "local", "TCP", "IB", "RoCEv2", "EFA"
const char* TransportOf(NetworkKind network);  // that carries it: "ucx"
// Those that a plan may choose, each once; where all members have loopback
// addresses no card is reached.
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
// Of a name; InvalidArgument for all else.
absl::StatusOr<GdrWish> ParseGdr(absl::string_view text);

// A choice that is not the planner's to make, and who made it:
// "--transport tcp". Without `by` the choice is open.
template <typename T>
struct Constraint {
  T value = {};
  std::string by = {};

  bool is_set() const { return !by.empty(); }
};

// What --gc-allow is without the flag, in a run and in a plan alike: the one
// codec with which this product's accuracy was measured over whole trainings.
// Others lose something else, which is the user's to allow.
inline constexpr char kDefaultAllowed[] = "2bit";

struct GivenPlan;

// What a user asks for.
struct PlanRequest {
  GradientProfile profile = {};
  int workers = 0;  // machines with workers; 0: as many as there are machines
  int servers = 0;  // machines with servers only
  std::string gc_type = "auto";  // "auto", "none" or a codec, whatever it costs
  std::vector<std::string> gc_allow = {};  // codecs that "auto" may choose
  // Of each tensor of the profile: "none" or the codec that it has whatever is
  // chosen for others; "": by `gc_type`, as are all without this list.
  std::vector<std::string> tensor_codecs = {};
  Constraint<int64_t> chunk_bytes = {};  // of all tensors
  // A network, which each machine must be able to use (FailedPrecondition), or
  // a transport: tcp, ucx, ofi, inproc; "auto" is as if it were open.
  Constraint<std::string> network = {};
  Constraint<std::string> tls = {};  // of the transport: "tcp", "shm", "efa"
  Constraint<int> rails = {};  // addresses of a host that TCP is spread over
  // Of each host, by name: the interface with the address that the job's
  // members there were given; "lo": they stay on that machine.
  std::map<std::string, std::string> bound = {};
  // That all builds have; empty: all.
  std::vector<std::string> transports = {};
  // Of a run: the host of each worker process, by rank. Those of one name share
  // its memory.
  std::vector<std::string> worker_hosts = {};
  Constraint<bool> tier_one = {};  // workers of a host sum first
  Constraint<Aggregation> aggregation = {};
  Constraint<int> connections = {};
  // Gradients are in host memory, whatever GPUs there are.
  Constraint<bool> host_memory = {};
  GdrWish gdr = GdrWish::kAuto;
  double link_gbps = 0;  // of each machine; 0: by calibration and machines
  // The link's rate was seen while all workers used the servers: these are no
  // further limit.
  bool is_link_of_busy_servers = false;
  // Of a step without communication, of which backward is two thirds; 0: not
  // known, then nothing hides behind it.
  double compute_s = 0;
  // Obeyed as it is, once machines and all that is above agree with it.
  std::shared_ptr<const GivenPlan> given = nullptr;
};

// A port that a GPU (or a machine without GPUs) uses.
struct Rail {
  std::string nic = {};
  int port = 1;
  int gid = -1;  // -1: none needed, or unknown
  PathClass path = PathClass::kUnknown;
  double gbps = 0;       // of port and slot, whichever is less; 0: unknown
  double gpu_share = 1;  // of the GPU's bytes that take this rail
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
  double gbps = 0;  // of all rails, each port once; 0: unknown
  std::vector<GpuPlan> gpus = {};
};

struct TensorPlan {
  std::string name = {};
  int64_t elems = 0;
  std::string codec = "none";
  int64_t chunk_bytes = 0;  // of float32 gradient
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
    kTierOne,  // of worker processes
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
  std::string transport = "tcp";  // that carries it: "tcp", "ucx", "ofi"
  std::string tls = {};
  Aggregation aggregation = Aggregation::kLocal;
  bool is_hierarchical = false;  // GPUs of a machine sum first
  // Where workers of a host sum first: of each worker the rank that pushes for
  // all of its host, the lowest there. Empty: each pushes for itself.
  std::vector<int> pushers = {};
  int workers = 1;
  int servers = 0;
  int mtu = 0;          // bytes, least of all ports; 0: unknown
  int connections = 1;  // per pair of machines
  std::string codec = "none";
  std::vector<TensorPlan> tensors = {};
  std::vector<MachinePlan> machines = {};
  double link_bytes_per_s = 0;  // of a machine, the slowest
  double comm_s = 0;            // predicted, of a step
  double comm_dense_s = 0;      // predicted without compression
  double exposed_s = 0;         // what backward does not hide of comm_s
  // Servers beside the workers, where a constraint is slower than these by
  // more than the figures' spread, and 5 %.
  std::optional<Aggregation> advised = {};
  std::vector<Decision> decisions = {};    // by kind
  std::vector<std::string> warnings = {};  // "wanted IB, but ..."
  // SHA-256 of all that ranks must agree on, hex; not of texts or predictions.
  std::string digest = {};
};

// A plan that a user gives.
struct GivenPlan {
  std::string by = {};  // "--plan FILE"
  Plan plan = {};
};

// A pure function of its arguments, independent of the order of `machines`.
// Given fewer machines than workers, takes the others to be alike; given none,
// all have one network card and no GPU. FailedPrecondition where an override or
// a given plan does not fit a machine or the request (named), InvalidArgument
// for a bad request.
absl::StatusOr<Plan> MakePlan(std::span<const Machine> machines,
                              const Calibration& calibration,
                              const PlanRequest& request);

// The part of a plan that holds whatever tensors there are: network, transport,
// cards, memory, connections, and whose workers sum first. Members connect by
// it; `request` needs no profile. Errors as MakePlan.
absl::StatusOr<Plan> PlanPath(std::span<const Machine> machines,
                              const PlanRequest& request);

// What `digest` is of: a line for each thing that ranks must agree on.
std::string PlanFacts(const Plan& plan);

// Whether frames of some worker are in the memory of its GPUs.
bool UsesGdr(const Plan& plan);

// The first of a kind; null: nothing was to decide.
const Decision* FindDecision(const Plan& plan, Decision::Kind what);

// The only places that make text of decisions: "network TCP: no RDMA ...",
// one object and a line's end (`decisions` has what, choice, why, evidence),
// and lines for people.
std::string ToText(const Decision& decision);
std::string PlanToJson(const Plan& plan);
// In at most so many bytes, if need be without evidence; ResourceExhausted.
absl::StatusOr<std::string> PlanToJson(Plan plan, size_t max_bytes);
std::string PlanToText(const Plan& plan);

}  // namespace telegrad
