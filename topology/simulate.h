#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/calibration.h"
#include "topology/cost_model.h"
#include "topology/profiles.h"

namespace telegrad {

// What communication may hide behind.
enum class Overlap : uint8_t {
  kNone,      // gradients leave after backward, forward waits for all
  kBackward,  // gradients leave when they are ready, forward waits for all
  kFull,      // and each layer's forward waits for its own tensors only
};

// A step of synchronous data-parallel training on alike machines.
struct Scenario {
  GradientProfile profile = {};
  int workers = 1;  // machines
  int servers = 0;  // machines that only serve; 0: co-located
  int gpus_per_node = 1;
  double batch = 64;     // samples per GPU
  double compute_s = 0;  // seconds of a step of one GPU without communication
  double images_per_s = 0;        // makes compute_s follow a sweep's batch
  double link_gbps = 10;          // a machine's link, each direction
  double server_link_gbps = 0;    // 0: as a worker's
  double intra_gbytes_per_s = 0;  // between GPUs; 0: by the calibration
  double cores = 0;  // for codecs and transport; 0: by the calibration
  std::string codec = "none";
  // "auto" (a ring for gradients as they are on up to 8 machines, servers
  // otherwise) or the name of an Aggregation.
  std::string aggregation = "auto";
  // ParseNetwork reads it; a name of no network has TCP's costs.
  std::string transport = "TCP";
  double element_bits = 32;     // bits of an element that is not encoded
  int64_t min_codec_elems = 0;  // smaller tensors are not encoded
  int64_t chunk_elems = 0;      // 0: the best for each tensor
  Overlap overlap = Overlap::kFull;
  bool first_layers_first = true;    // priorities on every resource
  double dollars_per_hour = 0;       // one machine's price
  double epoch_samples = 1'281'167;  // ImageNet's training set
};

struct Prediction {
  double step_s = 0;
  double comm_s = 0;     // seconds of a step that does nothing else
  double exposed_s = 0;  // step_s less computing
  double samples_per_s = 0;
  double efficiency = 0;  // scaling: 1 when a step takes what computing takes
  double bytes_per_worker = 0;  // sent in a step, by a machine with a worker
  double epoch_s = 0;
  double epoch_dollars = 0;
  std::string busiest = {};  // resource, "send"
  double busiest_share = 0;  // the share of a step in which it is busy
};

// Plays several steps chunk by chunk: every resource of a machine serves one
// chunk at a time. One worker and one server stand for all, which is exact as
// all are alike and shards are even; the time does not grow with workers.
// InvalidArgument names what is out of range or not known.
absl::StatusOr<Prediction> Simulate(const Scenario& scenario,
                                    const Calibration& calibration);

// Sets one field of a scenario by its flag's name: workers, servers,
// gpus-per-node, batch, link-gbps, cores, compute-ms, codec, aggregation.
absl::Status SetField(absl::string_view name, absl::string_view value,
                      Scenario* scenario);

struct SweepPoint {
  // Values of the sweep's fields, in order.
  std::vector<std::string> values = {};
  Prediction prediction = {};
};
struct SweepResult {
  std::vector<std::string> fields = {};
  std::vector<SweepPoint> points = {};
};

// All combinations of "workers=1:1024:x2,link-gbps=1|10|25,codec=none|2bit":
// FIRST:LAST:xFACTOR, FIRST:LAST:+STEP or values. At most 10,000.
absl::StatusOr<SweepResult> Sweep(const Scenario& scenario,
                                  const Calibration& calibration,
                                  absl::string_view sweep);

std::string SweepToCsv(const SweepResult& sweep);
std::string SweepToJson(const SweepResult& sweep);
// One page without any other file: samples/s over the first field whose values
// are numbers, a line for each combination of the others, and a table.
std::string SweepToHtml(const SweepResult& sweep, absl::string_view title);

}  // namespace telegrad
