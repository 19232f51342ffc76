#include "kvstore/job/control/fatal_event.h"

#include <nlohmann/json.hpp>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json_fields.h"

namespace telegrad {
namespace {

// Payloads of a status.
constexpr char kSeat[] = "telegrad/seat";
constexpr char kEpoch[] = "telegrad/epoch";

template <typename Number>
std::optional<Number> NumberOf(const absl::Status& status, const char* name) {
  Number number = 0;
  const auto text = status.GetPayload(name);
  if (!text.has_value() || !absl::SimpleAtoi(std::string(*text), &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::string FatalLine(const FatalEvent& event) {
  using Json = nlohmann::ordered_json;
  Json line = {{"event", "fatal"},
               {"code", static_cast<int>(event.code)},
               {"reason", ExitReason(event.code)},
               {"dead", event.dead},
               {"detect_ms", event.detect_ms},
               {"epoch", event.epoch},
               {"step", event.step},
               {"self", event.self},
               {"message", event.message}};
  const auto details = ParseJson<Json>(event.details_json);
  if (details.is_object()) {
    for (const auto& [name, value] : details.items()) {
      if (!line.contains(name)) line[name] = value;
    }
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status StatusOf(const FatalEvent& event) {
  absl::Status status =
      WithExitCode(event.code, absl::UnavailableError(event.message));
  if (event.seat >= 0) {
    status.SetPayload(kSeat, absl::Cord(absl::StrCat(event.seat)));
  }
  status.SetPayload(kEpoch, absl::Cord(absl::StrCat(event.epoch)));
  return status;
}

std::optional<int> SeatOf(const absl::Status& status) {
  return NumberOf<int>(status, kSeat);
}

uint64_t EpochOf(const absl::Status& status) {
  return NumberOf<uint64_t>(status, kEpoch).value_or(0);
}

}  // namespace telegrad
