#pragma once

#include <cstddef>
#include <string>

#include "base/metrics.h"
#include "kvstore/job/control/membership.h"

// The names of docs/numbers.md, "Metrics".
namespace telegrad {

namespace metric {

using enum MetricType;

inline constexpr Metric kPushRaw{"telegrad_push_raw_bytes_total", kCounter,
                                 "bytes pushed, as elements"};
inline constexpr Metric kPushWire{"telegrad_push_wire_bytes_total", kCounter,
                                  "bytes pushed, as frames with headers"};
inline constexpr Metric kPullRaw{"telegrad_pull_raw_bytes_total", kCounter,
                                 "bytes of results, as elements"};
inline constexpr Metric kPullWire{"telegrad_pull_wire_bytes_total", kCounter,
                                  "bytes of results, as frames with headers"};
inline constexpr Metric kFrames{"telegrad_frames_total", kCounter,
                                "frames sent and received"};
inline constexpr Metric kRounds{"telegrad_rounds_total", kCounter,
                                "operations that have ended"};
inline constexpr Metric kRoundBytes{"telegrad_round_bytes_total", kCounter,
                                    "bytes of their tensors, as elements"};
inline constexpr Metric kRoundSeconds{
    "telegrad_round_seconds", kHistogram,
    "from the start of an operation to its end; on servers from a chunk's "
    "first push to its sum"};
inline constexpr Metric kSteps{
    "telegrad_steps_total", kCounter,
    "rounds of the first tensor: steps of the training"};
inline constexpr Metric kStepSeconds{"telegrad_step_seconds_total", kCounter,
                                     "seconds of steps"};
inline constexpr Metric kWaitSeconds{
    "telegrad_wait_seconds_total", kCounter,
    "seconds in which the training did nothing but wait for communication"};
inline constexpr Metric kCodecSeconds{
    "telegrad_codec_seconds_total", kCounter,
    "seconds of threads in codecs, of tensors in host memory"};
inline constexpr Metric kNetworkSeconds{
    "telegrad_network_seconds_total", kCounter,
    "seconds in which a frame was being sent or received"};
inline constexpr Metric kNonFinite{"telegrad_nonfinite_total", kCounter,
                                   "elements that policy zero replaced"};
inline constexpr Metric kToDevice{"telegrad_to_device_bytes_total", kCounter,
                                  "bytes copied from hosts to GPUs"};
inline constexpr Metric kFromDevice{"telegrad_from_device_bytes_total",
                                    kCounter, "bytes copied from GPUs"};
inline constexpr Metric kStaleness{
    "telegrad_staleness_max_steps", kGauge,
    "steps by which an asynchronous worker was ahead, or one that servers do "
    "not wait for was late, at most"};
inline constexpr Metric kLatePushes{
    "telegrad_late_pushes_total", kCounter,
    "pushes of chunks that came when their round was over, by worker"};
inline constexpr Metric kResidualRatio{
    "telegrad_residual_ratio", kGauge,
    "norm of what a codec holds back over that of late gradients; the largest "
    "tensors"};
inline constexpr Metric kGaveUp{"telegrad_guard_gave_up_total", kCounter,
                                "chunks whose codec the guard has given up"};
inline constexpr Metric kStragglers{"telegrad_stragglers_total", kCounter,
                                    "warnings of who makes the others wait"};
inline constexpr Metric kWaitedFor{
    "telegrad_waited_for_seconds_total", kCounter,
    "seconds in which chunks waited for this worker's push alone, summed over "
    "chunks"};
inline constexpr Metric kRefused{"telegrad_refused_total", kCounter,
                                 "connections and frames that were refused"};
inline constexpr Metric kDuplicates{"telegrad_duplicates_total", kCounter,
                                    "pushes that came twice"};
inline constexpr Metric kPeers{"telegrad_peers", kGauge, "members of the job"};
inline constexpr Metric kMemory{"telegrad_memory_bytes", kGauge,
                                "resident set of this process"};
inline constexpr Metric kJobInfo{"telegrad_job_info", kGauge, "1; the job"};
inline constexpr Metric kBuildInfo{"telegrad_build_info", kGauge,
                                   "1; the program"};
inline constexpr Metric kPlanInfo{"telegrad_plan_info", kGauge,
                                  "1; how data goes, and why"};

}  // namespace metric

// What every member of a job has. `num_left`: workers that have left in order.
void CollectJob(const Membership& membership, const std::string& job_id,
                size_t num_left, MetricsPage& page);

}  // namespace telegrad
