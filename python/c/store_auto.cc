#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/job/path/data_path.h"
#include "python/c/bytes.h"
#include "python/c/store.h"
#include "topology/limits.h"

using telegrad::AutoCompression;
using telegrad::AutoOptions;
using telegrad::Decision;
using telegrad::StepTimes;
using telegrad::TensorReport;
using telegrad::WorkerGroup;
using telegrad::c::Give;
using telegrad::c::GiveBytes;

namespace {

using Json = nlohmann::ordered_json;

// Workers and servers on this machine, which share its cores.
int MembersHere(const WorkerGroup& group) {
  const telegrad::Membership& members = group.membership();
  const std::string& here =
      members.workers[static_cast<size_t>(members.self.rank)].host;
  int count = 0;
  for (const auto* all : {&members.workers, &members.servers}) {
    count += static_cast<int>(std::count_if(
        all->begin(), all->end(),
        [&here](const auto& member) { return member.host == here; }));
  }
  return count;
}

std::string JsonOf(const AutoCompression::Decisions& decisions, int64_t step) {
  Json all = Json::array();
  for (const Decision& each : decisions) {
    all.push_back({{"step", step}, {"choice", each.choice}, {"why", each.why}});
  }
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status CheckCall(telegrad_store* store, const void* other) {
  if (store == nullptr || other == nullptr) {
    return absl::InvalidArgumentError("store, decisions or choice is null");
  }
  return store->owner().Check();
}

}  // namespace

AutoOptions telegrad_store::AutoOptionsNow() const {
  AutoOptions options;
  options.speeds.compression = *auto_compression_;
  options.speeds.compression.packing =
      telegrad::ChoosePacking(auto_compression_->packing,
                              store_->group().data_path().link_bytes_per_s());
  options.speeds.codecs =
      telegrad::CodecsToMeasure(store_->codecs(), *auto_compression_);
  for (const TensorReport& report : store_->codecs().Report()) {
    options.speeds.num_elems += report.num_elems;
  }
  options.speeds.device = device_;
  options.speeds.cpus = telegrad::UsableCpus();
  options.threads = num_threads_;
  options.processes = MembersHere(store_->group());
  return options;
}

absl::Status telegrad_store::CheckAuto() const {
  if (auto_compression_.has_value() && !has_optimizer_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      has_optimizer_ ? "type 'auto' with the optimizer in the store, which "
                       "sends weights dense: keep it on the workers"
                     : "the type of this store is not 'auto'");
}

absl::StatusOr<std::string> telegrad_store::AfterStep(const StepTimes& times) {
  RETURN_IF_ERROR(CheckAuto());
  if (auto_ == nullptr) {
    auto_ = std::make_unique<AutoCompression>(*store_, AutoOptionsNow());
    ASSIGN_OR_RETURN(const AutoCompression::Decisions decisions,
                     auto_->Start());
    return JsonOf(decisions, 0);
  }
  ASSIGN_OR_RETURN(const AutoCompression::Decisions decisions,
                   auto_->AfterStep(times));
  return JsonOf(decisions, auto_->step());
}

absl::StatusOr<std::string> telegrad_store::SaveChoice() const {
  RETURN_IF_ERROR(CheckAuto());
  if (auto_ == nullptr) return "";
  return telegrad::ToJson(auto_->choice());
}

absl::Status telegrad_store::LoadChoice(absl::string_view text) {
  RETURN_IF_ERROR(CheckAuto());
  if (auto_ != nullptr) {
    return absl::FailedPreconditionError(
        "what 'auto' has chosen is loaded before the first step");
  }
  ASSIGN_OR_RETURN(const auto choice, telegrad::AutoChoiceFromJson(text));
  if (!choice.has_value()) return absl::OkStatus();
  auto resumed = std::make_unique<AutoCompression>(*store_, AutoOptionsNow());
  RETURN_IF_ERROR(resumed->Resume(*choice));
  auto_ = std::move(resumed);
  return absl::OkStatus();
}

extern "C" {

int32_t telegrad_store_note_step(telegrad_store* store, double step_s,
                                 double wait_s, telegrad_status* status) {
  absl::Status result = CheckCall(store, store);
  if (result.ok() && !(step_s >= 0 && wait_s >= 0 && step_s + wait_s < 1e300)) {
    result = absl::InvalidArgumentError(absl::StrCat(
        "step_s=", step_s, ", wait_s=", wait_s, ": seconds of 0 or more"));
  }
  if (result.ok()) store->metrics().AfterStep(step_s, wait_s);
  return Give(result, status);
}

int32_t telegrad_store_after_step(telegrad_store* store, double step_s,
                                  double exchange_s, double wait_s,
                                  telegrad_bytes** decisions,
                                  telegrad_status* status) {
  if (const absl::Status wrong = CheckCall(store, decisions); !wrong.ok()) {
    return Give(wrong, status);
  }
  return GiveBytes(
      store->AfterStep(
          {.step = step_s, .exchange = exchange_s, .wait = wait_s}),
      store->verdict(), decisions, status);
}

int32_t telegrad_store_save_choice(telegrad_store* store,
                                   telegrad_bytes** choice,
                                   telegrad_status* status) {
  if (const absl::Status wrong = CheckCall(store, choice); !wrong.ok()) {
    return Give(wrong, status);
  }
  return GiveBytes(store->SaveChoice(), store->verdict(), choice, status);
}

int32_t telegrad_store_load_choice(telegrad_store* store, const void* choice,
                                   uint64_t num_bytes,
                                   telegrad_status* status) {
  if (const absl::Status wrong = CheckCall(store, store); !wrong.ok()) {
    return Give(wrong, status);
  }
  const absl::string_view text(static_cast<const char*>(choice),
                               choice == nullptr ? 0 : num_bytes);
  return Give(store->LoadChoice(text), store->verdict(), status);
}

}  // extern "C"
