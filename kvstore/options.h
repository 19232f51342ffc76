#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/device.h"
#include "base/dtype.h"
#include "compression/threshold.h"

// What a store is told: tensors, compression, optimizer.
namespace telegrad {

using Key = uint32_t;  // names a tensor of a store; Init gives it

// A tensor's rates as multiples of the optimizer's; finite, not negative.
struct RateMultipliers {
  float lr = 1;
  float wd = 1;
};

struct TensorSpec {
  std::string name;  // [A-Za-z0-9_.:/-]{1,256}
  // 0: nothing of the tensor travels, and each operation is done at once.
  size_t num_elems = 0;
  // The type of gradients, outputs and values in this process; other workers
  // may have another. Sums are of float32, rounded once.
  Dtype dtype = Dtype::kFloat32;
  // The devices of this process on which views lie; empty: host memory.
  std::vector<Device> devices = {};
  RateMultipliers rates = {};  // for an optimizer in the store
  // Elements of a row; num_elems is a multiple. Views may then have some rows
  // only (TensorView::rows), and the tensor goes dense. 0: no rows.
  size_t row_elems = 0;
  // Whether pushes have CompressionConfig::momentum, where there is some.
  bool has_momentum = true;
  // Overrides from a plan, equal on all workers. `codec` replaces
  // CompressionConfig::type and its alternatives for this tensor, `chunk_elems`
  // the store's. Empty or 0: no override.
  std::string codec = {};
  size_t chunk_elems = 0;
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
  kAuto = 2,   // ChoosePacking, by the link of the job's plan
};

// Momentum that each worker keeps, in front of the codec. Whoever steps then
// applies none.
enum class PushMomentum : uint8_t {
  kNone = 0,       // gradients are pushed
  kHeavyBall = 1,  // m = rate * m + gradient is pushed
  kNesterov = 2,   // gradient + rate * m is pushed, of that m
};

constexpr size_t kMaxAlternatives = 7;  // CompressionConfig::alternatives

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
  // Codecs that CodecControl::SetCodec can give tensors instead of `type`.
  std::vector<std::string> alternatives = {};
  // Everything goes dense until CodecControl::SetCodec.
  bool starts_dense = false;
  // Chunks whose codec harms (docs/codecs.md) go dense instead from then on.
  bool has_guard = true;
  PushMomentum momentum = PushMomentum::kNone;
  float momentum_rate = 0;  // 0 to 1, 1 excluded

  // `type`, then `alternatives`.
  std::vector<std::string> types() const {
    std::vector<std::string> all = {type};
    all.insert(all.end(), alternatives.begin(), alternatives.end());
    return all;
  }
};

// A tensor's codec, why it has it, and how the codec does. Figures are of the
// last sample of the tensor's elements on this worker; shares are 0..1. Figures
// about a residual are NaN for codecs without one.
struct TensorReport {
  std::string name;
  size_t num_elems = 0;
  std::string codec;      // "2bit"
  std::string setting;    // codec as the user wrote it, "2bit:auto"
  bool has_rule = false;  // a rule gave it this codec
  std::string reason;     // "type 2bit", "rule bias=none", "below 65536 bytes"
  std::string reply;      // "dense", "sum", "reencode"
  size_t push_bytes = 0;  // per step, at most, without headers
  bool is_dense = false;  // some of it goes dense though it has a codec
  bool gave_up = false;   // the guard made some of it dense
  bool has_sample = false;
  double residual_ratio = 0;   // norm of the residual / of late gradients
  double zero_share = 0;       // elements that were sent as 0
  double saturated_share = 0;  // residual beyond 64 thresholds
  double cosine = 0;           // between what was sent and the gradient
  double relative_error = 0;   // norm of their difference / of the gradient
  int64_t num_nonfinite = 0;   // since Init
};

constexpr int kDenseCodec = -1;  // an argument of CodecControl::SetCodec

enum class UpdateOn : uint8_t { kWorker = 0, kServer = 1 };

enum class OptimizerKind : uint8_t {
  kSgd = 0,  // with momentum
  kNag = 1,  // with Nesterov's momentum
  kAdam = 2,
  kAdamW = 3,
  kAdagrad = 4,
  kRmsProp = 5,  // not centered, without momentum
};
constexpr uint8_t kMaxOptimizerKind = 5;

// Steps are along rescale * gradient + weight_decay * weight.
struct SgdParameters {
  float learning_rate = 0.01f;
  float momentum_rate = 0.0f;
  float weight_decay = 0.0f;
  float rescale = 1.0f;
};

struct AdamParameters {
  float beta1 = 0.9f;     // Adam, AdamW
  float beta2 = 0.999f;   // Adam, AdamW, RMSProp
  float epsilon = 1e-8f;  // Adam, AdamW, RMSProp, Adagrad
};

// Used by servers when update_on is kServer.
struct OptimizerConfig {
  UpdateOn update_on = UpdateOn::kWorker;
  // With kWorker sums are multiplied by it, in float32, before outputs get
  // them; 1 / contributors gives means. Initial and broadcast values stay as
  // they are. With kServer sgd.rescale does that.
  float result_scale = 1;
  OptimizerKind kind = OptimizerKind::kSgd;
  // Rates of all kinds; its momentum is for kSgd and kNag.
  SgdParameters sgd = {};
  AdamParameters adam = {};
};

// InvalidArgument or NotFound says what is wrong with CompressionConfig::rules.
absl::Status CheckCodecRules(absl::string_view rules);

// These parse names as on the command line; InvalidArgument lists the choices.
absl::StatusOr<ReplyMode> ParseReplyMode(absl::string_view text);
absl::StatusOr<NonFinitePolicy> ParseNonFinitePolicy(absl::string_view text);
absl::StatusOr<UpdateOn> ParseUpdateOn(absl::string_view text);
absl::StatusOr<OptimizerKind> ParseOptimizerKind(absl::string_view text);
absl::StatusOr<PackingMode> ParsePackingMode(absl::string_view text);
absl::StatusOr<PushMomentum> ParsePushMomentum(absl::string_view text);
// --tier1: "on", "off", or none for "auto".
absl::StatusOr<std::optional<bool>> ParseTierOne(absl::string_view text);
const char* ToString(ReplyMode mode);
const char* ToString(NonFinitePolicy policy);
const char* ToString(UpdateOn update_on);
const char* ToString(OptimizerKind kind);
const char* ToString(PackingMode mode);
const char* ToString(PushMomentum momentum);

// One core makes plain codes at this rate: 0.8e9 elements of 2 bits a second.
constexpr double kCoreBytesPerS = 200e6;
// Decides kAuto: kRadix where the link (bytes per second and direction, 0:
// unknown) is slower than kCoreBytesPerS, so that the wire is the limit and not
// the core; else kPlain.
PackingMode ChoosePacking(PackingMode mode, double link_bytes_per_s);

constexpr int64_t kMaxStaleness = 65535;  // frames have 16 bits for it
constexpr int64_t kAnyStaleness = -1;
constexpr int kMaxDropSlowest = 65535;  // StoreOptions::drop_slowest

class Timeline;  // kvstore/timeline.h

// Steps a key's `weight` with a round's sum over devices, times
// OptimizerConfig::result_scale. Both are [n] f32 in host memory, which nobody
// else uses during the call. It is called once a round for each key, in order;
// calls for several keys run at the same time, on the store's threads, so it
// may not wait for the store.
using Updater = std::function<absl::Status(
    Key key, std::span<const float> gradient, std::span<float> weight)>;

// What a store needs besides its job.
struct StoreOptions {
  int num_threads = 1;  // threads for codecs, besides the transport's thread
  size_t chunk_elems = size_t{512} * 1024;
  // A device encodes tensors as groups that are closed with so many elements:
  // the first codes leave while the next ones are made. Answers are decoded by
  // four times as many; they wait for others so long at most, and for none
  // where all have come.
  size_t device_group_elems = size_t{1} << 24;
  Duration device_patience = std::chrono::milliseconds(1);
  int num_devices = 1;  // devices of this process: views per operation
  // Types of one process only: chunks and counted bytes are those of a job with
  // so many servers and a worker for each device, so that sums have the same
  // bits as there. 0: no servers are emulated.
  int emulated_servers = 0;
  // Asynchronous types only: no worker gets more than so many steps ahead of
  // the slowest, for any key. kAnyStaleness, or 0 to kMaxStaleness.
  int64_t max_staleness = kAnyStaleness;
  // "dist_sync" with an optimizer on servers only: a round does not wait for so
  // many of the workers, whose pushes count in the next one: kvstore/backups.h.
  // 0, or less than there are workers.
  int drop_slowest = 0;
  // Types of one process only, not nccl: steps the weights instead of an
  // optimizer. Pulls give weights, and Init needs their values. Its error, or
  // what it throws, ends the operation; the weights stay as they were, and the
  // gradient is lost. Null: no updater.
  Updater updater = nullptr;
  // Outlives the store and records the stages of each chunk: "queued",
  // "encode", "send", "network and server", "decode". Types of one process have
  // "encode and sum" and "decode", and nccl has none. Null: no timeline.
  Timeline* timeline = nullptr;
};

}  // namespace telegrad
