#include "trainer/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/atomic_file.h"
#include "base/folder.h"
#include "base/input_file.h"
#include "base/json_fields.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "trainer/checkpoint/checkpoint_part.h"
#include "trainer/checkpoint/digest.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kPrefix[] = "step-";
constexpr char kUnfinished[] = ".writing";
constexpr char kManifest[] = "MANIFEST";
constexpr size_t kMostManifestBytes = size_t{1} << 20;
constexpr size_t kMostParts = 65536;

std::string NameOf(int64_t step) {
  return absl::StrFormat("%s%012d", kPrefix, step);
}

absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(path, Links::kRefuse));
  Sha256 sum;
  for (;;) {
    ASSIGN_OR_RETURN(const std::string piece, ReadUpTo(file, kPartBlockBytes));
    if (piece.empty()) return sum.Hex();
    sum.Add(piece.data(), piece.size());
  }
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name.size() < 256 && name[0] != '.' &&
         absl::c_none_of(name, [](unsigned char c) {
           return c == '/' || absl::ascii_iscntrl(c);
         });
}

}  // namespace

// The hash of the line before it is the last line: a torn file is none.
std::string ManifestText(const Manifest& manifest) {
  Json json = {{"format", "telegrad-checkpoint"},
               {"version", kPartVersion},
               {"step", manifest.step},
               {"facts", Json::object()},
               {"parts", Json::array()}};
  for (const auto& [name, value] : manifest.facts) json["facts"][name] = value;
  for (const Manifest::Part& part : manifest.parts) {
    json["parts"].push_back({{"file", part.file}, {"sha256", part.sha256}});
  }
  const std::string line =
      json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return absl::StrCat(line, Sha256OfBytes(line), "\n");
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  const size_t end = text.find('\n');
  if (end == absl::string_view::npos ||
      text.substr(end + 1) !=
          absl::StrCat(Sha256OfBytes(text.substr(0, end + 1)), "\n")) {
    return absl::DataLossError("its SHA-256 is another");
  }
  const Json json = ParseJson(text.substr(0, end));
  const auto lacks = [&](const char* what) {
    return absl::DataLossError(absl::StrCat("it lacks ", what));
  };
  if (!json.is_object() ||
      json.value("format", Json()) != "telegrad-checkpoint")
    return lacks("the format's name");
  if (json.value("version", Json()) != Json(kPartVersion)) {
    return absl::FailedPreconditionError(
        absl::StrCat("format version ", json.value("version", Json()).dump(),
                     ", this program reads ", kPartVersion));
  }
  Manifest manifest;
  const Json step = json.value("step", Json());
  if (!step.is_number_unsigned() || step.get<uint64_t>() > INT64_MAX) {
    return lacks("a step");
  }
  manifest.step = step.get<int64_t>();
  const Json facts = json.value("facts", Json());
  if (!facts.is_object()) return lacks("facts");
  for (const auto& [name, value] : facts.items()) {
    if (!value.is_string()) return lacks("a fact's text");
    manifest.facts.emplace_back(name, value.get<std::string>());
  }
  const Json parts = json.value("parts", Json());
  if (!parts.is_array() || parts.empty() || parts.size() > kMostParts) {
    return lacks("parts");
  }
  for (const Json& part : parts) {
    if (!part.is_object() || !part.value("file", Json()).is_string() ||
        !part.value("sha256", Json()).is_string() ||
        !IsPlainName(part["file"].get<std::string>())) {
      return lacks("a part's file");
    }
    manifest.parts.push_back(
        {part["file"].get<std::string>(), part["sha256"].get<std::string>()});
  }
  return manifest;
}

absl::StatusOr<std::string> CheckpointFolder::Begin(int64_t step) const {
  const std::string folder =
      absl::StrCat(path_, "/", NameOf(step), kUnfinished);
  Discard();  // a run that was killed in the midst may have left some
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) fs::create_directories(folder, error);
  if (!error) return folder;
  return absl::UnavailableError(
      absl::StrCat("create ", folder, ": ", error.message()));
}

void CheckpointFolder::Discard() const {
  std::error_code error;
  for (const int64_t step : StepsWith(kUnfinished)) {
    fs::remove_all(absl::StrCat(path_, "/", NameOf(step), kUnfinished), error);
  }
}

std::string CheckpointFolder::PartPath(const std::string& folder, int rank) {
  return absl::StrCat(folder, "/worker-", rank, ".part");
}

std::string CheckpointFolder::PartPath(int64_t step, int rank) const {
  return PartPath(absl::StrCat(path_, "/", NameOf(step)), rank);
}

absl::Status CheckpointFolder::Commit(const std::string& folder,
                                      const Manifest& manifest,
                                      int keep) const {
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder, "/", kManifest),
                                      ManifestText(manifest)));
  RETURN_IF_ERROR(SyncFolder(folder));
  const std::string whole = absl::StrCat(path_, "/", NameOf(manifest.step));
  std::error_code error;
  fs::remove_all(whole, error);  // a run that went back may have left one
  fs::rename(folder, whole, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("rename to ", whole, ": ", error.message()));
  }
  RETURN_IF_ERROR(SyncFolder(path_));
  int num_kept = 0;
  for (const int64_t step : Steps()) {
    // A newer one is of no use: else this run had gone on from it.
    if (step <= manifest.step && ++num_kept <= keep) continue;
    fs::remove_all(absl::StrCat(path_, "/", NameOf(step)), error);
  }
  return absl::OkStatus();
}

std::vector<int64_t> CheckpointFolder::Steps() const { return StepsWith(""); }

std::vector<int64_t> CheckpointFolder::StepsWith(const std::string& end) const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(path_, error), last; !error && it != last;
       it.increment(error)) {
    // A link may lead anywhere.
    if (!fs::is_directory(it->symlink_status(error))) continue;
    const std::string name = it->path().filename().string();
    absl::string_view digits = name;
    int64_t step = 0;
    if (absl::ConsumePrefix(&digits, kPrefix) &&
        absl::ConsumeSuffix(&digits, end) && absl::SimpleAtoi(digits, &step) &&
        name == NameOf(step) + end) {
      steps.push_back(step);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::StatusOr<Manifest> CheckpointFolder::ReadManifest(int64_t step) const {
  const std::string path =
      absl::StrCat(path_, "/", NameOf(step), "/", kManifest);
  ASSIGN_OR_RETURN(
      const std::string text,
      OfFlag(path, ReadFile(path, kMostManifestBytes, Links::kRefuse)));
  ASSIGN_OR_RETURN(Manifest manifest, OfFlag(path, ParseManifest(text)));
  if (manifest.step == step) return manifest;
  return absl::DataLossError(
      absl::StrCat(path, ": it is of step ", manifest.step));
}

absl::Status CheckpointFolder::CheckPart(int64_t step,
                                         const Manifest::Part& part) const {
  const std::string path =
      absl::StrCat(path_, "/", NameOf(step), "/", part.file);
  ASSIGN_OR_RETURN(const std::string hash, OfFlag(path, HashOfFile(path)));
  if (hash == part.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": its SHA-256 is ", hash,
                                          ", the manifest has ",
                                          absl::Utf8SafeCEscape(part.sha256)));
}

absl::StatusOr<std::string> DescribeCheckpoints(const std::string& path) {
  const CheckpointFolder folder(path);
  const std::vector<int64_t> steps = folder.Steps();
  if (steps.empty()) {
    return absl::NotFoundError(absl::StrCat("no checkpoint in ", path));
  }
  std::string text;
  for (const int64_t step : steps) {
    const absl::StatusOr<Manifest> manifest = folder.ReadManifest(step);
    absl::Status status = manifest.status();
    for (size_t i = 0; status.ok() && i < manifest->parts.size(); ++i) {
      status = folder.CheckPart(step, manifest->parts[i]);
    }
    std::string place;
    for (const auto& [name, value] :
         manifest.ok() ? manifest->facts : Facts()) {
      if (name == kPlaceFact) place = absl::Utf8SafeCEscape(value);
    }
    absl::StrAppend(&text, "step ", step, place, ": ",
                    status.ok() ? "whole" : status.message(), "\n");
    if (!status.ok()) continue;
    for (const auto& [name, value] : manifest->facts) {
      absl::StrAppendFormat(&text, "  %-17s %s\n", absl::Utf8SafeCEscape(name),
                            absl::Utf8SafeCEscape(value));
    }
    for (const Manifest::Part& part : manifest->parts) {
      ASSIGN_OR_RETURN(const std::unique_ptr<PartReader> reader,
                       PartReader::Open(absl::StrCat(path, "/", NameOf(step),
                                                     "/", part.file)));
      absl::StrAppend(&text, "  ", part.file, "\n");
      for (;;) {
        ASSIGN_OR_RETURN(const PartReader::Field field, reader->Next());
        if (field.name.empty()) break;
        absl::StrAppendFormat(&text, "    %12d bytes  %s\n", field.size,
                              field.name);
        RETURN_IF_ERROR(reader->Skip(field.size));
      }
    }
  }
  return text;
}

}  // namespace telegrad
