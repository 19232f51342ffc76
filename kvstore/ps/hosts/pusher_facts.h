#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/options.h"

namespace telegrad {

// What the workers of a host are told about the store of the one that pushes,
// so that all of them tune it alike.
struct PusherFacts {
  PackingMode packing = PackingMode::kPlain;
  double load = 1;  // StoreLink's, as the two below
  std::string identity = {};
  std::string transport_details = {};
};

std::string ToText(const PusherFacts& facts);
// Of any bytes; InvalidArgument.
absl::StatusOr<PusherFacts> ReadPusherFacts(absl::string_view text);

// Reports of new tensors, in texts that are short enough for a gather.
std::vector<std::string> ReportTexts(const std::vector<TensorReport>& reports,
                                     size_t first);
// Of any bytes; InvalidArgument.
absl::StatusOr<std::vector<TensorReport>> ReadReports(absl::string_view text);

}  // namespace telegrad
