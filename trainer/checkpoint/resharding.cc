#include "trainer/checkpoint/resharding.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "trainer/checkpoint/worker_part.h"

namespace telegrad {
namespace {

constexpr int kMostServers = 65535;  // servers that a frame can name
constexpr size_t kMostNamed = 3;     // tensors that lose most

}  // namespace

absl::StatusOr<Resharding> Resharding::Make(const Manifest& manifest,
                                            bool drops, int rank,
                                            int num_workers) {
  Resharding made;
  made.drops_ = drops;
  made.rank_ = rank;
  made.num_workers_ = num_workers;
  made.num_saved_ = static_cast<int>(manifest.parts.size());
  const auto number = [&](const char* name) {
    int value = 0;
    for (const auto& [fact, text] : manifest.facts) {
      if (fact == name && !absl::SimpleAtoi(text, &value)) value = 0;
    }
    return value;
  };
  made.num_servers_ = number("servers");
  if (number("workers") == made.num_saved_ && made.num_servers_ >= 1 &&
      made.num_servers_ <= kMostServers) {
    return made;
  }
  return absl::DataLossError(absl::StrCat(
      "the manifest has ", made.num_saved_, " parts of workers '",
      number("workers"), "' and servers '", made.num_servers_, "'"));
}

std::vector<int> Resharding::other_parts() const {
  std::vector<int> parts;
  const int stride = drops_ ? 1 : num_workers_;
  if (drops_ && rank_ > 0) return parts;
  for (int part = rank_ + stride; part < num_saved_; part += stride) {
    parts.push_back(part);
  }
  return parts;
}

int64_t Resharding::BatchAfter(int64_t batch) const {
  constexpr int64_t kMostBatches = int64_t{1} << 40;  // a file may say anything
  return std::min(batch, kMostBatches) * num_saved_ / num_workers_;
}

void Resharding::Divide(Cursor& cursor) const {
  const double share = static_cast<double>(num_saved_) / num_workers_;
  cursor.traffic = Plus({}, cursor.traffic, share);
  cursor.comm_wait_s *= share;
}

absl::StatusOr<std::string> Resharding::Recut(CodecStates& codecs, Key key,
                                              const Parameter& parameter,
                                              std::string own) {
  if (own.empty()) {
    return absl::FailedPreconditionError(
        "--reshard-residuals: in the saved run workers of a host summed first "
        "(--tier1), and what codecs keep is the host's; resume with as many "
        "workers and servers");
  }
  OldCodecs old{.num_servers = num_servers_, .takes_first = !drops_};
  old.takes_first &= rank_ < num_saved_;
  old.texts.push_back({.rank = own_part(), .text = std::move(own)});
  const std::vector<int> ranks = other_parts();
  for (size_t i = 0; i < ranks.size(); ++i) {
    ASSIGN_OR_RETURN(std::string text, ReadCodec(parameter, *others_[i]));
    old.texts.push_back({.rank = ranks[i], .text = std::move(text)});
  }
  if (drops_ && rank_ == 0) {
    old.takes_first = true;
    ASSIGN_OR_RETURN(const double norm, codecs.HeldNorm(key, old));
    lost_.emplace_back(norm, parameter.name);
    old.takes_first = false;
    old.texts.resize(1);
  }
  return codecs.RecutCodec(key, old);
}

std::string Resharding::Describe(double step_per_norm) const {
  if (!drops_) {
    return absl::StrCat("--reshard-residuals sum: those of ", num_saved_,
                        " workers and ", num_servers_,
                        " server(s) are added up and dealt out");
  }
  double squares = 0;
  for (const auto& [norm, name] : lost_) squares += norm * norm;
  const double total = std::sqrt(squares);
  std::string text = absl::StrFormat(
      "--reshard-residuals drop: residuals are lost whose sum over %d workers "
      "and %d server(s) has an L2 norm of %.4g; a plain step with it would "
      "change "
      "the weights by %.2g %% of their norm",
      num_saved_, num_servers_, total, 100 * step_per_norm * total);
  std::vector<std::pair<double, std::string>> most = lost_;
  std::stable_sort(most.begin(), most.end(), std::greater<>());
  for (size_t i = 0; i < std::min(kMostNamed, most.size()); ++i) {
    absl::StrAppendFormat(&text, "%s%s %.4g", i == 0 ? "; most in " : ", ",
                          most[i].second, most[i].first);
  }
  return text;
}

}  // namespace telegrad
