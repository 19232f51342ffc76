#pragma once

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
#include "base/device.h"
#include "base/dtype.h"
#include "compression/codec.h"
#include "compression/threshold.h"
#include "kernels/dense.h"

// What a store is told: tensors, compression, optimizer.
namespace telegrad {

using Key = uint32_t;  // names a tensor of a store; Init gives it

// Of a tensor, relative to the optimizer's rates; finite, not negative.
struct RateMultipliers {
  float lr = 1;
  float wd = 1;
};

struct TensorSpec {
  std::string name;  // [A-Za-z0-9_.:/-]{1,256}
  // 0: nothing of it travels, and each operation is done at once.
  size_t num_elems = 0;
  // Of this process alone: the others may have it elsewhere. The type of floats
  // of gradients, outputs and values; sums are of float32, rounded once.
  Dtype dtype = Dtype::kFloat32;
  // Where its views lie, by device of this process; empty: in host memory.
  std::vector<Device> devices = {};
  RateMultipliers rates = {};  // for an optimizer in the store
  // Elements of a row, of which there is a whole number: then views may have
  // some rows of it (TensorView::rows), and it goes dense. 0: it has none.
  size_t row_elems = 0;
  // What a plan says of it, alike on all workers, over what the store's
  // settings do: a codec as CompressionConfig::type, which is its only one, and
  // the elements of a chunk. Empty and 0: nothing.
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
  // Of an emulated link ChoosePacking, else CodecControl::SetPacking.
  kAuto = 2,
};

constexpr size_t kMaxAlternatives = 7;  // of CompressionConfig

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
  double residual_ratio = 0;   // norm of the residual / of late gradients
  double zero_share = 0;       // elements that were sent as 0
  double saturated_share = 0;  // residual beyond 64 thresholds
  double cosine = 0;           // of what was sent and the gradient
  double relative_error = 0;   // norm of their difference / of the gradient
  int64_t num_nonfinite = 0;   // since Init
};

constexpr int kDenseCodec = -1;  // for CodecControl::SetCodec

enum class UpdateOn : uint8_t { kWorker = 0, kServer = 1 };

enum class OptimizerKind : uint8_t {
  kSgd = 0,  // with momentum
  kNag = 1,  // with Nesterov's
  kAdam = 2,
  kAdamW = 3,
  kAdagrad = 4,
  kRmsProp = 5,  // not centered, without momentum
};
constexpr uint8_t kMaxOptimizerKind = 5;

struct AdamParameters {
  float beta1 = 0.9f;
  float beta2 = 0.999f;   // rmsprop's, too
  float epsilon = 1e-8f;  // as well, and adagrad's
};

// Used by servers when update_on is kServer.
struct OptimizerConfig {
  UpdateOn update_on = UpdateOn::kWorker;
  // With kWorker: what sums are multiplied by, in float32, before outputs get
  // them; 1 / contributors gives means. Initial and broadcast values stay as
  // they are. With kServer sgd.rescale is for that.
  float result_scale = 1;
  OptimizerKind kind = OptimizerKind::kSgd;
  kernels::SgdParameters sgd = {};  // rates of all kinds; the momentum of two
  AdamParameters adam = {};
};

// InvalidArgument or NotFound says what is wrong with CompressionConfig::rules.
absl::Status CheckCodecRules(absl::string_view rules);

// Names as on the command line; InvalidArgument lists the choices.
absl::StatusOr<ReplyMode> ParseReplyMode(absl::string_view text);
absl::StatusOr<NonFinitePolicy> ParseNonFinitePolicy(absl::string_view text);
absl::StatusOr<UpdateOn> ParseUpdateOn(absl::string_view text);
absl::StatusOr<OptimizerKind> ParseOptimizerKind(absl::string_view text);
absl::StatusOr<PackingMode> ParsePackingMode(absl::string_view text);
// --tier1: "on", "off", or none for "auto".
absl::StatusOr<std::optional<bool>> ParseTierOne(absl::string_view text);
const char* ToString(ReplyMode mode);
const char* ToString(NonFinitePolicy policy);
const char* ToString(UpdateOn update_on);
const char* ToString(OptimizerKind kind);
const char* ToString(PackingMode mode);

// kPlain or kRadix for kAuto: radix where a known link (bytes per second and
// direction, 0: unknown) is slower than one core makes plain codes, so that the
// wire is the limit and not the core; else plain.
constexpr double kCoreBytesPerS = 200e6;  // 0.8e9 elements of 2 bits
PackingMode ChoosePacking(PackingMode mode, double link_bytes_per_s);

constexpr int64_t kMaxStaleness = 65535;  // a field of frames
constexpr int64_t kAnyStaleness = -1;

class Timeline;  // kvstore/timeline.h

// Steps a key's `weight` with a round's sum over devices, times
// OptimizerConfig::result_scale. Both are [n] f32 in host memory, and the
// call's alone. Of one key it is called once a round, in order; of several at
// the same time, on the store's threads, so it may not wait for the store.
using Updater = std::function<absl::Status(
    Key key, std::span<const float> gradient, std::span<float> weight)>;

// What a store needs besides its job.
struct StoreOptions {
  int num_threads = 1;  // of the codecs, besides the transport's thread
  size_t chunk_elems = size_t{512} * 1024;
  int num_devices = 1;  // of this process: views per operation
  // Of types of one process: chunks and counted bytes are those of a job with
  // so many servers and a worker for each device, so that sums are its bits; 0:
  // none are meant.
  int emulated_servers = 0;
  // Of asynchronous types: no worker is more steps ahead of the slowest, of any
  // key; kAnyStaleness, or 0 to kMaxStaleness.
  int64_t max_staleness = kAnyStaleness;
  // Of types of one process, but for nccl: instead of an optimizer; pulls give
  // weights, and Init needs their values. Its error, or what it throws, ends
  // the operation, and the weights stay as they were; the gradient is lost.
  // None: no updater.
  Updater updater = nullptr;
  // Outlives the store; gets the stages of each chunk: "queued", "encode",
  // "send", "network and server", "decode". Types of one process have "encode
  // and sum" and "decode", and nccl has none.
  Timeline* timeline = nullptr;
};

}  // namespace telegrad
