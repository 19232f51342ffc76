#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/cpu_time.h"
#include "base/crc32c.h"
#include "base/mutex.h"
#include "base/process_memory.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "compression/codec.h"
#include "kvstore/tuning/calibrate.h"
#include "kvstore/tuning/timing.h"

// What a core does beside codecs.
namespace telegrad {
namespace {

Buffer Ones(const CalibrationOptions& options) {
  Buffer array(4 * options.num_elems);
  std::fill_n(array.as<float>(), options.num_elems, 1.0f);
  return array;
}

// The rate of `work` on `amount` of elements or bytes; nothing where it fails.
Figure MeasureRate(const CalibrationOptions& options, double amount,
                   const Work& work) {
  const absl::StatusOr<Timing> timing =
      Time(work, options.repeats, options.budget);
  return timing.ok() ? Rate(amount, *timing) : Figure{};
}

Figure Additions(const CalibrationOptions& options, ConstBytes from, Bytes to) {
  const auto add = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Codec* none, FindCodec("none"));
    ASSIGN_OR_RETURN(const std::unique_ptr<PreparedCodec> codec,
                     none->Prepare(options.num_elems, Device{}));
    return codec->DecodeAdd(from, 0, to, {});
  };
  return MeasureRate(options, static_cast<double>(options.num_elems), add);
}

Figure Checks(const CalibrationOptions& options, ConstBytes bytes) {
  uint32_t sum = 0;  // a sum of sums, so that none is left out
  return MeasureRate(options, static_cast<double>(bytes.size), [&] {
    sum = Crc32c(bytes.data, bytes.size, sum);
    return absl::OkStatus();
  });
}

Figure Copies(const CalibrationOptions& options, ConstBytes from, Bytes to) {
  return MeasureRate(
      options, static_cast<double>(to.size), [&]() -> absl::Status {
        if (ReadProcess(getpid(), to, reinterpret_cast<uint64_t>(from.data))) {
          return absl::OkStatus();
        }
        std::memcpy(to.data, from.data, to.size);
        return absl::OkStatus();
      });
}

// Jobs that go to a pool and back.
class RoundTrips {
 public:
  absl::Status Run(int count) {
    const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
    for (int i = 0; i < count; ++i) {
      pool_.Post(0, [this] {
        MutexLock lock(&mutex_);
        ++num_back_;
        changed_.NotifyAll();
      });
      ++num_posted_;
      MutexLock lock(&mutex_);
      while (num_back_ < num_posted_) {
        if (changed_.WaitUntil(&mutex_, deadline)) continue;
        return absl::DeadlineExceededError("a pool does not run its jobs");
      }
    }
    return absl::OkStatus();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int num_posted_ = 0;
  int num_back_ ABSL_GUARDED_BY(mutex_) = 0;
  ThreadPool pool_{1};  // ends before what its jobs use
};

// Seconds, in the processor time of all threads of this process.
Figure Handovers(const CalibrationOptions& options) {
  constexpr int kCount = 100;
  RoundTrips trips;
  std::vector<double> seconds;
  if (!trips.Run(kCount).ok()) return {};  // starts the thread
  for (int i = 0; i < options.repeats; ++i) {
    const double start = ProcessCpuSeconds();
    if (!trips.Run(kCount).ok()) return {};
    seconds.push_back((ProcessCpuSeconds() - start) / (2 * kCount));
  }
  return Seconds(TimingOf(seconds), "to a pool and back, halved");
}

}  // namespace

Calibration MeasureCores(const CalibrationOptions& options) {
  const std::string what =
      absl::StrCat("additions elements ", options.num_elems);
  if (options.cache != nullptr) {
    std::optional<Calibration> known = options.cache->Load(what);
    if (known.has_value() && known->reduce.value > 0 &&
        known->check.value > 0 && known->copy.value > 0) {
      return *std::move(known);
    }
  }
  Calibration cores;
  // Filling arrays that no cache holds takes as long as all three.
  const Buffer from = Ones(options);
  const Buffer to = Ones(options);
  cores.reduce = Additions(options, from.view(), to.view());
  cores.check = Checks(options, from.view());
  cores.copy = Copies(options, from.view(), to.view());
  cores.handover_s = Handovers(options);
  if (options.cache != nullptr) options.cache->Store(what, cores);
  return cores;
}

}  // namespace telegrad
