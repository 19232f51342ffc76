#include "trainer/checkpoint/cursor.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_fields.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

struct Count {
  const char* name;
  int64_t StoreStats::*of;
};
constexpr Count kCounts[] = {{"push_raw", &StoreStats::push_raw_bytes},
                             {"push_wire", &StoreStats::push_wire_bytes},
                             {"pull_raw", &StoreStats::pull_raw_bytes},
                             {"pull_wire", &StoreStats::pull_wire_bytes},
                             {"to_device", &StoreStats::to_device_bytes},
                             {"from_device", &StoreStats::from_device_bytes},
                             {"nonfinite", &StoreStats::num_nonfinite}};
// A file may say anything; sums over 4096 workers stay in 63 bits.
constexpr int64_t kMostCounted = int64_t{1} << 49;

// JSON has null for what is not finite.
double NumberOr(const Json& json, const char* name, double other) {
  const Json value = json.value(name, Json());
  return value.is_number() ? value.get<double>() : other;
}
int64_t CountOr(const Json& json, const char* name, int64_t other,
                int64_t most = kMostCounted) {
  const Json value = json.value(name, Json());
  const bool is_good = value.is_number_unsigned() &&
                       value.get<uint64_t>() <= static_cast<uint64_t>(most);
  return is_good ? value.get<int64_t>() : other;
}
int EpochOr(const Json& json, int other) {
  return static_cast<int>(CountOr(json, "epoch", other, INT_MAX));
}

// A long run has thousands of points, and a tree of them takes several times
// the memory of their text: each is written and read by itself.
void AppendPoint(std::string* text, const MetricPoint& point) {
  text->append(Json{{"epoch", point.epoch},
                    {"step", point.step},
                    {"seconds", point.seconds},
                    {"train_loss", point.train_loss},
                    {"train_accuracy", point.train_accuracy},
                    {"test_loss", point.test_loss},
                    {"test_accuracy", point.test_accuracy},
                    {"wire_bytes", point.wire_bytes}}
                   .dump());
}
MetricPoint PointOf(const Json& json) {
  return {.epoch = EpochOr(json, 0),
          .step = CountOr(json, "step", 0),
          .seconds = NumberOr(json, "seconds", 0),
          .train_loss = NumberOr(json, "train_loss", std::nan("")),
          .train_accuracy = NumberOr(json, "train_accuracy", 0),
          .test_loss = NumberOr(json, "test_loss", std::nan("")),
          .test_accuracy = NumberOr(json, "test_accuracy", -1),
          .wire_bytes = CountOr(json, "wire_bytes", 0)};
}

// The text's objects in its list of points go there, and out of what it
// returns.
Json ParseAllButPoints(const std::string& text,
                       std::vector<MetricPoint>& points) {
  if (IsNestedTooDeeply(text)) return Json::value_t::discarded;
  bool is_points = false;
  const auto keep = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::key && depth == 1) is_points = parsed == "points";
    const bool is_point = event == Event::object_end && depth == 2 && is_points;
    if (is_point) points.push_back(PointOf(parsed));
    return !is_point;
  };
  return Json::parse(text, keep, /*allow_exceptions=*/false);
}

}  // namespace

StoreStats Plus(StoreStats sum, const StoreStats& part, double times) {
  constexpr auto kMost = static_cast<double>(kMostCounted);
  for (const Count& each : kCounts) {
    const double added = times * static_cast<double>(part.*each.of);
    sum.*each.of += std::llround(std::min(added, kMost));
  }
  return sum;
}

std::string CursorText(const Cursor& cursor) {
  Json traffic;
  for (const Count& each : kCounts) {
    traffic[each.name] = cursor.traffic.*each.of;
  }
  std::string text = Json{{"step", cursor.step},
                          {"epoch", cursor.epoch},
                          {"batch", cursor.batch},
                          {"seconds", cursor.seconds},
                          {"comm_wait_s", cursor.comm_wait_s},
                          {"traffic", traffic},
                          {"num_skipped", cursor.num_skipped},
                          {"loss_scale", cursor.loss_scale.value},
                          {"num_good", cursor.loss_scale.num_good},
                          {"auto", cursor.auto_choice},
                          {"loss_sum", cursor.since_point.loss_sum},
                          {"num_correct", cursor.since_point.num_correct},
                          {"num_samples", cursor.since_point.num_samples}}
                         .dump();
  text.back() = ',';
  return absl::StrCat(text, "\"points\":[",
                      absl::StrJoin(cursor.points, ",", AppendPoint), "]}");
}

absl::StatusOr<Cursor> ParseCursor(const std::string& text) {
  Cursor cursor;
  const Json json = ParseAllButPoints(text, cursor.points);
  if (!json.is_object()) return absl::DataLossError("the cursor is no object");
  cursor.step = CountOr(json, "step", -1);
  cursor.epoch = EpochOr(json, -1);
  cursor.batch = CountOr(json, "batch", -1);
  cursor.seconds = NumberOr(json, "seconds", 0);
  cursor.comm_wait_s = NumberOr(json, "comm_wait_s", 0);
  cursor.num_skipped = CountOr(json, "num_skipped", 0);
  if (cursor.step < 0 || cursor.epoch < 0 || cursor.batch < 0) {
    return absl::DataLossError("the cursor lacks step, epoch or batch");
  }
  cursor.loss_scale.value = static_cast<float>(NumberOr(json, "loss_scale", 1));
  cursor.loss_scale.num_good = CountOr(json, "num_good", 0);
  cursor.since_point = {.loss_sum = NumberOr(json, "loss_sum", std::nan("")),
                        .num_correct = CountOr(json, "num_correct", 0),
                        .num_samples = CountOr(json, "num_samples", 0)};
  if (const auto choice = json.find("auto");
      choice != json.end() && choice->is_string()) {
    cursor.auto_choice = choice->get<std::string>();
  }
  const auto traffic = json.find("traffic");
  cursor.has_traffic = traffic != json.end() && traffic->is_object();
  for (const Count& each : kCounts) {
    if (!cursor.has_traffic) break;
    cursor.traffic.*each.of = CountOr(*traffic, each.name, 0);
  }
  if (const auto points = json.find("points");
      points != json.end() && !points->empty()) {
    return absl::DataLossError("a point is no object");
  }
  return cursor;
}

}  // namespace telegrad
