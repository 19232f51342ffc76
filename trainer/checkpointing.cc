#include "trainer/checkpointing.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/endian.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kvstore/states.h"
#include "trainer/checkpoint_part.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

constexpr int kMostFailures = 3;    // in a row
constexpr char kEnd[] = "no more";  // in place of a manifest
constexpr uint64_t kMostCursorBytes = uint64_t{64} << 20;

// JSON has null for what is not finite.
double NumberOr(const Json& json, const char* name, double other) {
  const Json value = json.value(name, Json());
  return value.is_number() ? value.get<double>() : other;
}
int64_t CountOr(const Json& json, const char* name, int64_t other) {
  const Json value = json.value(name, Json());
  return value.is_number_integer() ? value.get<int64_t>() : other;
}

std::string CursorText(const Cursor& cursor) {
  Json points = Json::array();
  for (const MetricPoint& point : cursor.points) {
    points.push_back({{"epoch", point.epoch},
                      {"step", point.step},
                      {"seconds", point.seconds},
                      {"train_loss", point.train_loss},
                      {"train_accuracy", point.train_accuracy},
                      {"test_loss", point.test_loss},
                      {"test_accuracy", point.test_accuracy},
                      {"wire_bytes", point.wire_bytes}});
  }
  return Json{{"step", cursor.step},
              {"epoch", cursor.epoch},
              {"batch", cursor.batch},
              {"seconds", cursor.seconds},
              {"num_skipped", cursor.num_skipped},
              {"loss_sum", cursor.since_point.loss_sum},
              {"num_correct", cursor.since_point.num_correct},
              {"num_samples", cursor.since_point.num_samples},
              {"points", points}}
      .dump();
}

absl::StatusOr<Cursor> ParseCursor(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return absl::DataLossError("the cursor is no object");
  Cursor cursor{.step = CountOr(json, "step", -1),
                .epoch = static_cast<int>(CountOr(json, "epoch", -1)),
                .batch = CountOr(json, "batch", -1),
                .seconds = NumberOr(json, "seconds", 0),
                .num_skipped = CountOr(json, "num_skipped", 0)};
  if (cursor.step < 0 || cursor.epoch < 0 || cursor.batch < 0) {
    return absl::DataLossError("the cursor lacks step, epoch or batch");
  }
  cursor.since_point = {.loss_sum = NumberOr(json, "loss_sum", std::nan("")),
                        .num_correct = CountOr(json, "num_correct", 0),
                        .num_samples = CountOr(json, "num_samples", 0)};
  const Json points = json.value("points", Json::array());
  for (const Json& point : points) {
    if (!point.is_object()) return absl::DataLossError("a point is no object");
    cursor.points.push_back(
        {.epoch = static_cast<int>(CountOr(point, "epoch", 0)),
         .step = CountOr(point, "step", 0),
         .seconds = NumberOr(point, "seconds", 0),
         .train_loss = NumberOr(point, "train_loss", std::nan("")),
         .train_accuracy = NumberOr(point, "train_accuracy", 0),
         .test_loss = NumberOr(point, "test_loss", std::nan("")),
         .test_accuracy = NumberOr(point, "test_accuracy", -1),
         .wire_bytes = CountOr(point, "wire_bytes", 0)});
  }
  return cursor;
}

// Calls `use(name, memory, bytes)` for weights and buffers of a worker, and
// `use_state(name, state, elements)` for what steps them, in the order of the
// file.
template <typename Use, typename UseState>
absl::Status ForEachTensor(std::span<Replica> replicas, const Use& use,
                           const UseState& use_state) {
  for (size_t device = 0; device < replicas.size(); ++device) {
    Replica& replica = replicas[device];
    const auto& parameters = replica.network->parameters();
    const std::string prefix = absl::StrCat("device", device, "/");
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& each = parameters[i];
      RETURN_IF_ERROR(use(prefix + "weight/" + each.name, each.weight,
                          4 * each.num_elements));
      if (i >= replica.states.size()) continue;
      RETURN_IF_ERROR(use_state(prefix + "optimizer/" + each.name,
                                replica.states[i], each.num_elements));
    }
    for (const Parameter& each : replica.network->buffers()) {
      RETURN_IF_ERROR(use(prefix + "buffer/" + each.name, each.weight,
                          4 * each.num_elements));
    }
  }
  return absl::OkStatus();
}

absl::string_view TextOf(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

// Steps so far as u64, then each array as a field of its own.
absl::Status WriteState(const std::string& name, const OptimizerState& state,
                        PartWriter& writer) {
  std::byte steps[8];
  StoreLittleEndian(steps, state.num_steps());
  RETURN_IF_ERROR(writer.Add(name, TextOf({steps, sizeof(steps)})));
  const std::vector<ConstBytes> arrays = state.arrays();
  for (size_t i = 0; i < arrays.size(); ++i) {
    RETURN_IF_ERROR(writer.Add(absl::StrCat(name, "/", i), TextOf(arrays[i])));
  }
  return absl::OkStatus();
}

absl::Status ReadState(const std::string& name, size_t num_elems,
                       OptimizerKind kind, PartReader& reader,
                       OptimizerState& state) {
  std::byte steps[8];
  RETURN_IF_ERROR(reader.Expect(name, sizeof(steps)));
  RETURN_IF_ERROR(reader.Read(steps, sizeof(steps)));
  const auto num_steps = LoadLittleEndian<uint64_t>(steps);
  state = OptimizerState();
  for (size_t i = 0; num_steps > 0 && i < NumStateArrays(kind); ++i) {
    const Buffer array(4 * num_elems);
    RETURN_IF_ERROR(reader.Expect(absl::StrCat(name, "/", i), array.size()));
    RETURN_IF_ERROR(reader.Read(array.data(), array.size()));
    state.Restore(num_steps, i, array.view());
  }
  return absl::OkStatus();
}

// "100": steps; "2epochs": epochs.
struct Interval {
  int64_t steps = 0;
  int64_t epochs = 0;
};
absl::StatusOr<Interval> ParseInterval(absl::string_view text) {
  absl::string_view number = text;
  const bool is_epochs = absl::ConsumeSuffix(&number, "epochs") ||
                         absl::ConsumeSuffix(&number, "epoch");
  int64_t value = 0;
  if (!absl::SimpleAtoi(number, &value) || value < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--checkpoint-every '", text,
                     "': it takes steps or epochs: 500, "
                     "1epoch, 2epochs"));
  }
  return is_epochs ? Interval{.epochs = value} : Interval{.steps = value};
}

absl::Status CheckFacts(const Facts& saved, const Facts& now) {
  for (const auto& [name, value] : now) {
    const auto found = std::find_if(
        saved.begin(), saved.end(),
        [&name = name](const auto& each) { return each.first == name; });
    const std::string before = found == saved.end() ? "" : found->second;
    if (before == value) continue;
    return WithExitCode(ExitCode::kMismatch,
                        absl::FailedPreconditionError(absl::StrCat(
                            "--resume: the checkpoint has ", name, " '", before,
                            "', this run '", value, "'")));
  }
  return absl::OkStatus();
}

// What encoding keeps between steps: a residual, or a scale that is agreed.
bool KeepsState(const std::string& type) {
  const absl::StatusOr<CodecSpec> spec = ParseCodecSpec(type);
  return !spec.ok() || !spec->codec->traits().lossless;
}

}  // namespace

absl::Status CheckCheckpointFlags(const TrainOptions& options) {
  if (options.checkpoint.empty()) {
    if (!options.resume) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--resume needs --checkpoint DIR, where to resume from");
  }
  RETURN_IF_ERROR(ParseInterval(options.checkpoint_every).status());
  if (options.settings.size() > 1 || options.seeds.size() > 1) {
    return absl::InvalidArgumentError(
        "--checkpoint is for one setting and one seed, so that a folder is of "
        "one run");
  }
  const Setting& setting = options.settings[0];
  for (const std::string& type : setting.compression.types()) {
    if (!KeepsState(type) && setting.compression.rules.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--checkpoint: '", setting.name,
        "' keeps residuals and scales in "
        "workers and servers, which a checkpoint does not have; it takes "
        "--gc-type none without --gc-rule"));
  }
  if (setting.update_on == UpdateOn::kServer) {
    return absl::InvalidArgumentError(
        "--checkpoint needs the optimizer on the workers (--update-on worker)");
  }
  return absl::OkStatus();
}

bool Checkpointing::IsDueAfterStep(int64_t step) const {
  const auto interval = ParseInterval(context_.options.checkpoint_every);
  return !context_.options.checkpoint.empty() && interval.ok() &&
         interval->steps > 0 && step % interval->steps == 0;
}

bool Checkpointing::IsDueAfterEpoch(int epoch) const {
  const auto interval = ParseInterval(context_.options.checkpoint_every);
  return !context_.options.checkpoint.empty() && interval.ok() &&
         interval->epochs > 0 && (epoch + 1) % interval->epochs == 0;
}

Facts Checkpointing::MakeFacts() const {
  const TrainOptions& options = context_.options;
  return {
      {"network", options.network},
      {"data", options.benchmark ? "synthetic" : options.data},
      {"codec", context_.setting.name},
      {"optimizer", ToString(options.optimizer)},
      {"seed", absl::StrCat(context_.seed)},
      {"batch-size", absl::StrCat(options.batch_size)},
      {"workers", absl::StrCat(context_.store.group().num_workers())},
      {"devices", absl::StrCat(replicas_.size())},
      {"parameters", absl::StrCat(replicas_[0].network->parameters().size())}};
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
    const Json part = Json::parse(all[rank], nullptr, false);
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
    const std::string& folder, const Cursor& cursor) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<PartWriter> writer,
                   PartWriter::Create(CheckpointFolder::PartPath(
                       folder, context_.store.group().rank())));
  RETURN_IF_ERROR(writer->Add("cursor", CursorText(cursor)));
  RETURN_IF_ERROR(ForEachTensor(
      replicas_,
      [&](const std::string& name, const float* values, size_t num_bytes) {
        return writer->Add(name, TextOf({values, num_bytes}));
      },
      [&](const std::string& name, const OptimizerState& state, size_t) {
        return WriteState(name, state, *writer);
      }));
  return writer->Finish();
}

absl::Status Checkpointing::SaveOnce(const Cursor& cursor) {
  const bool is_first = context_.store.group().rank() == 0;
  ASSIGN_OR_RETURN(
      const std::vector<std::string> folders,
      Share("checkpoint begin", is_first ? folder_.Begin(cursor.step)
                                         : absl::StatusOr<std::string>("")));
  ASSIGN_OR_RETURN(const std::vector<std::string> hashes,
                   Share("checkpoint parts", WritePart(folders[0], cursor)));
  absl::StatusOr<std::string> whole("");
  if (is_first) {
    Manifest manifest{.step = cursor.step, .facts = MakeFacts()};
    for (size_t rank = 0; rank < hashes.size(); ++rank) {
      manifest.parts.push_back(
          {absl::StrCat("worker-", rank, ".part"), hashes[rank]});
    }
    const absl::Status status =
        folder_.Commit(folders[0], manifest, context_.options.keep);
    if (!status.ok()) whole = status;
  }
  return Share("checkpoint end", whole).status();
}

absl::Status Checkpointing::Save(const Cursor& cursor) {
  const TimePoint start = Clock::now();
  const absl::Status status = SaveOnce(cursor);
  if (status.ok()) {
    num_failed_ = 0;
    context_.observer.OnNotice(absl::StrFormat(
        "checkpoint of step %d in %.1f s", cursor.step, SecondsSince(start)));
    return absl::OkStatus();
  }
  if (!absl::IsAborted(status)) return status;  // not the disk
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

absl::StatusOr<Cursor> Checkpointing::ReadPart(const Manifest& manifest) const {
  const auto rank = static_cast<size_t>(context_.store.group().rank());
  if (rank >= manifest.parts.size()) {
    return absl::DataLossError("the manifest has too few parts");
  }
  RETURN_IF_ERROR(folder_.CheckPart(manifest.step, manifest.parts[rank]));
  ASSIGN_OR_RETURN(const std::unique_ptr<PartReader> reader,
                   PartReader::Open(folder_.PartPath(manifest.step,
                                                     static_cast<int>(rank))));
  ASSIGN_OR_RETURN(const PartReader::Field field, reader->Next());
  if (field.name != "cursor" || field.size > kMostCursorBytes) {
    return absl::DataLossError("a part does not begin with its cursor");
  }
  std::string text(static_cast<size_t>(field.size), '\0');
  RETURN_IF_ERROR(reader->Read(text.data(), text.size()));
  RETURN_IF_ERROR(ForEachTensor(
      replicas_,
      [&](const std::string& name, float* values, size_t num_bytes) {
        const absl::Status expected = reader->Expect(name, num_bytes);
        return expected.ok() ? reader->Read(values, num_bytes) : expected;
      },
      [&](const std::string& name, OptimizerState& state, size_t num_elems) {
        return ReadState(name, num_elems, context_.options.optimizer, *reader,
                         state);
      }));
  ASSIGN_OR_RETURN(const PartReader::Field end, reader->Next());
  if (!end.name.empty()) {
    return absl::DataLossError(absl::StrCat("surplus field ", end.name));
  }
  return ParseCursor(text);
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
    if (is_first && i >= steps.size()) offer = std::string(kEnd);
    const absl::StatusOr<std::vector<std::string>> offers =
        Share("resume offer", offer);
    if (offers.ok() && (*offers)[0] == kEnd) break;
    absl::Status status = offers.status();
    if (status.ok()) {
      ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest((*offers)[0]));
      RETURN_IF_ERROR(CheckFacts(manifest.facts, MakeFacts()));
      const absl::StatusOr<Cursor> cursor = ReadPart(manifest);
      status =
          Share("resume read",
                cursor.ok() ? absl::StatusOr<std::string>("") : cursor.status())
              .status();
      if (status.ok()) {
        context_.observer.OnNotice(
            absl::StrCat("resumed from step ", cursor->step));
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
