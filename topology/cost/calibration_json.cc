#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/input_file.h"
#include "base/json_fields.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "topology/calibration.h"
#include "topology/cost/calibration_fields.h"
#include "topology/path.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFileBytes = size_t{4} << 20;
constexpr const char* kReplies[] = {"sum", "reencode", "dense"};

absl::Status Bad(absl::string_view where, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("calibration: ", where, ": ", why));
}

Json FigureToJson(const Figure& figure) {
  return {{"value", figure.value},
          {"spread", figure.spread},
          {"confidence", Name(figure.confidence)},
          {"reason", figure.reason}};
}

template <typename Entry>
void ReadFigures(JsonFields& json, Entry& entry) {
  VisitFigures(entry, [&](const char* name, Figure& figure) {
    if (!json.Has(name)) return;
    JsonFields fields = json.Object(name);
    fields.Optional("value", figure.value);
    fields.Optional("spread", figure.spread);
    fields.Optional("reason", figure.reason);
    if (fields.Has("confidence")) {
      fields.ReadName("confidence", figure.confidence, Confidence::kAssumed);
    }
    fields.RefuseOthers();
  });
}

template <typename Entry>
void AddFigures(const Entry& entry, Json& json) {
  VisitFigures(entry, [&](const char* name, const Figure& figure) {
    json[name] = FigureToJson(figure);
  });
}

Json CodecToJson(const CodecFigures& codec) {
  Json json = {{"name", codec.name},
               {"on_gpu", codec.on_gpu},
               {"is_lossy", codec.is_lossy},
               {"is_summable", codec.is_summable},
               {"reply", kReplies[static_cast<size_t>(codec.reply)]},
               {"push_bits", codec.push_bits},
               {"reply_bits", Json::array()}};
  for (const BitsForWorkers& each : codec.reply_bits) {
    json["reply_bits"].push_back(
        {{"max_workers", each.max_workers}, {"bits", each.bits}});
  }
  AddFigures(codec, json);
  return json;
}

void ReadEntry(JsonFields& json, CodecFigures& codec) {
  json.Optional("name", codec.name);
  json.Optional("on_gpu", codec.on_gpu);
  json.Optional("is_lossy", codec.is_lossy);
  json.Optional("is_summable", codec.is_summable);
  if (json.Has("reply")) {
    codec.reply = static_cast<Reply>(json.Word("reply", kReplies));
  }
  json.Optional("push_bits", codec.push_bits);
  if (json.Has("reply_bits")) {
    json.Each("reply_bits", JsonFields::kAny, [&](JsonFields& row) {
      BitsForWorkers& entry = codec.reply_bits.emplace_back();
      entry.max_workers = row.Integer("max_workers", 1, 1'000'000'000);
      row.Optional("bits", entry.bits);
      row.RefuseOthers();
    });
  }
}

Json LinkToJson(const LinkFigures& link) {
  Json json = {{"name", link.name}};
  AddFigures(link, json);
  return json;
}

void ReadEntry(JsonFields& json, LinkFigures& link) {
  json.Optional("name", link.name);
}

template <typename Entry>
void ReadEntries(JsonFields& json, const char* name,
                 std::vector<Entry>& entries) {
  if (!json.Has(name)) return;
  json.Each(name, JsonFields::kAny, [&](JsonFields& each) {
    Entry& entry = entries.emplace_back();
    ReadEntry(each, entry);
    ReadFigures(each, entry);
    each.RefuseOthers();
  });
}

}  // namespace

std::string CalibrationToJson(const Calibration& calibration, int indent) {
  Json json = {{"schema", "telegrad-calibration-1"}};
  AddFigures(calibration, json);
  json["codecs"] = Json::array();
  json["links"] = Json::array();
  for (const CodecFigures& each : calibration.codecs) {
    json["codecs"].push_back(CodecToJson(each));
  }
  for (const LinkFigures& each : calibration.links) {
    json["links"].push_back(LinkToJson(each));
  }
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Calibration> CalibrationFromJson(absl::string_view text) {
  if (text.size() > kMaxFileBytes) {
    return Bad("the file", "has more than 4 MiB");
  }
  const auto json = ParseJson(text);
  if (!json.is_object()) return Bad("the file", "is not a JSON object");
  JsonFields fields(json, "calibration: $0 $1");
  if (fields.Text("schema") != "telegrad-calibration-1") {
    fields.Fail("schema", "is not telegrad-calibration-1");
  }
  Calibration calibration;
  ReadFigures(fields, calibration);
  ReadEntries(fields, "codecs", calibration.codecs);
  ReadEntries(fields, "links", calibration.links);
  fields.RefuseOthers();
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(CheckCalibration(calibration));
  return calibration;
}

absl::StatusOr<Calibration> LoadCalibration(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  return OfFlag(path, text.ok() ? CalibrationFromJson(*text)
                                : absl::StatusOr<Calibration>(text.status()));
}

}  // namespace telegrad
