#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/mutex.h"
#include "base/process_memory.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "compression/codec.h"
#include "kvstore/calibrate.h"
#include "kvstore/dist/timing.h"

// What a core does beside codecs.
namespace telegrad {
namespace {

Buffer Ones(const CalibrationOptions& options) {
  Buffer array(4 * options.num_elems);
  std::fill_n(array.as<float>(), options.num_elems, 1.0f);
  return array;
}

// Of `work` on `amount` of elements or bytes; nothing where it fails.
Figure MeasureRate(const CalibrationOptions& options, double amount,
                   const Work& work) {
  const absl::StatusOr<Timing> timing =
      Time(work, options.repeats, options.budget);
  return timing.ok() ? Rate(amount, *timing) : Figure{};
}

Figure MeasureAdditions(const CalibrationOptions& options) {
  const Buffer from = Ones(options);
  const Buffer to = Ones(options);
  const auto add = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Codec* none, FindCodec("none"));
    ASSIGN_OR_RETURN(const std::unique_ptr<PreparedCodec> codec,
                     none->Prepare(options.num_elems, Device{}));
    return codec->DecodeAdd(from.view(), 0, to.view(), {});
  };
  return MeasureRate(options, static_cast<double>(options.num_elems), add);
}

// To a pool and back.
class RoundTrip {
 public:
  absl::Status Run(int count) {
    for (int i = 0; i < count; ++i) {
      pool_.Post(0, [this] {
        MutexLock lock(&mutex_);
        is_back_ = true;
        changed_.NotifyAll();
      });
      MutexLock lock(&mutex_);
      while (!is_back_) {
        changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
      }
      is_back_ = false;
    }
    return absl::OkStatus();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_back_ ABSL_GUARDED_BY(mutex_) = false;
  ThreadPool pool_{1};  // ends before what its jobs use
};

}  // namespace

Figure MeasureReduce(const CalibrationOptions& options) {
  if (options.cache == nullptr) return MeasureAdditions(options);
  const std::string what =
      absl::StrCat("additions elements ", options.num_elems);
  const std::optional<Calibration> known = options.cache->Load(what);
  if (known.has_value() && known->reduce.value > 0) return known->reduce;
  Calibration calibration;
  calibration.reduce = MeasureAdditions(options);
  if (calibration.reduce.value > 0) options.cache->Store(what, calibration);
  return calibration.reduce;
}

Figure MeasureCheck(const CalibrationOptions& options) {
  const Buffer bytes = Ones(options);
  uint32_t sum = 0;  // of sums, so that none is left out
  return MeasureRate(options, static_cast<double>(bytes.size()), [&] {
    sum = Crc32c(bytes.data(), bytes.size(), sum);
    return absl::OkStatus();
  });
}

Figure MeasureCopy(const CalibrationOptions& options) {
  const Buffer from = Ones(options);
  const Buffer to = Ones(options);
  return MeasureRate(
      options, static_cast<double>(to.size()), [&]() -> absl::Status {
        if (ReadProcess(getpid(), to.view(),
                        reinterpret_cast<uint64_t>(from.data()))) {
          return absl::OkStatus();
        }
        std::memcpy(to.data(), from.data(), to.size());
        return absl::OkStatus();
      });
}

Figure MeasureHandover(const CalibrationOptions& options) {
  constexpr int kRoundTrips = 100;
  RoundTrip trip;
  const absl::StatusOr<Timing> timing = Time(
      [&] { return trip.Run(kRoundTrips); }, options.repeats, options.budget);
  if (!timing.ok()) return {};
  return {.value = timing->seconds / (2 * kRoundTrips),
          .spread = std::min(timing->spread, 0.5),
          .confidence = Confidence::kMeasured,
          .reason = "to a pool and back, halved"};
}

}  // namespace telegrad
