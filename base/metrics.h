#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/mutex.h"

// Numbers for who operates jobs, as Prometheus takes them. What counts keeps
// its counters and adds a function to Metrics that reads them; nothing is
// computed before somebody asks.
namespace telegrad {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

// A name with what docs/numbers.md says of it; constants.
struct Metric {
  const char* name;
  MetricType type;
  const char* help;
};

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Durations by size. Thread-safe, without a lock.
class DurationHistogram {
 public:
  // Upper bounds in seconds; behind them is all that took longer.
  static constexpr std::array<double, 14> kBounds = {
      0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
      0.1,    0.25,  0.5,    1,     2.5,  5,     10};
  void Add(Duration took);
  int64_t count(size_t bucket) const { return counts_[bucket]; }
  double sum_s() const { return ToSeconds(Duration(sum_.load())); }

 private:
  std::array<std::atomic<int64_t>, kBounds.size() + 1> counts_{};
  std::atomic<Duration::rep> sum_{0};
};

// What one look found. One thread.
class MetricsPage {
 public:
  // Series of a process: further ones are left out, and counted.
  static constexpr size_t kMostSeries = 500;

  // `common`: labels of all.
  explicit MetricsPage(MetricLabels common) : common_(std::move(common)) {}

  // Labels of what is added from now on.
  void SetScope(MetricLabels labels) { scope_ = std::move(labels); }
  void AddToScope(std::string name, std::string value) {
    scope_.emplace_back(std::move(name), std::move(value));
  }
  // The first value counts where a metric has the same labels.
  void Add(const Metric& metric, double value, const MetricLabels& labels = {});
  void Add(const Metric& metric, const DurationHistogram& durations,
           const MetricLabels& labels = {});

  // Adds what another page has and this one has not.
  void Take(const MetricsPage& other);

  // In Prometheus' text format, version 0.0.4.
  std::string Text() const;

 private:
  struct Family {
    const Metric* metric = nullptr;
    // By name and labels, in order.
    std::vector<std::pair<std::string, std::string>> values;
  };
  std::string LabelsText(const MetricLabels& labels) const;
  void AddLine(const Metric& metric, absl::string_view suffix,
               const std::string& labels, double value);
  void AddSeries(const Metric& metric, const std::string& series,
                 std::string value);

  MetricLabels common_;
  MetricLabels scope_;
  std::map<std::string, Family> families_;
  std::set<std::string> series_;
  size_t num_left_out_ = 0;
};

// A process's. Thread-safe.
class Metrics {
 public:
  // Reads counters of any thread, and waits for nobody.
  using Collect = std::function<void(MetricsPage&)>;

  // Takes it back at its end, after a look under way and a last one.
  class Registration {
   public:
    Registration() = default;
    Registration(Metrics* metrics, int64_t id) : metrics_(metrics), id_(id) {}
    Registration(Registration&& other) noexcept
        : metrics_(std::exchange(other.metrics_, nullptr)), id_(other.id_) {}
    Registration& operator=(Registration&& other) noexcept;
    ~Registration();

   private:
    Metrics* metrics_ = nullptr;
    int64_t id_ = 0;
  };

  explicit Metrics(MetricLabels common = {}) : common_(std::move(common)) {}

  // `collect` is called on the threads that ask, one at a time.
  [[nodiscard]] Registration Add(Collect collect);
  std::string Text() const;
  // With the last numbers of those that have gone.
  std::string TextOfAll() const;

 private:
  MetricsPage Look() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(int64_t id);

  const MetricLabels common_;
  mutable Mutex mutex_;
  int64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Collect> all_ ABSL_GUARDED_BY(mutex_);
  MetricsPage gone_ ABSL_GUARDED_BY(mutex_){{}};
};

// `metrics` may be null: nobody asks.
inline Metrics::Registration AddTo(Metrics* metrics, Metrics::Collect collect) {
  return metrics == nullptr ? Metrics::Registration()
                            : metrics->Add(std::move(collect));
}

}  // namespace telegrad
