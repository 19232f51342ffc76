#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "compression/codec.h"
#include "compression/threshold.h"
#include "kernels/dense.h"
#include "kvstore/connections.h"
#include "topology/calibration.h"
#include "transport/bootstrap.h"
#include "transport/secret.h"
#include "transport/transport.h"

// Who sums what. In order of use: MakeKVStore, SetCompression, SetOptimizer,
// Init, then PushPull (or Push and Pull) per tensor and round, Close. Sums are
// sums, never means: divide by the number of workers in the optimizer.
namespace telegrad {

using Key = uint32_t;  // the index of a tensor in what Init was given

struct TensorSpec {
  std::string name;  // [A-Za-z0-9_.:/-]{1,256}
  size_t num_elems = 0;
};

enum class ReplyMode : uint8_t {
  kDense = 0,     // float32 sums (MXNet's)
  kSum = 1,       // exact sums of codes, packed; needs a summable codec
  kReencode = 2,  // sums encoded again with the server's own residual
  kAuto = 3,      // kSum where codes can be added, else kReencode
};

// What happens when a gradient holds NaN or infinities.
enum class NonFinitePolicy : uint8_t {
  kError = 0,      // the job ends with exit 42; the step is committed nowhere
  kSkip = 1,       // all workers leave the step out (the trainer asks them)
  kZero = 2,       // such elements count as 0
  kPropagate = 3,  // MXNet's behaviour
};

// How codes and their sums are laid out in bytes, for codecs with a choice
// (2bit) whose text does not say it.
enum class PackingMode : uint8_t {
  kPlain = 0,  // MXNet's
  kRadix = 1,  // a fifth fewer bytes, more arithmetic
  // Of an emulated link ChoosePacking, else KVStore::SetPacking.
  kAuto = 2,
};

struct CompressionConfig {
  std::string type = "none";  // a codec with its settings: "topk:0.01"
  // Overrides per tensor, the first that matches wins: "bn|bias=none;*=int8",
  // PATTERN=CODEC separated by ';'. A pattern is a regular expression (RE2)
  // that is searched for in the tensor's name; "*" matches all.
  std::string rules = {};
  ThresholdSpec threshold = {};
  int batch_size = 1;     // for the unit of `0.5:batch`
  int64_t min_bytes = 0;  // smaller tensors go dense
  ReplyMode reply = ReplyMode::kAuto;
  PackingMode packing = PackingMode::kPlain;
  NonFinitePolicy nonfinite = NonFinitePolicy::kError;
  int64_t warmup_steps = 0;  // the first so many steps go dense
  // Codecs that KVStore::SetCodec can give tensors instead of `type`.
  std::vector<std::string> alternatives = {};
  // Everything goes dense until KVStore::SetCodec.
  bool starts_dense = false;
  // Chunks whose codec harms (docs/codecs.md) go dense instead from then on.
  bool has_guard = true;

  // `type`, then `alternatives`.
  std::vector<std::string> types() const {
    std::vector<std::string> all = {type};
    all.insert(all.end(), alternatives.begin(), alternatives.end());
    return all;
  }
};

// A tensor's codec, why it has it, and how it does: of a sample of its elements
// on this worker, the last that was taken. Shares are 0..1. Codecs without a
// residual have NaN for what is said of it.
struct TensorReport {
  std::string name;
  size_t num_elems = 0;
  std::string codec;      // its name
  std::string setting;    // as the user wrote it, "2bit:auto"
  bool has_rule = false;  // that gave it this codec
  std::string reason;     // "type 2bit", "rule bias=none", "below 65536 bytes"
  std::string reply;      // "dense", "sum", "codes"
  std::string packing;    // with --gc-packing auto "open", then what it became
  size_t push_bytes = 0;  // per step, at most, without headers
  bool is_dense = false;  // some of it goes dense though it has a codec
  bool gave_up = false;   // some of it because of the guard, with `codec`
  bool has_sample = false;
  double residual_ratio = 0;   // norm of the residual / norm of the gradient
  double zero_share = 0;       // elements that were sent as 0
  double saturated_share = 0;  // residual beyond 64 thresholds
  double cosine = 0;           // of what was sent and the gradient
  double relative_error = 0;   // norm of their difference / of the gradient
  int64_t num_nonfinite = 0;   // since Init
};

constexpr int kDenseCodec = -1;  // for SetCodec

enum class UpdateOn : uint8_t { kWorker = 0, kServer = 1 };

struct OptimizerConfig {
  UpdateOn update_on = UpdateOn::kWorker;
  kernels::SgdParameters sgd;  // used by servers when update_on is kServer
};

// InvalidArgument or NotFound says what is wrong with CompressionConfig::rules.
absl::Status CheckCodecRules(absl::string_view rules);

// Names as on the command line; InvalidArgument lists the choices.
absl::StatusOr<ReplyMode> ParseReplyMode(absl::string_view text);
absl::StatusOr<NonFinitePolicy> ParseNonFinitePolicy(absl::string_view text);
absl::StatusOr<UpdateOn> ParseUpdateOn(absl::string_view text);
absl::StatusOr<PackingMode> ParsePackingMode(absl::string_view text);
const char* ToString(ReplyMode mode);
const char* ToString(NonFinitePolicy policy);
const char* ToString(UpdateOn update_on);
const char* ToString(PackingMode mode);

// kPlain or kRadix for kAuto: radix where a known link (bytes per second and
// direction, 0: unknown) is slower than one core makes plain codes, so that the
// wire is the limit and not the core; else plain.
constexpr double kCoreBytesPerS = 200e6;  // 0.8e9 elements of 2 bits
PackingMode ChoosePacking(PackingMode mode, double link_bytes_per_s);

// The end of an asynchronous operation. Thread-safe, cheap to copy.
class Ticket {
 public:
  struct State;
  Ticket() = default;
  explicit Ticket(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // The operation's status; DeadlineExceeded, naming what is missing, when
  // `deadline` passes first.
  absl::Status Wait(TimePoint deadline) const;
  bool is_done() const;

 private:
  std::shared_ptr<State> state_;
};

// Bytes of gradients (raw) and of frames with their headers (wire), since Init
// without its own traffic. Stores of one process have no frames.
struct Traffic {
  int64_t push_raw_bytes = 0;
  int64_t push_wire_bytes = 0;
  int64_t pull_raw_bytes = 0;
  int64_t pull_wire_bytes = 0;
  int64_t num_nonfinite = 0;  // elements that policy zero replaced
  int64_t num_frames = 0;     // sent and received
  // For which the thread that sends and receives has had a core so far.
  double io_cpu_s = 0;
};

// Hosts with servers.
struct ServerMachines {
  int all = 0;
  int without_worker = 0;  // of these
};

// What a server says of the machine that it runs on.
struct ServerAbout {
  int rank = 0;
  std::string host = {};
  std::string text = {};  // bytes from a network
};

class KVStore {
 public:
  virtual ~KVStore() = default;

  // Before Init; FailedPrecondition afterwards.
  virtual absl::Status SetCompression(const CompressionConfig& config) = 0;
  virtual absl::Status SetOptimizer(const OptimizerConfig& config) = 0;

  // Joins the job, agrees with all members on tensors and settings, and, with
  // `values` (one view per tensor), gives all workers worker 0's values.
  // Errors carry exit codes (base/exit_code.h).
  virtual absl::Status Init(std::span<const TensorSpec> tensors,
                            std::span<const Bytes> values) = 0;

  virtual int rank() const = 0;
  virtual int num_workers() const = 0;
  virtual int num_servers() const = 0;

  // Starts a round for `key`: sends `grad` and fills `out` (may be the same
  // memory) with the sum over workers, or the new weights when the optimizer
  // runs on servers. Both [num_elems] f32, untouched until the ticket is done.
  // Larger priorities go first. One operation per key at a time.
  virtual Ticket PushPull(Key key, ConstBytes grad, Bytes out,
                          int priority) = 0;
  // The two halves: Push is done when the round is (all workers pushed); Pull
  // fetches the result of the last round, or the initial value before any.
  virtual Ticket Push(Key key, ConstBytes grad, int priority) = 0;
  virtual Ticket Pull(Key key, Bytes out, int priority) = 0;

  // All workers meet; each gets all payloads by rank.
  virtual absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload) = 0;

  // How `key` goes from the round after the next on: kDenseCodec; 0, by its
  // codec (as at the start, unless CompressionConfig::starts_dense); or 1 + i,
  // by CompressionConfig::alternatives[i], for tensors with the codec `type`.
  // Dense while workers differ, where the guard has given up on the codec, and
  // in a round between two codecs: what the first held back is sent along.
  // After Init, between rounds; changes nothing for a tensor without a lossy
  // codec.
  virtual absl::Status SetCodec(Key key, int codec) = 0;

  // How codes lie in bytes. kAuto where SetCompression asked for it, a tensor's
  // codec has a choice, and nobody has decided: then plain until SetPacking.
  // After Init.
  virtual PackingMode packing() const = 0;
  // Decides it: kPlain or kRadix. All workers call it with the same, after
  // Init, before the first push; FailedPrecondition later, and where nothing is
  // open. Servers follow the first push and refuse others.
  virtual absl::Status SetPacking(PackingMode mode) = 0;

  // How fast bytes go between the workers and the servers, over the connections
  // that gradients take, while all workers use them: bytes/s of a machine, out
  // and in, seconds of a small message, one way, and of a core per frame and
  // per byte (no figures where a worker's threads poll). All workers call it at
  // the same time, after Init, between rounds, with the same `at_most`, which
  // it takes about; all get the same, the slowest worker's. Servers on a
  // worker's own machine count for nothing where any worker has others.
  virtual absl::StatusOr<LinkFigures> MeasureLink(Duration at_most) = 0;
  // How much goes over that link, each way, for each byte that every worker
  // pushes and pulls: of all workers of the busiest machine, to servers on
  // others; 1 where all servers are on the workers' machine. After Init.
  virtual double link_load() const = 0;
  // What these figures depend on: members' machines, transport, settings. After
  // Init.
  virtual std::string link_identity() const = 0;

  virtual Traffic traffic() const = 0;
  // By key. After Init, while no operation runs.
  virtual std::vector<TensorReport> Report() const = 0;
  // After Init.
  virtual ServerMachines server_machines() const = 0;
  // What servers said of hosts where no worker is (ServerOptions::about), the
  // first of each host. All workers get the same. After Init.
  virtual absl::StatusOr<std::vector<ServerAbout>> AskServers() = 0;
  // What the data goes over, and why: where hosts of a job choose differently
  // ("auto"), what all of them can use. After Init.
  virtual TransportChoice transport_choice() const = 0;
  // "ucx: UCX 1.13.1, ...": that, as it is set up.
  virtual std::string transport_details() const = 0;
  // To each peer on another host, of all members, and why; no reason where all
  // were given it. After Init.
  virtual ConnectionChoice connection_choice() const = 0;
  // Shown when something fails; the trainer counts its steps here.
  virtual void SetStep(int64_t step) = 0;
  // Ends the job for all members, with this worker's reason.
  virtual void Fail(const absl::Status& why) = 0;
  // Orderly end; afterwards every operation fails.
  virtual void Close() = 0;
};

// How a worker or server of a dist_* store reaches the others.
struct DistOptions {
  std::string scheduler_address;  // "127.0.0.1:40123"
  std::string job_id = "local";
  Secret secret;
  int wanted_rank = -1;
  TransportOptions transport;
  // The transport's connections are for this host to find (ChooseConnections)
  // and for the job to settle on: as many as members need or were given.
  bool has_auto_connections = false;
  ControlTiming timing;
  Duration operation_timeout = std::chrono::seconds(300);
  int num_threads = 1;  // of the codecs, besides the transport's thread
  size_t chunk_elems = size_t{512} * 1024;
  // What else all workers must agree on, of those that join: "UCX_TLS" ->
  // "tcp". Names that the store itself does not use (docs/control_plane.md).
  Facts facts = {};
  // Called once when the job fails, on the control thread.
  std::function<void(const FatalEvent&)> on_fatal;
};

// `type` as in MXNet; now "dist_sync", also "dist", "dist_device_sync" and
// "dist_sync_device" for it. NotFound names the types that exist;
// Unimplemented those of MXNet that do not yet.
absl::StatusOr<std::unique_ptr<KVStore>> MakeKVStore(
    absl::string_view type, const DistOptions& options);
std::string DescribeKVStores();

struct ServerOptions {
  DistOptions dist;
  int64_t max_model_bytes = int64_t{64} << 30;
  // For workers on other hosts that ask, at most 1 MiB (KVStore::AskServers).
  std::string about = {};
};

// Joins as a server and serves until all workers have left. Blocks.
absl::Status RunServer(const ServerOptions& options);

}  // namespace telegrad
