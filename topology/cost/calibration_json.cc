#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "topology/calibration.h"
#include "topology/cost/calibration_fields.h"
#include "topology/path.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFileBytes = size_t{4} << 20;
constexpr const char* kReplies[] = {"sum", "reencode", "dense"};
constexpr Confidence kConfidences[] = {
    Confidence::kMeasured, Confidence::kReported, Confidence::kInferred,
    Confidence::kAssumed};

absl::Status Bad(absl::string_view where, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("calibration: ", where, ": ", why));
}

// Reads the members of one JSON object; whoever asks for all of them can tell
// that none is left over.
class Members {
 public:
  Members(const Json& json, std::string where)
      : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) status_ = Bad(where_, "not an object");
  }

  const Json* Find(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto found = json_.find(name);
    if (found == json_.end()) return nullptr;
    ++num_read_;
    return &*found;
  }

  void Read(const char* name, double* value) {
    const Json* found = Find(name);
    if (found == nullptr) return;
    if (!found->is_number()) return Fail(name, "not a number");
    *value = found->get<double>();
  }

  void Read(const char* name, bool* value) {
    const Json* found = Find(name);
    if (found == nullptr) return;
    if (!found->is_boolean()) return Fail(name, "neither true nor false");
    *value = found->get<bool>();
  }

  void Read(const char* name, std::string* value) {
    const Json* found = Find(name);
    if (found == nullptr) return;
    if (!found->is_string()) return Fail(name, "not a string");
    *value = found->get<std::string>();
  }

  void Fail(const char* name, absl::string_view why) {
    if (status_.ok()) {
      status_ = Bad(where_, absl::StrCat(name, " is ", why));
    }
  }
  void Take(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // Call last: also refuses members that nobody asked for.
  absl::Status Finish() {
    if (status_.ok() && num_read_ != json_.size()) {
      status_ = Bad(where_, "a key that is not known");
    }
    return status_;
  }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
  size_t num_read_ = 0;
  absl::Status status_;
};

Json FigureToJson(const Figure& figure) {
  return {{"value", figure.value},
          {"spread", figure.spread},
          {"confidence", Name(figure.confidence)},
          {"reason", figure.reason}};
}

absl::Status ReadFigure(const Json& json, std::string where, Figure* figure) {
  Members members(json, std::move(where));
  members.Read("value", &figure->value);
  members.Read("spread", &figure->spread);
  members.Read("reason", &figure->reason);
  std::string word = Name(figure->confidence);
  members.Read("confidence", &word);
  bool found = false;
  for (const Confidence each : kConfidences) {
    if (word != Name(each)) continue;
    figure->confidence = each;
    found = true;
  }
  if (!found) {
    members.Fail("confidence", "not measured, reported, inferred or assumed");
  }
  return members.Finish();
}

void ReadFigureMember(Members& members, const char* name, Figure* figure) {
  const Json* found = members.Find(name);
  if (found == nullptr) return;
  members.Take(
      ReadFigure(*found, absl::StrCat(members.where(), " ", name), figure));
}

template <typename Entry>
void ReadFigures(Members& members, Entry& entry) {
  VisitFigures(entry, [&](const char* name, Figure& figure) {
    ReadFigureMember(members, name, &figure);
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

void ReadReplyBits(Members& members, std::vector<BitsForWorkers>* bits) {
  const Json* found = members.Find("reply_bits");
  if (found == nullptr) return;
  if (!found->is_array()) return members.Fail("reply_bits", "not an array");
  for (const Json& each : *found) {
    Members row(each, members.where() + " reply_bits");
    BitsForWorkers entry;
    double workers = 0;
    row.Read("max_workers", &workers);
    row.Read("bits", &entry.bits);
    if (!(workers >= 1 && workers <= 1e9)) {
      row.Fail("max_workers", "not 1 to 1000000000");
    } else {
      entry.max_workers = static_cast<int>(workers);
    }
    members.Take(row.Finish());
    bits->push_back(entry);
  }
}

absl::Status ReadEntry(const Json& json, CodecFigures* codec) {
  Members members(json, "a codec");
  std::string reply = "reencode";
  members.Read("name", &codec->name);
  members.Read("on_gpu", &codec->on_gpu);
  members.Read("is_lossy", &codec->is_lossy);
  members.Read("is_summable", &codec->is_summable);
  members.Read("reply", &reply);
  bool found = false;
  for (size_t i = 0; i < std::size(kReplies); ++i) {
    if (reply != kReplies[i]) continue;
    codec->reply = static_cast<Reply>(i);
    found = true;
  }
  if (!found) members.Fail("reply", "not sum, reencode or dense");
  members.Read("push_bits", &codec->push_bits);
  ReadReplyBits(members, &codec->reply_bits);
  ReadFigures(members, *codec);
  return members.Finish();
}

Json LinkToJson(const LinkFigures& link) {
  Json json = {{"name", link.name}};
  AddFigures(link, json);
  return json;
}

absl::Status ReadEntry(const Json& json, LinkFigures* link) {
  Members members(json, "a link");
  members.Read("name", &link->name);
  ReadFigures(members, *link);
  return members.Finish();
}

template <typename Entry>
void ReadEntries(Members& members, const char* name,
                 std::vector<Entry>* entries) {
  const Json* found = members.Find(name);
  if (found == nullptr) return;
  if (!found->is_array()) return members.Fail(name, "not an array");
  for (const Json& each : *found) {
    entries->emplace_back();
    members.Take(ReadEntry(each, &entries->back()));
  }
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
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) return Bad("the file", "is not JSON");
  Members members(json, "the file");
  std::string schema;
  members.Read("schema", &schema);
  if (schema != "telegrad-calibration-1") {
    members.Fail("schema", "not telegrad-calibration-1");
  }
  Calibration calibration;
  ReadFigures(members, calibration);
  ReadEntries(members, "codecs", &calibration.codecs);
  ReadEntries(members, "links", &calibration.links);
  RETURN_IF_ERROR(members.Finish());
  RETURN_IF_ERROR(CheckCalibration(calibration));
  return calibration;
}

absl::StatusOr<Calibration> LoadCalibration(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<int64_t>(text.size()));
  if (file.bad() || file.gcount() == 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the calibration ", path));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  absl::StatusOr<Calibration> read = CalibrationFromJson(text);
  if (read.ok()) return read;
  return absl::Status(read.status().code(),
                      absl::StrCat(path, ": ", read.status().message()));
}

}  // namespace telegrad
