#include "trainer/run/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crc32c.h"
#include "base/exit_code.h"
#include "base/json_fields.h"
#include "base/status_macros.h"
#include "trainer/checkpoint/digest.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;
constexpr int64_t kEvaluationBatch = 256;
// Bytes of a batch: large images come in smaller ones.
constexpr size_t kBatchBytes = size_t{64} << 20;
constexpr size_t kGatherBytes = size_t{1} << 20;   // WorkerGroup::Gather
constexpr size_t kMostGathered = size_t{1} << 30;  // bytes of a worker

absl::StatusOr<BatchResult> EvaluateShare(
    Network& network, const Dataset& test, size_t at, size_t end,
    const std::function<void(double)>& tell) {
  const size_t begin = at;
  const size_t values = test.values_per_sample();
  const size_t batch = std::clamp(kBatchBytes / (4 * values), size_t{1},
                                  static_cast<size_t>(kEvaluationBatch));
  BatchResult mine;
  std::vector<float> images(batch * values);
  std::vector<int64_t> labels(batch * test.labels_per_sample());
  std::vector<uint32_t> indices;
  for (size_t count; at < end; at += count) {
    count = std::min(batch, end - at);
    indices.clear();
    for (size_t i = 0; i < count; ++i) {
      indices.push_back(static_cast<uint32_t>(at + i));
    }
    RETURN_IF_ERROR(
        GatherBatch(test, {}, indices, images.data(), labels.data()));
    Add(network.Evaluate(images.data(), labels.data(),
                         static_cast<int64_t>(count)),
        mine);
    RETURN_IF_ERROR(network.status());
    if (tell) {
      tell(static_cast<double>(at + count - begin) /
           static_cast<double>(end - begin));
    }
  }
  return mine;
}

absl::StatusOr<BatchResult> ParsePart(size_t rank, const std::string& text) {
  constexpr int64_t kMost = int64_t{1} << 40;  // as a data set may have
  const Json part = ParseJson(text);
  JsonFields fields(part, "field '$0' $1");
  BatchResult result{
      .loss_sum = fields.NumberOrNan("loss"),
      .num_correct = fields.Integer<int64_t>("correct", 0, kMost),
      .num_samples = fields.Integer<int64_t>("samples", 0, kMost)};
  if (fields.status().ok()) return result;
  return WithExitCode(
      ExitCode::kMismatch,
      absl::InternalError(absl::StrCat(
          "worker/", rank, "'s evaluation: ", fields.status().message())));
}

// The buffers of one worker's devices, behind each other.
std::string PackBuffers(std::span<const Replica> replicas) {
  std::string bytes;
  for (const Replica& replica : replicas) {
    for (const Parameter& each : replica.network->buffers()) {
      const size_t at = bytes.size();
      bytes.resize(at + 4 * each.num_elements);
      replica.network->Read(each.weight, each.num_elements,
                            reinterpret_cast<float*>(bytes.data() + at));
    }
  }
  return bytes;
}

// The mean of the same element in all parts, each of several networks.
std::vector<float> MeanOf(const std::vector<std::string>& parts,
                          size_t num_elems) {
  std::vector<double> sums(num_elems);
  size_t count = 0;
  for (const std::string& part : parts) {
    for (size_t at = 0; at < part.size(); at += 4 * num_elems, ++count) {
      for (size_t i = 0; i < num_elems; ++i) {
        float value = 0;
        std::memcpy(&value, part.data() + at + 4 * i, 4);
        sums[i] += static_cast<double>(value);
      }
    }
  }
  std::vector<float> mean(num_elems);
  for (size_t i = 0; i < num_elems; ++i) {
    mean[i] = static_cast<float>(sums[i] / static_cast<double>(count));
  }
  return mean;
}

// What this rank reads: "1438 samples, labels 5e3b2a01".
std::string SamplesFact(const Dataset& data) {
  uint32_t check = Crc32c(data.labels.data(),
                          data.labels.size() * sizeof(data.labels[0]), 0);
  if (data.context > 0) {  // a text's bytes are the labels
    check = Crc32c(data.pixels.data(), data.pixels.size(), check);
  }
  return absl::StrFormat("%d samples, labels %08x", data.size(), check);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> GatherLarge(
    WorkerGroup& group, absl::string_view name, absl::string_view payload) {
  std::vector<std::string> all(static_cast<size_t>(group.num_workers()));
  // A piece that is not full is its worker's last one.
  for (bool has_more = true; has_more;) {
    ASSIGN_OR_RETURN(const std::vector<std::string> pieces,
                     group.Gather(name, payload.substr(0, kGatherBytes)));
    payload.remove_prefix(std::min(payload.size(), kGatherBytes));
    has_more = false;
    for (size_t i = 0; i < pieces.size(); ++i) {
      all[i] += pieces[i];
      if (all[i].size() > kMostGathered) {
        return WithExitCode(ExitCode::kMismatch,
                            absl::InternalError(absl::StrCat(
                                "worker/", i, " sends more than ",
                                kMostGathered, " bytes as '", name, "'")));
      }
      has_more = has_more || pieces[i].size() == kGatherBytes;
    }
  }
  return all;
}

void Add(const BatchResult& batch, BatchResult& sum) {
  sum.loss_sum += batch.loss_sum;
  sum.num_correct += batch.num_correct;
  sum.num_samples += batch.num_samples;
}

absl::StatusOr<BatchResult> EvaluateTogether(
    WorkerGroup& group, Network& network, const Dataset& test,
    const std::function<void(double)>& tell) {
  const auto rank = static_cast<size_t>(group.rank());
  const auto workers = static_cast<size_t>(group.num_workers());
  ASSIGN_OR_RETURN(const BatchResult mine,
                   EvaluateShare(network, test, test.size() * rank / workers,
                                 test.size() * (rank + 1) / workers, tell));
  const Json payload = {{"loss", mine.loss_sum},
                        {"correct", mine.num_correct},
                        {"samples", mine.num_samples}};
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   group.Gather("evaluate", payload.dump()));
  BatchResult total;
  for (size_t from = 0; from < all.size(); ++from) {
    ASSIGN_OR_RETURN(const BatchResult part, ParsePart(from, all[from]));
    Add(part, total);
  }
  return total;
}

absl::Status AgreeOnBuffers(WorkerGroup& group, std::span<Replica> replicas,
                            bool from_first_worker) {
  size_t num_elems = 0;
  for (const Parameter& each : replicas[0].network->buffers()) {
    num_elems += each.num_elements;
  }
  if (num_elems == 0) return absl::OkStatus();
  const std::string mine =
      PackBuffers(from_first_worker ? replicas.first(1) : replicas);
  const bool is_silent = from_first_worker && group.rank() > 0;
  ASSIGN_OR_RETURN(
      const std::vector<std::string> parts,
      GatherLarge(group, "buffers", is_silent ? absl::string_view() : mine));
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t wanted = from_first_worker && i > 0 ? 0 : mine.size();
    if (parts[i].size() != wanted) {
      return absl::InternalError(
          absl::StrCat("worker/", i, " sent ", parts[i].size(),
                       " bytes of buffers, not ", wanted));
    }
  }
  const std::vector<float> mean = MeanOf(parts, num_elems);
  for (const Replica& replica : replicas) {
    size_t at = 0;
    for (const Parameter& each : replica.network->buffers()) {
      replica.network->Write(mean.data() + at, each.num_elements, each.weight);
      at += each.num_elements;
    }
  }
  return absl::OkStatus();
}

std::string DigestOf(Network& network) {
  Sha256 sum;
  std::vector<float> values;
  for (const auto* list : {&network.parameters(), &network.buffers()}) {
    for (const Parameter& each : *list) {
      values.resize(each.num_elements);
      network.Read(each.weight, values.size(), values.data());
      sum.Add(values.data(), 4 * values.size());
    }
  }
  return sum.Hex();
}

absl::Status AgreeOnData(WorkerGroup& group, const DatasetPair& data) {
  return AgreeOnFacts(group, "data",
                      {{"--data", SamplesFact(data.train)},
                       {"--data, test set", SamplesFact(data.test)}});
}

}  // namespace telegrad
