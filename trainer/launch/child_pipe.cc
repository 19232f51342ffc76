#include "trainer/launch/child_pipe.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json_fields.h"

namespace telegrad {
namespace {

constexpr Duration kUntilRead = std::chrono::minutes(1);
constexpr Duration kUntilSaid = std::chrono::milliseconds(500);

// The inverse of FatalLine.
std::optional<FatalEvent> FatalEventFromLine(absl::string_view text) {
  const auto line = ParseJson(text);
  JsonFields fields(line, "$0 $1");
  FatalEvent event{
      .code = static_cast<ExitCode>(fields.Integer("code", 0, 255)),
      .message = fields.Text("message"),
      .dead = fields.Texts("dead"),
      .detect_ms = fields.Integer<int64_t>("detect_ms"),
      .self = fields.Text("self"),
      .epoch = fields.Integer<uint64_t>("epoch"),
      .step = fields.Integer<int64_t>("step")};
  if (!fields.status().ok()) return std::nullopt;
  event.details_json = line.dump();  // names that FatalLine has are left out
  return event;
}

}  // namespace

ReportPipe::ReportPipe(int fd) : is_open_(fd >= 0), output_(fd) {}

void ReportPipe::Send(char kind, absl::string_view rest) {
  if (!is_open_) return;
  output_.Write(absl::StrCat(absl::string_view(&kind, 1), " ", rest, "\n"));
}

void ReportPipe::OnProgress(const Progress::State& state) {
  if (is_open_ && output_.is_behind()) return;
  Send('P', absl::StrCat(state.epoch, " ", state.num_epochs, " ", state.batch,
                         " ", state.num_batches, " ", state.samples_per_s, " ",
                         state.accuracy, " ", state.is_between ? 1 : 0, " ",
                         state.evaluated));
}

void ReportPipe::OnLine(const std::string& text) { Send('L', text); }

void ReportPipe::OnSummary(const RunSummary& summary) {
  for (const MetricPoint& point : summary.points) {
    Send('M', ToJson(point, summary.setting, summary.seed));
  }
  Send('S', ToJson(summary));
  output_.Flush(kUntilRead);
}

void ReportPipe::SendAddress(const std::string& address) {
  Send('A', address);
  output_.Flush(kUntilRead);
}

void ReportPipe::SendPeakMemory(int64_t bytes) {
  Send('K', absl::StrCat(bytes));
  output_.Flush(kUntilRead);
}

void ReportPipe::SendFatal(const FatalEvent& event) {
  Send('F', FatalLine(event));
  output_.Flush(kUntilSaid);
}

void ReportReader::Feed(absl::string_view bytes) {
  absl::StrAppend(&partial_, bytes);
  size_t begin = 0;
  for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    HandleLine(absl::string_view(partial_).substr(begin, end - begin));
  }
  partial_.erase(0, begin);
}

void ReportReader::HandleLine(absl::string_view line) {
  if (line.size() < 2) return;
  const absl::string_view rest = line.substr(2);
  if (line[0] == 'A') address_ = std::string(rest);
  if (line[0] == 'K' && !absl::SimpleAtoi(rest, &peak_memory_bytes_)) {
    peak_memory_bytes_ = 0;
  }
  if (line[0] == 'F') fatal_ = FatalEventFromLine(rest);
  if (line[0] == 'M') {
    if (auto point = MetricPointFromJson(rest); point.ok()) {
      points_.push_back(*point);
    }
  }
  if (observer_ == nullptr) return;
  if (line[0] == 'L') observer_->OnLine(std::string(rest));
  if (line[0] == 'S') {
    if (auto summary = RunSummaryFromJson(rest); summary.ok()) {
      summary->points = std::move(points_);
      observer_->OnSummary(*summary);
    }
  }
  if (line[0] != 'P') return;
  Progress::State state;
  int is_between = 0;
  if (std::sscanf(std::string(rest).c_str(), "%d %d %ld %ld %lf %lf %d %lf",
                  &state.epoch, &state.num_epochs, &state.batch,
                  &state.num_batches, &state.samples_per_s, &state.accuracy,
                  &is_between, &state.evaluated) == 8) {
    state.is_between = is_between != 0;
    observer_->OnProgress(state);
  }
}

}  // namespace telegrad
