#include "kvstore/job/control/fatal_event.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/json_fields.h"

namespace telegrad {

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

}  // namespace telegrad
