#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/operations/request.h"
#include "kvstore/options.h"

// What is wrong with requests: with one by itself, and of ranks together.
namespace telegrad::operations {
namespace {

constexpr int64_t kMaxElems = int64_t{1} << 48;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

bool IsFloat(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 ||
         dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat64;
}

bool IsScaled(const Request& request) {
  return request.prescale != 1 || request.postscale != 1;
}

absl::Status CheckReduction(const Request& request) {
  if (request.op == Op::kAdasum &&
      (request.kind != Kind::kAllreduce || !IsFloat(request.dtype))) {
    return absl::InvalidArgumentError(
        absl::StrCat("op adasum of ", ToString(request.kind), " of ",
                     ToString(request.dtype),
                     ": it is for allreduces of floating-point numbers"));
  }
  if (request.dtype == Dtype::kBool &&
      (request.op == Op::kAverage || IsScaled(request))) {
    return absl::InvalidArgumentError(
        "bool has no average and no factors: take op sum, min or max");
  }
  return absl::OkStatus();
}

absl::Status CheckCodec(const Request& request) {
  if (request.codec.empty()) return absl::OkStatus();
  if (request.codec.size() > kMaxCodecBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a codec of ", request.codec.size(), " bytes"));
  }
  const bool is_taken = request.kind == Kind::kAllreduce &&
                        (request.op == Op::kSum || request.op == Op::kAverage);
  if (!is_taken || !IsFloat(request.dtype) ||
      request.dtype == Dtype::kFloat64) {
    return absl::InvalidArgumentError(absl::StrCat(
        "codec ", request.codec, " for ", ToString(request.kind), " of op ",
        ToString(request.op), " of ", ToString(request.dtype),
        ": it is for allreduces of op sum and average of float32, float16 and "
        "bfloat16"));
  }
  if (request.set != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec ", request.codec, " in process set ", request.set,
                     ": its sums are those of all ranks"));
  }
  return request.codec == kCodecOfStore
             ? absl::OkStatus()
             : CheckCodecRules(absl::StrCat("*=", request.codec));
}

absl::Status CheckSplits(const Request& request, int64_t members) {
  const int64_t rows = request.shape[0];
  int64_t sum = 0;
  bool is_negative = false;
  for (const int64_t split : request.splits) {
    is_negative |= split < 0 || split > kMaxElems;
    sum += is_negative ? 0 : split;
  }
  const bool has_all = static_cast<int64_t>(request.splits.size()) == members;
  if (has_all && !is_negative && sum == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "splits ", ShapeText(request.splits), " of ", rows, " rows for ", members,
      " ranks: there is one for each rank, "
      "none below 0, and they add up to the rows"));
}

// A new process set's, of which the job's last is `last`.
absl::Status CheckRanks(const Request& request, int64_t last) {
  const std::vector<int64_t>& ranks = request.splits;
  const bool rise = std::adjacent_find(ranks.begin(), ranks.end(),
                                       std::greater_equal<>()) == ranks.end();
  if (rise && !ranks.empty() && ranks.front() >= 0 && ranks.back() <= last) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("process set of ranks ", absl::StrJoin(ranks, ", "),
                   ": they rise, from 0 to ", last));
}

// The first two ranks that differ in `text`.
absl::Status Alike(const std::vector<Peer>& peers, const char* what,
                   const std::function<std::string(const Request&)>& text) {
  const Peer& first = peers.front();
  const std::string wanted = text(*first.request);
  for (const Peer& peer : peers) {
    const std::string has = text(*peer.request);
    if (has == wanted) continue;
    return WithExitCode(
        ExitCode::kMismatch,
        absl::FailedPreconditionError(absl::StrCat(
            ToString(first.request->kind), " \"", first.request->name,
            "\": rank ", first.rank, " has ", what, " ", wanted, ", rank ",
            peer.rank, " has ", what, " ", has)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckShape(const std::vector<int64_t>& shape) {
  int64_t elems = 1;
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && elems > kMaxElems / size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor of shape ", ShapeText(shape)));
    }
    elems *= std::max<int64_t>(size, 1);
  }
  return absl::OkStatus();
}

std::string RanksText(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", "));
}

absl::Status CheckRequest(const Request& request, const std::vector<int>& ranks,
                          int member) {
  if (member < 0) {
    return absl::InvalidArgumentError(absl::StrCat("process set ", request.set,
                                                   " of ", RanksText(ranks),
                                                   " is without this rank"));
  }
  if (request.name.empty() || request.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a name of ", request.name.size(), " bytes; 1 to ", kMaxNameBytes));
  }
  if (request.shape.size() > kMaxDims) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.shape.size(), " dimensions; at most ", kMaxDims));
  }
  if ((request.group != 0) != (request.group_size > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", request.group, " of ", request.group_size,
                     " requests: both are 0, or none"));
  }
  RETURN_IF_ERROR(CheckShape(request.shape));
  if (request.kind != Kind::kAllreduce) RETURN_IF_ERROR(CheckCodec(request));
  const auto members = static_cast<int64_t>(ranks.size());
  switch (request.kind) {
    case Kind::kAllreduce:
      RETURN_IF_ERROR(CheckReduction(request));
      return CheckCodec(request);
    case Kind::kBroadcast:
      if (std::find(ranks.begin(), ranks.end(), request.root) != ranks.end()) {
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError(
          absl::StrCat("root ", request.root, " is none of the ranks ",
                       absl::StrJoin(ranks, ", ")));
    case Kind::kAllgather:
    case Kind::kReduceScatter:
    case Kind::kAlltoall:
      if (request.shape.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            ToString(request.kind), " of a tensor without dimensions"));
      }
      if (request.kind == Kind::kAlltoall) return CheckSplits(request, members);
      return request.kind == Kind::kAllgather ? absl::OkStatus()
                                              : CheckReduction(request);
    case Kind::kAddSet:
      return CheckRanks(request, ranks.back());
    default:
      return absl::OkStatus();
  }
}

absl::Status CompareRequests(const std::vector<Peer>& peers) {
  RETURN_IF_ERROR(Alike(peers, "operation", [](const Request& request) {
    return ToString(request.kind);
  }));
  const Kind kind = peers.front().request->kind;
  if (kind == Kind::kBarrier || kind == Kind::kRemoveSet) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Alike(peers, "type", [](const Request& request) {
    return ToString(request.dtype);
  }));
  RETURN_IF_ERROR(Alike(peers, "memory", [](const Request& request) {
    return IsOnDevice(request) ? "of a GPU" : "of the host";
  }));
  const bool varies = kind == Kind::kAllgather || kind == Kind::kAlltoall;
  RETURN_IF_ERROR(Alike(peers, "shape", [varies](const Request& request) {
    const std::string rest = absl::StrJoin(
        request.shape.begin() + (varies ? 1 : 0), request.shape.end(), ", ");
    return !varies        ? absl::StrCat("[", rest, "]")
           : rest.empty() ? "[any]"
                          : absl::StrCat("[any, ", rest, "]");
  }));
  RETURN_IF_ERROR(Alike(peers, "root", [](const Request& request) {
    return absl::StrCat(request.root);
  }));
  RETURN_IF_ERROR(Alike(peers, "op", [](const Request& request) {
    return ToString(request.op);
  }));
  RETURN_IF_ERROR(Alike(peers, "codec", [](const Request& request) {
    return request.codec.empty() ? "none" : request.codec;
  }));
  RETURN_IF_ERROR(Alike(peers, "factors", [](const Request& request) {
    return absl::StrCat(request.prescale, " and ", request.postscale);
  }));
  return Alike(peers, "group", [](const Request& request) {
    return absl::StrCat(request.group, " of ", request.group_size);
  });
}

}  // namespace telegrad::operations
