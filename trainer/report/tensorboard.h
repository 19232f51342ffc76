#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/socket.h"

namespace telegrad {

struct MetricPoint;  // trainer/report/results.h

// TensorFlow's records and events, as TensorBoard reads them.
namespace event_file {

using Scalars = std::vector<std::pair<std::string, double>>;

// "brain.Event:2", which a file begins with.
std::string FirstRecord(double wall_time);
std::string Record(double wall_time, int64_t step, const Scalars& scalars);

}  // namespace event_file

// A run's event file, in a folder of its own. What cannot be written is said
// once and left out. One thread.
class TensorBoard {
 public:
  // Makes the folder where it is absent.
  static absl::StatusOr<std::unique_ptr<TensorBoard>> Open(
      const std::string& folder);

  void Add(int64_t step, const event_file::Scalars& scalars);
  // What a training is followed by; and by the test set, where that is due.
  void Add(const MetricPoint& point, double samples_per_s);
  void AddTest(int64_t step, double accuracy, double loss);

 private:
  explicit TensorBoard(std::string path) : path_(std::move(path)) {}
  void Write(absl::string_view record);

  const std::string path_;
  UniqueFd file_;
};

}  // namespace telegrad
