#include "compression/warm_up.h"

#include <chrono>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "compression/encode_many.h"
#include "compression/payload_views.h"
#include "kernels/device_queue.h"
#include "kernels/device_scope.h"

namespace telegrad {
namespace {

// What a warm-up works with; all of it is 0.
struct Arrays {
  static constexpr size_t kElems = 4096;

  explicit Arrays(kernels::DeviceQueue& device_queue,
                  const PreparedCodec& prepared)
      : queue(device_queue),
        codec(prepared),
        stream(queue.MakeStream(0)),
        done(queue.MakeEvent()),
        floats(queue.MakeMemory(3 * 4 * kElems, stream)),
        payload(queue.MakeMemory(codec.max_encoded_bytes(), stream)),
        sum(queue.MakeMemory(codec.sum_bytes(1), stream)),
        result(queue.MakeMemory(sizeof(EncodeResult), stream)),
        encoded(kernels::HostMemory(queue, sizeof(EncodeResult))) {}

  Bytes Floats(size_t which) const {
    return {floats.data() + 4 * kElems * which, 4 * kElems,
            floats.view().device};
  }

  kernels::DeviceQueue& queue;
  const PreparedCodec& codec;
  const Stream stream;
  const Event done;
  CodecState state = {};
  const Buffer floats;  // gradient, residual, output
  const Buffer payload;
  const Buffer sum;
  const Buffer result;
  const Buffer encoded;
};

constexpr auto kPatience = std::chrono::seconds(60);

absl::Status Wait(Arrays& arrays) {
  using State = kernels::DeviceQueue::State;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  arrays.queue.Record(arrays.done, arrays.stream);
  for (;;) {
    if (arrays.queue.Poll(arrays.done) != State::kRunning) {
      const std::string error = arrays.queue.TakeError();
      if (error.empty()) return absl::OkStatus();
      return LaunchFault(
          absl::StrCat(error, ", in codec ", arrays.codec.traits().name));
    }
    if (std::chrono::steady_clock::now() > end) {
      return absl::DeadlineExceededError(
          absl::StrCat("cuda:", arrays.queue.device().ordinal,
                       ": no end of a few kernels in 60 s"));
    }
    std::this_thread::yield();
  }
}

// What a codec does not have is no error here.
bool IsFault(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInternal ||
         status.code() == absl::StatusCode::kResourceExhausted;
}

absl::Status RunAll(Arrays& arrays) {
  const PreparedCodec& codec = arrays.codec;
  auto* const result = arrays.result.as<EncodeResult>();
  if (codec.traits().needs_residual) arrays.state.residual = arrays.Floats(1);
  const EncodeParams params = {.threshold = 1.0f};
  RETURN_IF_ERROR(codec.Encode(arrays.Floats(0), arrays.state, params,
                               arrays.payload.view(), result, arrays.stream));
  arrays.queue.Copy(arrays.encoded.view(), arrays.result.view(), arrays.stream);
  RETURN_IF_ERROR(Wait(arrays));
  const size_t bytes = arrays.encoded.as<EncodeResult>()->encoded_bytes;
  if (bytes > arrays.payload.size()) {
    return absl::InternalError(
        absl::StrCat("codec ", codec.traits().name, " encoded ", bytes,
                     " bytes on cuda:", arrays.queue.device().ordinal));
  }
  const ConstBytes payload = {arrays.payload.data(), bytes,
                              arrays.payload.view().device};
  const Bytes out = arrays.Floats(2);
  const std::span<const ConstBytes> payloads(&payload, 1);
  for (const absl::Status& status :
       {codec.EncodeHalf(
            HalfFormat::kFp16, {arrays.floats.data(), 2 * Arrays::kElems},
            arrays.state, params, arrays.payload.view(), result, arrays.stream),
        codec.EncodeHalf(
            HalfFormat::kBf16, {arrays.floats.data(), 2 * Arrays::kElems},
            arrays.state, params, arrays.payload.view(), result, arrays.stream),
        codec.Decode(payload, 1.0f, out, arrays.stream),
        codec.DecodeAdd(payload, 1.0f, out, arrays.stream),
        codec.SumCodes(payloads, arrays.sum.view(), arrays.stream),
        codec.DecodeSum(arrays.sum.view(), 1, 1.0f, out, arrays.stream),
        codec.SumDecode(payloads, 1.0f, out, arrays.stream)}) {
    if (IsFault(status)) return status;
  }
  BatchTable table(&arrays.queue, arrays.stream);
  EncodeItem item = {.codec = &codec,
                     .grad = arrays.Floats(0),
                     .state = &arrays.state,
                     .params = params,
                     .out = arrays.payload.view(),
                     .result = result};
  double* const mean_square = arrays.floats.as<double>();
  const PowerItem power = {arrays.Floats(0), arrays.Floats(1), mean_square};
  RETURN_IF_ERROR(EncodeMany({&item, 1}, table));
  RETURN_IF_ERROR(SampledPowerMany({&power, 1}, table));
  const kernels::MomentumSpan momentum = {AsFloats(arrays.Floats(0)),
                                          AsFloats(arrays.Floats(1)),
                                          AsFloats(arrays.Floats(0)), 1};
  RETURN_IF_ERROR(PushMomentumMany({&momentum, 1}, table));
  return Wait(arrays);
}

// Whether nobody has begun it yet; process-wide, as loaded kernels are.
bool IsCold(const Codec& codec, const CodecOptions& options, Device device) {
  static Mutex mutex;
  static auto* const warm = new std::set<std::string>;
  std::string key = absl::StrCat(codec.traits().name, " ", device.ordinal);
  for (const CodecOption& option : codec.traits().options) {
    absl::StrAppend(&key, " ", options.*option.field);
  }
  const MutexLock lock(&mutex);
  return warm->insert(std::move(key)).second;
}

}  // namespace

absl::Status WarmUp(const Codec& codec, const CodecOptions& options,
                    Device device) {
  if (!IsCold(codec, options, device)) return absl::OkStatus();
  std::string why_not;
  const std::unique_ptr<kernels::DeviceQueue> queue =
      kernels::MakeDeviceQueue(device, &why_not);
  if (queue == nullptr) return absl::UnimplementedError(why_not);
  const absl::StatusOr<std::unique_ptr<PreparedCodec>> prepared =
      codec.PrepareCold(Arrays::kElems, device, options);
  if (!prepared.ok()) return prepared.status();
  const kernels::DeviceScope scope(device);
  Arrays arrays(*queue, **prepared);
  const std::string error = queue->TakeError();
  if (!error.empty()) return absl::ResourceExhaustedError(error);
  return RunAll(arrays);
}

}  // namespace telegrad
