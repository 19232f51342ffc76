#include "kvstore/tuning/device_speeds.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/device_access.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "compression/codec.h"
#include "compression/encode_many.h"
#include "kernels/device_scope.h"
#include "kvstore/engine/codec/codec_policy.h"
#include "kvstore/engine/device/device_lane.h"
#include "kvstore/tuning/codec_bench.h"
#include "kvstore/tuning/timing.h"
#include "topology/cost_model.h"

namespace telegrad {
namespace {

constexpr Duration kDevicePatience = std::chrono::seconds(30);
constexpr size_t kPatternElems = size_t{1} << 16;
constexpr int kStepsBefore = 8;  // until lists have their usual length

// Until `event`, which goes back to the lane. Without the pauses of
// DeviceLane::Wait, which would be measured.
absl::Status Finish(DeviceLane& lane, Event event) {
  const TimePoint deadline = Clock::now() + kDevicePatience;
  while (lane.Poll(event) == kernels::DeviceQueue::State::kRunning &&
         Clock::now() < deadline) {
    std::this_thread::yield();
  }
  RETURN_IF_ERROR(lane.Wait(event, deadline));
  lane.Return(event);
  return lane.status();
}

absl::Status Finish(DeviceLane& lane) {
  const Event event = lane.TakeEvent();
  lane.Record(event, lane.stream());
  return Finish(lane, event);
}

// All chunks of a step, of standard normal gradients, as a device thread of a
// store has them: encoded as one group.
class DeviceBench {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceBench>> Make(DeviceLane& lane,
                                                           const JobCodec& spec,
                                                           size_t num_elems,
                                                           size_t chunk_elems) {
    std::unique_ptr<DeviceBench> bench(new DeviceBench(lane));
    RETURN_IF_ERROR(bench->Prepare(spec, num_elems, chunk_elems));
    for (int i = 0; i < kStepsBefore; ++i) RETURN_IF_ERROR(bench->Encode());
    return bench;
  }

  absl::Status Encode() {
    const kernels::DeviceScope scope(lane_.device());
    ++step_;
    for (EncodeItem& item : items_) {
      item.params.step = step_;
      lane_.batch().Encode(item, [] { return absl::OkStatus(); });
    }
    // Kernels would wait for the bus where results were on the host.
    lane_.Down(host_results_.view(), results_.view());
    const DeviceLane::Events events = lane_.Submit();
    lane_.Return(events.kernels);
    return Finish(lane_, events.copies);
  }

  // What was encoded last.
  absl::Status Decode() {
    const kernels::DeviceScope scope(lane_.device());
    for (size_t i = 0; i < items_.size(); ++i) {
      const EncodeItem& item = items_[i];
      const size_t size = item.grad.size;
      RETURN_IF_ERROR(codec_->Decode(
          {item.out.data, host_results_.as<EncodeResult>()[i].encoded_bytes},
          item.params.threshold, Part(Reach(out_.view()), i * size, size),
          lane_.stream()));
    }
    return Finish(lane_);
  }

 private:
  explicit DeviceBench(DeviceLane& lane) : lane_(lane) {}

  static Bytes Part(Bytes of, size_t at, size_t size) {
    return Bytes(of.data + at, size, of.device);
  }

  absl::Status Prepare(const JobCodec& spec, size_t num_elems,
                       size_t chunk_elems) {
    ASSIGN_OR_RETURN(
        codec_,
        spec.codec->Prepare(chunk_elems, lane_.codec_device(), spec.options));
    const size_t count = num_elems / chunk_elems;
    const size_t chunk_bytes = 4 * chunk_elems;
    const size_t frame_bytes = (codec_->max_encoded_bytes() + 255) / 256 * 256;
    ASSIGN_OR_RETURN(grad_, lane_.MakeMemory(4 * num_elems));
    ASSIGN_OR_RETURN(out_, lane_.MakeMemory(4 * num_elems));
    ASSIGN_OR_RETURN(frames_, lane_.MakeMemory(count * frame_bytes));
    if (codec_->traits().needs_residual) {
      ASSIGN_OR_RETURN(residual_, lane_.MakeMemory(4 * num_elems));
    }
    ASSIGN_OR_RETURN(results_, lane_.MakeMemory(count * sizeof(EncodeResult)));
    host_results_ = lane_.MakeHostMemory(results_.size());
    RETURN_IF_ERROR(FillGradients());
    states_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = i * chunk_bytes;
      if (residual_.size() > 0) {
        states_[i].residual = Part(Reach(residual_.view()), at, chunk_bytes);
      }
      items_.push_back(
          {.codec = codec_.get(),
           .grad = Part(Reach(grad_.view()), at, chunk_bytes),
           .state = &states_[i],
           .params = {.threshold = BenchThreshold(codec_->traits()),
                      .stream = i},
           .out = Part(Reach(frames_.view()), i * frame_bytes,
                       codec_->max_encoded_bytes()),
           .result =
               reinterpret_cast<EncodeResult*>(Reach(results_.view()).data) +
               i});
    }
    return absl::OkStatus();
  }

  absl::Status FillGradients() {
    const Buffer pattern =
        lane_.MakeHostMemory(std::min(grad_.size(), 4 * kPatternElems));
    Random random(1, 1);
    for (size_t i = 0; i < pattern.size() / 4; ++i) {
      pattern.as<float>()[i] = random.NextNormal();
    }
    for (size_t at = 0; at < grad_.size(); at += pattern.size()) {
      const size_t size = std::min(pattern.size(), grad_.size() - at);
      lane_.Up(Part(grad_.view(), at, size), {pattern.data(), size});
    }
    lane_.EndUp();
    return Finish(lane_);
  }

  DeviceLane& lane_;
  std::unique_ptr<PreparedCodec> codec_;
  Buffer grad_, residual_, out_, frames_, results_, host_results_;
  std::vector<CodecState> states_;
  std::vector<EncodeItem> items_;
  uint64_t step_ = 0;
};

}  // namespace

absl::Status MeasureOnDevice(Device device, absl::string_view text,
                             const CompressionConfig& compression,
                             const CalibrationOptions& options,
                             CodecFigures& figures) {
  ASSIGN_OR_RETURN(const JobCodec spec,
                   ParseJobCodec(text, compression.packing));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceLane> lane,
                   DeviceLane::Make(device));
  const size_t chunk =
      std::max<size_t>(1, std::min(options.num_elems, options.chunk_elems));
  const size_t num_elems = options.num_elems / chunk * chunk;
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceBench> bench,
                   DeviceBench::Make(*lane, spec, num_elems, chunk));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceBench> small,
                   DeviceBench::Make(*lane, spec, kTinyElems, kTinyElems));
  ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                   TimeInTurns({[&] { return bench->Encode(); },
                                [&] { return bench->Decode(); },
                                [&] { return small->Encode(); }},
                               options.repeats, options.budget));
  const auto elems = static_cast<double>(num_elems);
  figures.encode = Rate(elems, timings[0]);
  figures.decode = Rate(elems, timings[1]);
  figures.call_s = Seconds(timings[2], "encode of 256 elements on the device");
  figures.on_gpu = true;
  return absl::OkStatus();
}

absl::StatusOr<LinkFigures> MeasureBus(Device device,
                                       const CalibrationOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceLane> lane,
                   DeviceLane::Make(device));
  const kernels::DeviceScope scope(device);
  const size_t bytes = 4 * options.num_elems;
  ASSIGN_OR_RETURN(const Buffer there, lane->MakeMemory(bytes));
  const Buffer here = lane->MakeHostMemory(bytes);
  ASSIGN_OR_RETURN(const Buffer word, lane->MakeMemory(sizeof(float)));
  const auto down = [&](ConstBytes from) {
    lane->Down(here.view(), from);
    const DeviceLane::Events events = lane->Submit();
    lane->Return(events.kernels);
    return Finish(*lane, events.copies);
  };
  const auto up = [&] {
    lane->Up(there.view(), here.view());
    lane->EndUp();
    return Finish(*lane);
  };
  ASSIGN_OR_RETURN(const std::vector<Timing> timings,
                   TimeInTurns({[&] { return down(there.view()); }, up,
                                [&] { return down(word.view()); }},
                               options.repeats, options.budget));
  return LinkFigures{.name = kBusLink,
                     .send = Rate(static_cast<double>(bytes), timings[0]),
                     .receive = Rate(static_cast<double>(bytes), timings[1]),
                     .latency_s = Seconds(timings[2], "a copy of 4 bytes")};
}

}  // namespace telegrad
