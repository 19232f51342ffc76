#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/fact.h"

namespace telegrad {

// A number that the planner predicts with, and how far it can be relied on.
struct Figure {
  double value = 0;   // 0: not known
  double spread = 0;  // relative: 0.1 is +-10 %
  Confidence confidence = Confidence::kAssumed;
  std::string reason = {};  // "median of 15 runs", "default"

  // By a run or by what an API says; a rule or a default is no reason to lose
  // accuracy.
  bool is_grounded() const {
    return confidence == Confidence::kMeasured ||
           confidence == Confidence::kReported;
  }
  bool operator==(const Figure&) const = default;
};

// Bits per element for up to so many workers.
struct BitsForWorkers {
  int max_workers = 0;
  double bits = 0;
  bool operator==(const BitsForWorkers&) const = default;
};

// What a server answers with (docs/codecs.md): the exact sum of codes, a sum
// that it encoded again, 32-bit floats.
enum class Reply : uint8_t { kSum, kReencode, kDense };

// Speeds of one codec, elements/s of one core.
struct CodecFigures {
  std::string name = {};  // as users write it: "2bit:auto"
  bool on_gpu = false;    // encode, decode and call_s are a GPU's
  bool is_lossy = true;
  bool is_summable = false;  // codes are added without decoding
  Reply reply = Reply::kReencode;
  double push_bits = 0;
  std::vector<BitsForWorkers> reply_bits = {};  // ascending max_workers
  Figure encode = {};
  Figure decode = {};
  Figure decode_add = {};    // one contribution into a sum of floats
  Figure sum = {};           // one contribution into a sum of codes
  Figure reply_encode = {};  // the reply alone; not known: as `encode`
  Figure call_s = {};        // seconds per call of any of these

  bool operator==(const CodecFigures&) const = default;
};

// A way between machines (or "intra": between the GPUs of one; "bus": from one
// to its host, `send`, and back), each direction.
struct LinkFigures {
  std::string name = {};  // a transport ("TCP", "IB", "RoCEv2", "EFA"), "intra"
  Figure send = {};       // bytes/s
  Figure receive = {};    // bytes/s
  Figure latency_s = {};  // seconds of a small message, one way
  Figure message_cpu_s = {};   // a core's, per message sent or received
  Figure cpu_s_per_byte = {};  // a core's, per byte sent or received
  // A frame to a server or back, which threads hand to each other; not known:
  // as for a message.
  Figure frame_latency_s = {};
  Figure frame_cpu_s = {};
  Figure frame_cpu_s_per_byte = {};  // without its checksum

  bool operator==(const LinkFigures&) const = default;
};

// What was measured on the machines of a job. Codecs are names: the planner
// knows them only by these figures.
struct Calibration {
  Figure cores = {};   // per machine, for codecs and transport
  Figure reduce = {};  // float additions/s of one core: an array into another
  // Bytes/s of one core; not known: they cost nothing.
  Figure check = {};  // checksum of a server's frame, at each end of a link
  Figure copy = {};   // between processes of a machine
  // Seconds of a core to give a job to another thread; not known: none.
  Figure handover_s = {};
  std::vector<CodecFigures> codecs = {};
  std::vector<LinkFigures> links = {};

  // Null where there is none of that name.
  const CodecFigures* FindCodec(absl::string_view name) const;
  const LinkFigures* FindLink(absl::string_view name) const;
  bool operator==(const Calibration&) const = default;
};

// Defaults, all kAssumed: one core of a 2.5 GHz server CPU of 2018 and TCP on
// it. They serve simulations; no plan gives up accuracy because of them.
Calibration AssumedCalibration();

// InvalidArgument names the first figure that is out of range, doubled or
// missing.
absl::Status CheckCalibration(const Calibration& calibration);

// JSON of one calibration, in which every key is a member's name. Reading is
// strict: unknown keys, wrong types and values out of range are refused.
// Without line breaks where `indent` is -1.
std::string CalibrationToJson(const Calibration& calibration, int indent = 2);
absl::StatusOr<Calibration> CalibrationFromJson(absl::string_view json);
absl::StatusOr<Calibration> LoadCalibration(const std::string& path);

}  // namespace telegrad
