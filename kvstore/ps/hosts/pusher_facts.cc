#include "kvstore/ps/hosts/pusher_facts.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/ps/wire/json_fields.h"
#include "kvstore/store_link.h"

namespace telegrad {
namespace {

using FactsJson = JsonFields::Json;

// What a text is of.
constexpr char kReports[] = "reports ";
constexpr char kFacts[] = "facts ";

constexpr size_t kReportsInAText = 256;  // each has less than 4 KiB

// Texts of a report that may be long are cut; people read them.
constexpr size_t kMaxReportText = 700;

FactsJson Cut(const std::string& text) {
  return text.substr(0, kMaxReportText);
}

std::string Dump(const FactsJson& json) {
  return json.dump(-1, ' ', false, FactsJson::error_handler_t::replace);
}

absl::Status NoFacts() {
  return absl::InvalidArgumentError(
      "the worker that pushes for this host says nothing of use of its store");
}

std::string ToText(const PusherFacts& facts) {
  return Dump({{"packing", static_cast<unsigned>(facts.packing)},
               {"load", facts.load},
               {"identity", facts.identity},
               {"transport", facts.transport_details}});
}

absl::StatusOr<PusherFacts> ReadPusherFacts(absl::string_view text) {
  const auto json = FactsJson::parse(text.begin(), text.end(), nullptr, false);
  JsonFields fields(json, kJobConfigFields);
  PusherFacts facts;
  facts.packing = static_cast<PackingMode>(fields.Integer("packing", 0u, 2u));
  facts.load = fields.Number("load");
  facts.identity = fields.Text("identity");
  facts.transport_details = fields.Text("transport");
  if (!fields.status().ok()) return NoFacts();
  return facts;
}

std::vector<std::string> ReportTexts(const std::vector<TensorReport>& reports,
                                     size_t first) {
  std::vector<std::string> texts;
  for (size_t begin = first; begin < reports.size(); begin += kReportsInAText) {
    FactsJson list = FactsJson::array();
    const size_t end = std::min(begin + kReportsInAText, reports.size());
    for (size_t i = begin; i < end; ++i) {
      const TensorReport& each = reports[i];
      list.push_back({{"name", each.name},
                      {"elems", each.num_elems},
                      {"codec", Cut(each.codec)},
                      {"setting", Cut(each.setting)},
                      {"has_rule", each.has_rule ? 1u : 0u},
                      {"reason", Cut(each.reason)},
                      {"reply", Cut(each.reply)},
                      {"packing", Cut(each.packing)},
                      {"push_bytes", each.push_bytes},
                      {"is_dense", each.is_dense ? 1u : 0u}});
    }
    texts.push_back(absl::StrCat(kReports, Dump(list)));
  }
  return texts;
}

absl::StatusOr<std::vector<TensorReport>> ReadReports(absl::string_view text) {
  const FactsJson json =
      FactsJson::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_array()) return NoFacts();
  std::vector<TensorReport> reports;
  for (const FactsJson& each : json) {
    JsonFields fields(each, kJobConfigFields);
    TensorReport& report = reports.emplace_back();
    report.name = fields.Text("name");
    report.num_elems = fields.Integer<uint64_t>("elems", 0, kMaxTensorElems);
    report.codec = fields.Text("codec");
    report.setting = fields.Text("setting");
    report.has_rule = fields.Integer("has_rule", 0, 1) > 0;
    report.reason = fields.Text("reason");
    report.reply = fields.Text("reply");
    report.packing = fields.Text("packing");
    report.push_bytes =
        fields.Integer<uint64_t>("push_bytes", 0, 64 * kMaxTensorElems);
    report.is_dense = fields.Integer("is_dense", 0, 1) > 0;
    if (!fields.status().ok()) return NoFacts();
  }
  return reports;
}

}  // namespace

std::vector<std::string> PusherTexts(KVStore& store, size_t num_tensors) {
  const std::vector<TensorReport> reports = store.codecs().Report();
  std::vector<std::string> texts =
      ReportTexts(reports, reports.size() - num_tensors);
  const StoreLink& link = *store.link();
  texts.push_back(absl::StrCat(
      kFacts,
      ToText(PusherFacts{.packing = store.codecs().packing(),
                         .load = link.load(),
                         .identity = link.identity(),
                         .transport_details = link.transport_details()})));
  return texts;
}

absl::Status PusherCodecs::Hear(absl::string_view text) {
  MutexLock lock(&mutex_);
  if (absl::ConsumePrefix(&text, kReports)) {
    ASSIGN_OR_RETURN(const std::vector<TensorReport> reports,
                     ReadReports(text));
    reports_.insert(reports_.end(), reports.begin(), reports.end());
    return absl::OkStatus();
  }
  absl::ConsumePrefix(&text, kFacts);
  ASSIGN_OR_RETURN(facts_, ReadPusherFacts(text));
  return absl::OkStatus();
}

PusherFacts PusherCodecs::facts() const {
  MutexLock lock(&mutex_);
  return facts_;
}

void PusherCodecs::SetNumCodecs(int count) {
  MutexLock lock(&mutex_);
  num_codecs_ = count;
}

absl::Status PusherCodecs::SetCodec(Key key, int codec) {
  MutexLock lock(&mutex_);
  if (key >= reports_.size() || codec < kDenseCodec || codec >= num_codecs_) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", key, " of ", reports_.size(), " to codec ", codec,
                     " of ", num_codecs_));
  }
  reports_[key].is_dense = codec == kDenseCodec;
  return absl::OkStatus();
}

PackingMode PusherCodecs::packing() const { return facts().packing; }

absl::Status PusherCodecs::SetPacking(PackingMode mode) {
  MutexLock lock(&mutex_);
  if (facts_.packing != PackingMode::kAuto || mode == PackingMode::kAuto) {
    return absl::FailedPreconditionError(
        absl::StrCat("SetPacking to ", ToString(mode), " of a store with ",
                     ToString(facts_.packing)));
  }
  facts_.packing = mode;
  return absl::OkStatus();
}

std::vector<TensorReport> PusherCodecs::Report() const {
  MutexLock lock(&mutex_);
  return reports_;
}

}  // namespace telegrad
