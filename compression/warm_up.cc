#include "compression/warm_up.h"

#include <chrono>
#include <optional>
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
#include "kernels/gather.h"

namespace telegrad {
namespace {

// Kernels have one variant for what is aligned and one for what is not, and one
// for each policy.
struct Variant {
  size_t skew;  // elements off the alignment
  NonFinite policy;
};
constexpr Variant kVariants[] = {{0, NonFinite::kZero},
                                 {0, NonFinite::kPropagate},
                                 {1, NonFinite::kZero},
                                 {1, NonFinite::kPropagate}};

// What a warm-up works with; all of it is 0.
struct Arrays {
  static constexpr size_t kElems = 4096;
  static constexpr size_t kRoom = kElems + 4;  // elements, skewed or not

  explicit Arrays(kernels::DeviceQueue& device_queue,
                  const PreparedCodec& prepared)
      : queue(device_queue),
        codec(prepared),
        stream(queue.MakeStream(0)),
        done(queue.MakeEvent()),
        floats(queue.MakeMemory(3 * 4 * kRoom, stream)),
        payload(queue.MakeMemory(codec.max_encoded_bytes(), stream)),
        sum(queue.MakeMemory(codec.sum_bytes(1), stream)),
        result(queue.MakeMemory(sizeof(EncodeResult), stream)),
        encoded(kernels::HostMemory(queue, sizeof(EncodeResult))) {}

  Bytes Floats(size_t which) const { return Array(which, 4); }
  Bytes Array(size_t which, size_t bytes) const {
    return {floats.data() + 4 * kRoom * which + bytes * skew, bytes * kElems,
            floats.view().device};
  }

  kernels::DeviceQueue& queue;
  const PreparedCodec& codec;
  const Stream stream;
  const Event done;
  CodecState state = {};
  size_t skew = 0;
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

// All of one variant that takes an array by itself.
absl::Status RunEach(Arrays& arrays, const EncodeParams& params,
                     ConstBytes payload) {
  const PreparedCodec& codec = arrays.codec;
  auto* const result = arrays.result.as<EncodeResult>();
  const Bytes out = arrays.Floats(2);
  const std::span<const ConstBytes> payloads(&payload, 1);
  const Stream stream = arrays.stream;
  for (const absl::Status& status :
       {codec.EncodeHalf(HalfFormat::kFp16, arrays.Array(0, 2), arrays.state,
                         params, arrays.payload.view(), result, stream),
        codec.EncodeHalf(HalfFormat::kBf16, arrays.Array(0, 2), arrays.state,
                         params, arrays.payload.view(), result, stream),
        codec.Decode(payload, 1.0f, out, stream),
        codec.DecodeAdd(payload, 1.0f, out, stream),
        codec.SumCodes(payloads, arrays.sum.view(), stream),
        codec.DecodeSum(arrays.sum.view(), 1, 1.0f, out, stream),
        codec.Learn(arrays.sum.view(), 1, arrays.state, stream),
        codec.SumDecode(payloads, 1.0f, out, stream)}) {
    if (IsFault(status)) return status;
  }
  return absl::OkStatus();
}

// And what takes many.
absl::Status RunMany(Arrays& arrays, const EncodeParams& params,
                     ConstBytes payload, BatchTable& table) {
  auto* const result = arrays.result.as<EncodeResult>();
  auto* const mean_square = arrays.result.as<double>();
  for (const std::optional<HalfFormat> half : {std::optional<HalfFormat>(),
                                               {HalfFormat::kFp16},
                                               {HalfFormat::kBf16}}) {
    const EncodeItem item = {.codec = &arrays.codec,
                             .half = half,
                             .grad = arrays.Array(0, half.has_value() ? 2 : 4),
                             .state = &arrays.state,
                             .params = params,
                             .out = arrays.payload.view(),
                             .result = result};
    const PowerItem power = {item.grad, arrays.Floats(1), mean_square, half};
    for (const absl::Status& status : {EncodeMany({&item, 1}, table),
                                       SampledPowerMany({&power, 1}, table)}) {
      if (IsFault(status)) return status;
    }
  }
  const DecodeItem answer = {&arrays.codec, payload, 0, 1, arrays.Floats(2)};
  const DecodeItem sum = {&arrays.codec, arrays.sum.view(), 1, 1,
                          arrays.Floats(2)};
  for (const absl::Status& status :
       {DecodeMany({&answer, 1}, table), DecodeMany({&sum, 1}, table)}) {
    if (IsFault(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status RunAll(Arrays& arrays) {
  const PreparedCodec& codec = arrays.codec;
  BatchTable table(&arrays.queue, arrays.stream);
  for (const Variant& variant : kVariants) {
    arrays.skew = variant.skew;
    const EncodeParams params = {.threshold = 1.0f,
                                 .nonfinite = variant.policy};
    if (codec.traits().needs_residual) arrays.state.residual = arrays.Floats(1);
    RETURN_IF_ERROR(codec.Encode(
        arrays.Floats(0), arrays.state, params, arrays.payload.view(),
        arrays.result.as<EncodeResult>(), arrays.stream));
    arrays.queue.Copy(arrays.encoded.view(), arrays.result.view(),
                      arrays.stream);
    RETURN_IF_ERROR(Wait(arrays));
    const size_t bytes = arrays.encoded.as<EncodeResult>()->encoded_bytes;
    if (bytes > arrays.payload.size()) {
      return absl::InternalError(
          absl::StrCat("codec ", codec.traits().name, " encoded ", bytes,
                       " bytes on cuda:", arrays.queue.device().ordinal));
    }
    const ConstBytes payload = {arrays.payload.data(), bytes,
                                arrays.payload.view().device};
    RETURN_IF_ERROR(RunEach(arrays, params, payload));
    RETURN_IF_ERROR(RunMany(arrays, params, payload, table));
  }
  return Wait(arrays);
}

// What a store does with gradients and answers beside any codec.
absl::Status RunCommon(Arrays& arrays, const kernels::KernelTable& kernels) {
  constexpr size_t kElems = Arrays::kElems;
  const Stream stream = arrays.stream;
  auto* const stats = &arrays.result.as<EncodeResult>()->stats;
  for (arrays.skew = 0; arrays.skew < 2; ++arrays.skew) {
    float* const from = AsFloats(arrays.Floats(0));
    float* const to = AsFloats(arrays.Floats(1));
    auto* const halves = AsCodes(arrays.Array(2, 2));
    for (const auto& cast : {kernels.cast.fp16, kernels.cast.bf16}) {
      cast.encode(from, nullptr, kElems, NonFinite::kPropagate, halves, stats,
                  stream);
      cast.decode(halves, kElems, to, stream);
    }
    kernels.scale_f32(1.0f, kElems, to, stream);
  }
  arrays.skew = 0;
  float* const from = AsFloats(arrays.Floats(0));
  float* const to = AsFloats(arrays.Floats(1));
  const kernels::GatherKernels& gather =
      kernels::GatherKernelsOf(kernels.device);
  gather.clear(4 * kElems, to, stream);
  gather.sample(from, kElems, 16, to, stream);
  BatchTable table(&arrays.queue, stream);
  const kernels::GatherSpan span = {.from = from, .to = to, .count = kElems};
  ASSIGN_OR_RETURN(const auto* const spans, table.Upload(&span, 1));
  gather.gather_many(spans, 1, stream);
  RETURN_IF_ERROR(table.Release());
  for (const size_t skew : {0, 1}) {
    const kernels::MomentumSpan momentum = {from + skew, to + skew, from + skew,
                                            kElems};
    RETURN_IF_ERROR(PushMomentumMany({&momentum, 1}, table));
  }
  return Wait(arrays);
}

// Whether nobody has begun it yet; process-wide, as loaded kernels are.
bool IsCold(std::string key) {
  static Mutex mutex;
  static auto* const warm = new std::set<std::string>;
  const MutexLock lock(&mutex);
  return warm->insert(std::move(key)).second;
}

bool IsCold(const Codec& codec, const CodecOptions& options, Device device) {
  std::string key = absl::StrCat(codec.traits().name, " ", device.ordinal);
  for (const CodecOption& option : codec.traits().options) {
    absl::StrAppend(&key, " ", options.*option.field);
  }
  return IsCold(std::move(key));
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
  if (IsCold(absl::StrCat("any ", device.ordinal))) {
    ASSIGN_OR_RETURN(const kernels::KernelTable* const kernels,
                     KernelsFor(Arrays::kElems, device));
    RETURN_IF_ERROR(RunCommon(arrays, *kernels));
  }
  return RunAll(arrays);
}

}  // namespace telegrad
