#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/calibration.h"
#include "topology/cost_model.h"
#include "topology/machine.h"
#include "topology/profiles.h"

namespace telegrad {

// What all machines of a job use between them. Never one for some pairs and
// another for others.
enum class NetworkKind : uint8_t { kLocal, kTcp, kInfiniBand, kRoceV2, kEfa };
const char* Name(NetworkKind network);  // "local", "TCP", "IB", "RoCEv2", "EFA"
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

// What a run has fixed before it plans, and why: "fixed by --servers 2". Then
// the plan has it, too, whatever would be best; without a reason nothing is.
struct FixedByRun {
  std::string network_why = {};  // of PlanRequest::network, which all can use
  Aggregation aggregation = Aggregation::kLocal;
  std::string aggregation_why = {};
  // Of these the fastest is told if it is faster than that by more than the
  // figures' spread, and 5 %.
  std::vector<Aggregation> alternatives = {};
  std::string memory_why = {};  // host memory, whatever GPUs there are
  int connections = 1;
  std::string connections_why = {};
};

// What --gc-allow is without the flag, in a run and in a plan alike: the one
// codec with which this product's accuracy was measured over whole trainings.
// Others lose something else, which is the user's to allow.
inline constexpr char kDefaultAllowed[] = "2bit";

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
  int64_t chunk_bytes = 0;   // of all tensors; 0: what is best for each
  std::string network = {};  // ParseNetwork; empty: by machines
  GdrWish gdr = GdrWish::kAuto;
  double link_gbps = 0;  // of each machine; 0: by calibration and machines
  // The link's rate was seen while all workers used the servers: these are no
  // further limit.
  bool is_link_of_busy_servers = false;
  FixedByRun fixed = {};
  // Of a step without communication, of which backward is two thirds; 0: not
  // known, then nothing hides behind it.
  double compute_s = 0;
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

// Between two machines, and why; no reason for 1.
struct PlannedConnections {
  int connections = 1;
  std::string reason = {};  // "a bond spreads by connection"
};
// Over a link of this rate (0: unknown) that is a bond or not. More than one
// where one TCP stream does not fill it, or a hash gives each a cable.
PlannedConnections ConnectionsOver(NetworkKind network, double gbps,
                                   bool is_bond);

struct Plan {
  NetworkKind network = NetworkKind::kLocal;
  Aggregation aggregation = Aggregation::kLocal;
  bool is_hierarchical = false;  // GPUs of a machine sum first
  int workers = 1;
  int servers = 0;
  int mtu = 0;          // bytes, least of all ports; 0: unknown
  int connections = 1;  // per pair of machines
  std::string codec = "none";
  int64_t chunk_bytes = 0;  // asked for; 0: each tensor has its best
  std::vector<TensorPlan> tensors = {};
  std::vector<MachinePlan> machines = {};
  double link_bytes_per_s = 0;  // of a machine, the slowest
  double comm_s = 0;            // predicted, of a step
  double comm_dense_s = 0;      // predicted without compression
  double exposed_s = 0;         // what backward does not hide of comm_s
  // Of FixedByRun::alternatives, if one is faster.
  std::optional<Aggregation> advised = {};
  std::vector<std::string> reasons = {};   // "compression off: ..."
  std::vector<std::string> warnings = {};  // "wanted IB, but ..."
  // SHA-256 of all that ranks must agree on, hex; not of texts or predictions.
  std::string digest = {};
};

// A pure function of its arguments, independent of the order of `machines`.
// Given fewer machines than workers, takes the others to be alike; given none,
// all have one network card and no GPU. FailedPrecondition where an override
// does not fit a machine (named), InvalidArgument for a bad request.
absl::StatusOr<Plan> MakePlan(std::span<const Machine> machines,
                              const Calibration& calibration,
                              const PlanRequest& request);

// As MakePlan, but stays with the old plan's aggregation and codecs unless the
// new ones shorten a step's predicted communication by more than `margin`.
absl::StatusOr<Plan> RevisePlan(const Plan& old,
                                std::span<const Machine> machines,
                                const Calibration& calibration,
                                const PlanRequest& request,
                                double margin = 0.05);

// What `digest` is of: a line for each thing that ranks must agree on.
std::string PlanFacts(const Plan& plan);

// One decision and what stands for it: {"aggregation", "ring: 2 alike ..."}.
struct PlanDecision {
  std::string what = {};
  std::string text = {};
};
// Of `network`, `cards`, `memory`, `aggregation` each one, and of what else was
// to decide, in this order: `link`, `hierarchical`, `compression`, `advice`,
// `connections`. The cards of two machines are named, the others counted.
std::vector<PlanDecision> PlanDecisions(const Plan& plan);

// One object and a line's end; `reasons` has a line for each of PlanDecisions,
// then of `chunk` and `priority`.
std::string PlanToJson(const Plan& plan);
std::string PlanToText(const Plan& plan);  // for people, the same lines

}  // namespace telegrad
