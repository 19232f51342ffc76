#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/output.h"
#include "kvstore/job/control/fatal_event.h"
#include "trainer/report/observer.h"

namespace telegrad {

// What a child process tells the launcher: lines over a pipe, each a letter, a
// space and the rest.
//   P epoch epochs batch batches speed accuracy    progress
//   L text                                          a line to show
//   M json                                          a MetricPoint
//   S json                                          the RunSummary
//   A address                                       the scheduler's address
//   K bytes                                         peak memory of the process
//   F json                                          its fatal line
// Who does not read, a launcher that is stopped, misses progress; for the rest
// this waits, a minute at most, for the last line half a second. Thread-safe.
class ReportPipe : public TrainObserver {
 public:
  explicit ReportPipe(int fd);
  void OnProgress(const Progress::State& state) override;
  void OnLine(const std::string& text) override;
  void OnSummary(const RunSummary& summary) override;
  void SendAddress(const std::string& address);
  void SendPeakMemory(int64_t bytes);
  void SendFatal(const FatalEvent& event);

 private:
  void Send(char kind, absl::string_view rest);
  const bool is_open_;
  Output output_;
};

// The launcher's end: feed bytes, whole lines go to the observer. Malformed
// lines are dropped; the sender is our own child.
class ReportReader {
 public:
  explicit ReportReader(TrainObserver* observer) : observer_(observer) {}
  void Feed(absl::string_view bytes);
  const std::string& address() const { return address_; }
  // What the process said when it ended early.
  const std::optional<FatalEvent>& fatal() const { return fatal_; }
  int64_t peak_memory_bytes() const { return peak_memory_bytes_; }

 private:
  void HandleLine(absl::string_view line);
  TrainObserver* const observer_;  // may be null
  std::string partial_;
  std::vector<MetricPoint> points_;
  std::string address_;
  int64_t peak_memory_bytes_ = 0;
  std::optional<FatalEvent> fatal_;
};

}  // namespace telegrad
