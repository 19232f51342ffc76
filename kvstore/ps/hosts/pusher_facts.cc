#include "kvstore/ps/hosts/pusher_facts.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/json_fields.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/ps/wire/json_fields.h"

namespace telegrad {
namespace {

using FactsJson = JsonFields::Json;

// What a text is of.
constexpr char kReports[] = "reports ";
constexpr char kTransport[] = "transport ";

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
                      {"push_bytes", each.push_bytes},
                      {"is_dense", each.is_dense ? 1u : 0u}});
    }
    texts.push_back(absl::StrCat(kReports, Dump(list)));
  }
  return texts;
}

absl::StatusOr<std::vector<TensorReport>> ReadReports(absl::string_view text) {
  const auto json = ParseJson<FactsJson>(text);
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
  texts.push_back(absl::StrCat(kTransport, store.transport_details()));
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
  if (!absl::ConsumePrefix(&text, kTransport)) return NoFacts();
  transport_details_ = std::string(text);
  return absl::OkStatus();
}

std::string PusherCodecs::transport_details() const {
  MutexLock lock(&mutex_);
  return transport_details_;
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

std::vector<TensorReport> PusherCodecs::Report() const {
  MutexLock lock(&mutex_);
  return reports_;
}

}  // namespace telegrad
