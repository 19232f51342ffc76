#include "base/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

constexpr Metric kLeftOut{"telegrad_series_left_out", MetricType::kGauge,
                          "series beyond the most that a process shows"};

const char* NameOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

// As people write it: not 5e-04.
std::string BoundText(double bound) {
  char text[32];
  const auto end =
      std::to_chars(text, text + sizeof(text), bound, std::chars_format::fixed);
  return std::string(text, end.ptr);
}

// Labels come from names of tensors, hosts and codecs, which may be anything.
std::string Escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text;
}

}  // namespace

void DurationHistogram::Add(Duration took) {
  const double seconds = ToSeconds(took);
  const auto bucket =
      std::lower_bound(kBounds.begin(), kBounds.end(), seconds) -
      kBounds.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(took.count(), std::memory_order_relaxed);
}

std::string MetricsPage::LabelsText(const MetricLabels& labels) const {
  std::string text;
  for (const MetricLabels* part : {&common_, &scope_, &labels}) {
    for (const auto& [name, value] : *part) {
      absl::StrAppend(&text, text.empty() ? "" : ",", name, "=\"",
                      Escaped(value), "\"");
    }
  }
  return text;
}

void MetricsPage::AddLine(const Metric& metric, absl::string_view suffix,
                          const std::string& labels, double value) {
  AddSeries(metric,
            absl::StrCat(metric.name, suffix, labels.empty() ? "" : "{", labels,
                         labels.empty() ? "" : "}"),
            NumberText(value));
}

void MetricsPage::AddSeries(const Metric& metric, const std::string& series,
                            std::string value) {
  if (series_.contains(series)) return;
  if (series_.size() >= kMostSeries) {
    ++num_left_out_;
    return;
  }
  series_.insert(series);
  Family& family = families_[metric.name];
  family.metric = &metric;
  family.values.emplace_back(series, std::move(value));
}

void MetricsPage::Take(const MetricsPage& other) {
  for (const auto& [name, family] : other.families_) {
    for (const auto& [series, value] : family.values) {
      AddSeries(*family.metric, series, value);
    }
  }
}

void MetricsPage::Add(const Metric& metric, double value,
                      const MetricLabels& labels) {
  AddLine(metric, "", LabelsText(labels), value);
}

void MetricsPage::Add(const Metric& metric, const DurationHistogram& durations,
                      const MetricLabels& labels) {
  constexpr auto& kBounds = DurationHistogram::kBounds;
  if (series_.size() + kBounds.size() + 3 > kMostSeries) {  // none or all
    num_left_out_ += kBounds.size() + 3;
    return;
  }
  const std::string text = LabelsText(labels);
  int64_t sum = 0;
  for (size_t i = 0; i <= kBounds.size(); ++i) {
    sum += durations.count(i);
    const std::string bound =
        i < kBounds.size() ? BoundText(kBounds[i]) : "+Inf";
    AddLine(metric, "_bucket",
            absl::StrCat(text, text.empty() ? "" : ",", "le=\"", bound, "\""),
            static_cast<double>(sum));
  }
  AddLine(metric, "_sum", text, durations.sum_s());
  AddLine(metric, "_count", text, static_cast<double>(sum));
}

std::string MetricsPage::Text() const {
  std::string text;
  const auto append = [&text](const Metric& metric) {
    absl::StrAppend(&text, "# HELP ", metric.name, " ", metric.help,
                    "\n# TYPE ", metric.name, " ", NameOf(metric.type), "\n");
  };
  for (const auto& [name, family] : families_) {
    append(*family.metric);
    for (const auto& [series, value] : family.values) {
      absl::StrAppend(&text, series, " ", value, "\n");
    }
  }
  append(kLeftOut);
  absl::StrAppend(&text, kLeftOut.name, " ", num_left_out_, "\n");
  return text;
}

Metrics::Registration& Metrics::Registration::operator=(
    Registration&& other) noexcept {
  std::swap(metrics_, other.metrics_);
  std::swap(id_, other.id_);
  return *this;
}

Metrics::Registration::~Registration() {
  if (metrics_ != nullptr) metrics_->Forget(id_);
}

Metrics::Registration Metrics::Add(Collect collect) {
  MutexLock lock(&mutex_);
  all_[++last_id_] = std::move(collect);
  return {this, last_id_};
}

void Metrics::Forget(int64_t id) {
  MutexLock lock(&mutex_);
  MetricsPage page(common_);
  const auto found = all_.find(id);
  found->second(page);
  page.Take(gone_);
  gone_ = std::move(page);
  all_.erase(found);
}

MetricsPage Metrics::Look() const {
  MetricsPage page(common_);
  for (const auto& [id, collect] : all_) {
    page.SetScope({});
    collect(page);
  }
  return page;
}

std::string Metrics::Text() const {
  MutexLock lock(&mutex_);
  return Look().Text();
}

std::string Metrics::TextOfAll() const {
  MutexLock lock(&mutex_);
  MetricsPage page = Look();
  page.Take(gone_);
  return page.Text();
}

}  // namespace telegrad
