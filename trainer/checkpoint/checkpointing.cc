#include "trainer/checkpoint/checkpointing.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/json_fields.h"
#include "base/status_macros.h"
#include "kvstore/job/control/elastic.h"
#include "kvstore/job/path/gather_numbers.h"
#include "trainer/checkpoint/checkpoint_part.h"
#include "trainer/flags/checkpoint_flags.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

constexpr int kMostFailures = 3;  // in a row
// In place of a manifest.
constexpr char kEnd[] = "no more";
constexpr char kAnew[] = "none";
constexpr uint64_t kMostCursorBytes = uint64_t{64} << 20;

// The value of a fact that a checkpoint from before there was such a fact has;
// null: it may be any.
const char* FactBefore(absl::string_view name) {
  if (name == "dtype") return "float32";
  return name == "local-fragments" ? "1" : nullptr;
}

absl::Status Mismatch(absl::string_view what) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(what));
}

// What a resumed run must have alike and flags say: first what is settled from
// several of them, or written in several ways.
Facts FactsOfFlags(const TrainOptions& options, const Setting& setting,
                   uint64_t seed) {
  Facts facts = {
      {"codec", setting.name},
      {"allowed codecs",
       setting.is_auto ? absl::StrJoin(setting.compression.types(), ",") : ""},
      {"data", options.benchmark ? "synthetic" : options.data},
      {"loss-scale", options.has_loss_scale() ? options.loss_scale : ""},
      {"min-bytes", absl::StrCat(setting.compression.min_bytes)},
      {"update-on", ToString(setting.update_on)},
      {"seed", absl::StrCat(seed)},
      {"random-crop", absl::StrCat(options.pad_size)},
      {"emulated-servers", absl::StrCat(options.laboratory.emulated_servers)}};
  // One is above by another name, MakeFacts has the others.
  std::set<std::string> known = {"allow", "kv-store", "devices"};
  for (const auto& [name, value] : facts) known.insert(name);
  for (const auto& [flag, value] : options.laboratory.facts) {
    const std::string name(
        absl::StripPrefix(absl::StripPrefix(flag, "--"), "gc-"));
    if (GroupOf(flag) == FlagGroup::kResults && !known.contains(name)) {
      facts.emplace_back(name, value);
    }
  }
  return facts;
}

bool IsNumberOfMembers(absl::string_view fact) {
  return fact == "workers" || fact == "servers";
}

// Whether all are the same, but where `reshards` for numbers of members, so
// that an epoch has others of batches: `differs` says whether these are.
absl::Status CheckFacts(const Facts& saved, const Facts& now, bool reshards,
                        bool* differs) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : now) {
    const auto found = std::find_if(
        saved.begin(), saved.end(),
        [&name = name](const auto& each) { return each.first == name; });
    const char* const other = FactBefore(name);
    if (found == saved.end() && other == nullptr) continue;
    const std::string before = found != saved.end() ? found->second : other;
    if (before == value || (reshards && name == "num-batches")) continue;
    const bool is_number = IsNumberOfMembers(name);
    *differs |= is_number;
    if (is_number && reshards) continue;
    texts.push_back(absl::StrCat(
        name, " '", absl::Utf8SafeCEscape(before), "', this run '", value, "'",
        is_number ? "; --reshard-residuals sum or drop goes on with others"
                  : ""));
  }
  if (texts.empty()) return absl::OkStatus();
  return Mismatch(absl::StrCat("--resume: the checkpoint has ",
                               absl::StrJoin(texts, "; "),
                               "; give the same, or another --checkpoint"));
}

absl::StatusOr<OpenedPart> OpenPart(const std::string& path) {
  OpenedPart open;
  ASSIGN_OR_RETURN(open.reader, PartReader::Open(path));
  ASSIGN_OR_RETURN(const PartReader::Field field, open.reader->Next());
  if (field.name != "cursor" || field.size > kMostCursorBytes) {
    return absl::DataLossError("a part does not begin with its cursor");
  }
  std::string text(static_cast<size_t>(field.size), '\0');
  RETURN_IF_ERROR(open.reader->Read(text.data(), text.size()));
  ASSIGN_OR_RETURN(open.cursor, ParseCursor(text));
  return open;
}

sigset_t CheckpointSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return set;
}

// Whether it came since this was last asked.
bool TakeSignal() {
  const sigset_t set = CheckpointSignal();
  const timespec at_once{};
  return sigtimedwait(&set, nullptr, &at_once) == SIGUSR1;
}

}  // namespace

void HoldCheckpointSignal() {
  const sigset_t set = CheckpointSignal();
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

absl::Status CheckCheckpointFolder(const TrainOptions& options,
                                   bool starts_members) {
  const CheckpointFolder folder(options.checkpoint);
  absl::Status last = absl::NotFoundError(
      absl::StrCat("--resume: no checkpoint in ", options.checkpoint));
  for (const int64_t step : folder.Steps()) {
    if (!options.resume) {
      return absl::InvalidArgumentError(
          absl::StrCat("--checkpoint ", options.checkpoint,
                       " has checkpoints; --resume goes on from them, another "
                       "folder begins anew"));
    }
    const absl::StatusOr<Manifest> manifest = folder.ReadManifest(step);
    bool differs = false;
    if (manifest.ok()) {
      Facts now = FactsOfFlags(options, options.settings[0], options.seeds[0]);
      if (starts_members && (options.servers > 0 || options.hosts_parts)) {
        now.emplace_back("workers", absl::StrCat(options.workers));
      }
      if (starts_members && options.servers > 0) {
        now.emplace_back("servers", absl::StrCat(options.servers));
      }
      RETURN_IF_ERROR(CheckFacts(manifest->facts, now,
                                 !options.reshard_residuals.empty(), &differs));
      // A part that cannot be read is passed over later.
      const auto part = OpenPart(folder.PartPath(step, 0));
      return part.ok() ? CheckPlace(part->cursor, options, part->cursor.batch)
                       : absl::OkStatus();
    }
    last = absl::NotFoundError(absl::StrCat("--resume: no whole checkpoint: ",
                                            manifest.status().message()));
  }
  return options.resume && !options.may_begin_anew
             ? WithExitCode(ExitCode::kNoCheckpoint, last)
             : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<HeldFolder>> HoldCheckpointFolder(
    const TrainOptions& options, bool starts_members) {
  if (options.checkpoint.empty()) return nullptr;
  ASSIGN_OR_RETURN(std::unique_ptr<HeldFolder> held,
                   HeldFolder::Take("--checkpoint", options.checkpoint));
  RETURN_IF_ERROR(CheckCheckpointFolder(options, starts_members));
  return held;
}

absl::Status CheckPlace(const Cursor& cursor, const TrainOptions& options,
                        int64_t num_batches) {
  const int num_epochs = options.num_epochs;
  if (cursor.epoch > num_epochs ||
      (cursor.epoch == num_epochs && cursor.batch > 0)) {
    return Mismatch(absl::StrCat(
        "--resume: the checkpoint has ", cursor.epoch, " whole epochs and ",
        cursor.batch, " batches, this run --num-epochs ", num_epochs));
  }
  if (cursor.batch <= num_batches) return absl::OkStatus();
  return Mismatch(absl::StrCat("--resume: the checkpoint is behind batch ",
                               cursor.batch, " of an epoch, this run has ",
                               num_batches, " in one"));
}

absl::Status Checkpointing::Hold() {
  // Who has started this process holds it already.
  if (context_.store.group().rank() > 0 ||
      !context_.options.internal_role.empty()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(held_, HoldCheckpointFolder(context_.options, false));
  return absl::OkStatus();
}

bool Checkpointing::IsDueAfterStep(int64_t step) const {
  const auto interval =
      ParseCheckpointInterval(context_.options.checkpoint_every);
  const TrainOptions& options = context_.options;
  const bool may_differ = options.elastic.min > 0 && options.local_steps > 0 &&
                          step % options.local_steps != 0;
  return !options.checkpoint.empty() && interval.ok() &&
         ((is_asked_for_ && !may_differ) ||
          (interval->steps > 0 && step % interval->steps == 0));
}

bool Checkpointing::IsDueAfterEpoch(int epoch) const {
  const auto interval =
      ParseCheckpointInterval(context_.options.checkpoint_every);
  return !context_.options.checkpoint.empty() && interval.ok() &&
         interval->epochs > 0 && (epoch + 1) % interval->epochs == 0;
}

absl::Status Checkpointing::AskAfterStep(int64_t step) {
  if (context_.options.checkpoint.empty() || step < next_question_) {
    return absl::OkStatus();
  }
  const TimePoint now = Clock::now();
  const int64_t steps = step - std::exchange(last_question_.step, step);
  const bool is_signalled = TakeSignal();
  double asked = is_signalled || context_.store.group().Newcomers() > 0 ? 1 : 0;
  double seconds = ToSeconds(now - std::exchange(last_question_.time, now)) /
                   static_cast<double>(steps);
  RETURN_IF_ERROR(GatherSlowest(context_.store.group(), "checkpoint asked for",
                                {{{.value = &asked}, {.value = &seconds}}}));
  is_asked_for_ |= asked > 0;
  // Steps can become longer.
  next_question_ = step + std::clamp<int64_t>(
                              static_cast<int64_t>(1 / std::max(seconds, 1e-6)),
                              1, 2 * steps);
  return absl::OkStatus();
}

bool Checkpointing::IsOnServer() const {
  return context_.setting.update_on == UpdateOn::kServer &&
         context_.store.states() != nullptr;
}

// All that residuals and scales are of, too.
Facts Checkpointing::MakeFacts() const {
  const TrainOptions& options = context_.options;
  const WorkerGroup& group = context_.store.group();
  Facts facts = FactsOfFlags(options, context_.setting, context_.seed);
  const Facts others = {
      {"kv-store", context_.store.traits().type},
      {"workers", absl::StrCat(group.num_workers())},
      {"servers", absl::StrCat(group.num_servers())},
      {"devices", absl::StrCat(replicas_.size())},
      {"parameters", absl::StrCat(replicas_[0].network->parameters().size())}};
  facts.insert(facts.end(), others.begin(), others.end());
  return facts;
}

absl::StatusOr<std::vector<std::string>> Checkpointing::Share(
    const char* name, const absl::StatusOr<std::string>& mine) const {
  const Json payload = {
      mine.ok(), mine.ok() ? *mine : std::string(mine.status().message())};
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      context_.store.group().Gather(
          name, payload.dump(-1, ' ', false, Json::error_handler_t::replace)));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Json part = ParseJson(all[rank]);
    if (!part.is_array() || part.size() != 2 || !part[0].is_boolean() ||
        !part[1].is_string()) {
      return absl::InternalError(absl::StrCat("worker/", rank, ": malformed"));
    }
    texts.push_back(part[1].get<std::string>());
    if (part[0].get<bool>()) continue;
    return absl::AbortedError(
        absl::StrCat("worker/", rank, ": ", texts.back()));
  }
  return texts;
}

absl::StatusOr<std::string> Checkpointing::WritePart(
    const std::string& folder, const Cursor& cursor,
    const std::string& optimizer) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                   PartWriter::Create(CheckpointFolder::PartPath(
                       folder, context_.store.group().rank())));
  RETURN_IF_ERROR(writer->Add("cursor", CursorText(cursor)));
  RETURN_IF_ERROR(telegrad::WritePart(part(), optimizer, *writer));
  return writer->Finish();
}

absl::StatusOr<bool> Checkpointing::SaveOnce(const Cursor& cursor) {
  const bool is_first = context_.store.group().rank() == 0;
  ASSIGN_OR_RETURN(
      const std::vector<std::string> folders,
      Share("checkpoint begin", is_first ? folder_.Begin(cursor.step)
                                         : absl::StatusOr<std::string>("")));
  std::string optimizer;
  if (IsOnServer()) {
    ASSIGN_OR_RETURN(optimizer, context_.store.states()->Save());
  }
  ASSIGN_OR_RETURN(
      const std::vector<std::string> hashes,
      Share("checkpoint parts", WritePart(folders[0], cursor, optimizer)));
  absl::StatusOr<std::string> whole("");
  if (is_first && context_.store.group().Newcomers() > 0) whole = kLettingIn;
  if (is_first) {
    Manifest manifest{.step = cursor.step, .facts = MakeFacts()};
    const int num_epochs = context_.options.num_epochs;
    manifest.facts.emplace_back(
        kPlaceFact, absl::StrCat(" of ", num_epochs * cursor.num_batches, ", ",
                                 cursor.epoch, " of ", num_epochs,
                                 " epochs and ", cursor.batch, " batches"));
    for (size_t rank = 0; rank < hashes.size(); ++rank) {
      manifest.parts.push_back(
          {absl::StrCat("worker-", rank, ".part"), hashes[rank]});
    }
    const absl::Status status =
        folder_.Commit(folders[0], manifest, context_.options.keep);
    if (!status.ok()) whole = status;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> ends,
                   Share("checkpoint end", whole));
  return ends[0] == kLettingIn;
}

absl::Status Checkpointing::Save(const Cursor& cursor) {
  const TimePoint start = Clock::now();
  const absl::StatusOr<bool> saved = SaveOnce(cursor);
  const absl::Status& status = saved.status();
  TakeSignal();  // some launchers send it to all workers
  is_asked_for_ = false;
  if (status.ok()) {
    num_failed_ = 0;
    context_.observer.OnNotice(absl::StrFormat(
        "checkpoint of step %d in %.1f s", cursor.step, SecondsSince(start)));
    // An error that has a seat: with them all begin from what was saved.
    return *saved ? LetIn(context_.store.group()) : absl::OkStatus();
  }
  if (!absl::IsAborted(status)) return status;  // not the disk
  if (context_.store.group().rank() == 0) folder_.Discard();
  if (++num_failed_ < kMostFailures) {
    context_.observer.OnNotice(absl::StrCat(
        "no checkpoint of step ", cursor.step, ": ", status.message()));
    return absl::OkStatus();
  }
  return WithExitCode(
      ExitCode::kCheckpointFailed,
      absl::UnavailableError(absl::StrCat(
          num_failed_, " checkpoints in a row failed: ", status.message())));
}

WorkerPart Checkpointing::part() const {
  return {.store = context_.store,
          .replicas = replicas_,
          .alone = alone_,
          .kind = context_.options.optimizer};
}

absl::Status Checkpointing::CheckFits(const Manifest& manifest) {
  const TrainOptions& options = context_.options;
  const std::string& way = options.reshard_residuals;
  bool differs = false;
  resharding_.reset();
  RETURN_IF_ERROR(
      CheckFacts(manifest.facts, MakeFacts(), !way.empty(), &differs));
  if (!differs) return absl::OkStatus();
  const WorkerGroup& group = context_.store.group();
  StateAccess* const states = context_.store.states();
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      context_.store.group().Gather(
          "resume codecs",
          states != nullptr && states->codec_states() != nullptr ? "1" : "0"));
  if (std::ranges::find(all, "0") != all.end()) {
    return Mismatch(
        "--reshard-residuals: workers of a host sum first (--tier1), and what "
        "codecs keep is the host's; resume with as many workers and servers");
  }
  const int64_t period = std::max(1, options.local_steps);
  if (options.local_fragments > 1 || manifest.step % period != 0) {
    return Mismatch(absl::StrCat(
        "--reshard-residuals: at step ", manifest.step, " of --local-steps ",
        period, " with --local-fragments ", options.local_fragments,
        " workers have different weights; it takes a checkpoint of a multiple "
        "of --local-steps, without fragments"));
  }
  ASSIGN_OR_RETURN(resharding_,
                   Resharding::Make(manifest, way == "drop", group.rank(),
                                    group.num_workers()));
  return absl::OkStatus();
}

int Checkpointing::own_part() const {
  return resharding_.has_value() ? resharding_->own_part()
                                 : context_.store.group().rank();
}

absl::StatusOr<OpenedPart> Checkpointing::Open(const Manifest& manifest,
                                               int rank) const {
  const auto index = static_cast<size_t>(rank);
  if (index >= manifest.parts.size()) {
    return absl::DataLossError("the manifest has too few parts");
  }
  // Only once: hashing a part takes as long as reading it.
  if (!resumed_.has_value()) {
    RETURN_IF_ERROR(folder_.CheckPart(manifest.step, manifest.parts[index]));
  }
  return OpenPart(folder_.PartPath(manifest.step, rank));
}

absl::StatusOr<Cursor> Checkpointing::ReadPart(const Manifest& manifest) {
  ASSIGN_OR_RETURN(OpenedPart open, Open(manifest, own_part()));
  RETURN_IF_ERROR(ReadTensors(part(), *open.reader));
  if (!resharding_.has_value()) return open.cursor;
  std::vector<std::unique_ptr<PartReader>> others;
  for (const int rank : resharding_->other_parts()) {
    ASSIGN_OR_RETURN(OpenedPart other, Open(manifest, rank));
    others.push_back(std::move(other.reader));
  }
  resharding_->set_others(std::move(others));
  // As many samples of the epoch are behind; what a part's worker has counted
  // since the last point is one worker's. With --num-batches the epoch may be
  // over for fewer workers.
  open.cursor.batch = resharding_->BatchAfter(open.cursor.batch);
  if (const int64_t most = context_.options.num_batches; most > 0) {
    open.cursor.batch = std::min(open.cursor.batch, most);
  }
  resharding_->Divide(open.cursor);
  if (context_.store.group().rank() != own_part()) open.cursor.since_point = {};
  return open.cursor;
}

// How far a step goes, as a share of the weights' norm, for a sum of gradients
// of norm 1.
double Checkpointing::StepPerNorm(const Manifest& manifest) const {
  const TrainOptions& options = context_.options;
  double squares = 0;
  Network& network = *replicas_[0].network;
  std::vector<float> values;
  for (const Parameter& each : network.parameters()) {
    values.resize(each.num_elements);
    network.Read(each.weight, values.size(), values.data());
    for (const float value : values) squares += double{value} * double{value};
  }
  const double rate = options.local_steps > 0 ? options.outer_lr : options.lr;
  const auto contributors =
      static_cast<double>(manifest.parts.size() * replicas_.size());
  return rate / contributors / std::max(std::sqrt(squares), 1e-30);
}

absl::StatusOr<std::string> Checkpointing::ReadState(const Manifest& manifest) {
  ASSIGN_OR_RETURN(const OpenedPart open, Open(manifest, own_part()));
  Resharding* const resharding =
      resharding_.has_value() ? &*resharding_ : nullptr;
  ASSIGN_OR_RETURN(std::string optimizer,
                   ReadAll(part(), *open.reader, resharding));
  if (resharding != nullptr) {
    context_.observer.OnNotice(resharding->Describe(StepPerNorm(manifest)));
  }
  return optimizer;
}

absl::Status Checkpointing::ResumeStore() {
  if (!resumed_.has_value()) return absl::OkStatus();
  const absl::StatusOr<std::string> optimizer = ReadState(*resumed_);
  const absl::Status status =
      Share("resume state", optimizer.ok() ? absl::StatusOr<std::string>("")
                                           : optimizer.status())
          .status();
  // The part is whole, or it had been passed over.
  if (absl::IsAborted(status)) {
    return Mismatch(absl::StrCat(
        "--resume: the checkpoint does not fit this run: ", status.message()));
  }
  RETURN_IF_ERROR(status);
  resumed_.reset();
  resharding_.reset();
  return IsOnServer() ? context_.store.states()->Load(*optimizer)
                      : absl::OkStatus();
}

absl::StatusOr<std::optional<Cursor>> Checkpointing::Resume() {
  if (!context_.options.resume) return std::optional<Cursor>();
  WorkerGroup& group = context_.store.group();
  const bool is_first = group.rank() == 0;
  std::vector<int64_t> steps;
  if (is_first) steps = folder_.Steps();
  std::string last = absl::StrCat("no checkpoint in ", folder_.path());
  for (size_t i = 0;; ++i) {
    // Worker 0 chooses.
    absl::StatusOr<std::string> offer("");
    if (is_first && i < steps.size()) {
      const auto manifest = folder_.ReadManifest(steps[i]);
      offer = manifest.ok() ? ManifestText(*manifest)
                            : absl::StatusOr<std::string>(manifest.status());
    }
    if (is_first && i >= steps.size()) {
      const bool is_anew = steps.empty() && context_.options.may_begin_anew;
      offer = std::string(is_anew ? kAnew : kEnd);
    }
    const absl::StatusOr<std::vector<std::string>> offers =
        Share("resume offer", offer);
    if (offers.ok() && (*offers)[0] == kAnew) return std::optional<Cursor>();
    if (offers.ok() && (*offers)[0] == kEnd) break;
    absl::Status status = offers.status();
    if (status.ok()) {
      ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest((*offers)[0]));
      RETURN_IF_ERROR(CheckFits(manifest));
      const absl::StatusOr<Cursor> cursor = ReadPart(manifest);
      status =
          Share("resume read",
                cursor.ok() ? absl::StatusOr<std::string>("") : cursor.status())
              .status();
      if (status.ok()) {
        context_.observer.OnNotice(absl::StrCat(
            "resumed from step ", cursor->step,
            cursor->has_traffic ? ""
                                : ", of a version that kept no bytes: they and "
                                  "waiting count from here on"));
        resumed_ = manifest;
        last_question_ = {.step = cursor->step, .time = Clock::now()};
        return std::optional<Cursor>(*cursor);
      }
    }
    if (!absl::IsAborted(status)) return status;  // not a file's fault
    last = std::string(status.message());
    context_.observer.OnNotice(absl::StrCat("passed over: ", last));
  }
  return WithExitCode(ExitCode::kNoCheckpoint,
                      absl::NotFoundError(absl::StrCat(
                          "--resume: no whole checkpoint: ", last)));
}

}  // namespace telegrad
