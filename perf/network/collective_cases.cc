#include "perf/network/collective_cases.h"

#include <unistd.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"

namespace telegrad::perf {
namespace {

constexpr int kValues = 3;  // sums of 85 ranks fit bfloat16's 8 bits
constexpr int kUnwritten = 200;

bool IsInPlace(const CollectiveCase& which) {
  return which.kind == CollectiveKind::kAllreduce ||
         which.kind == CollectiveKind::kBroadcast ||
         which.kind == CollectiveKind::kBarrier;
}

size_t InputBlocks(const CollectiveCase& which, int ranks) {
  return which.kind == CollectiveKind::kReduceScatter ||
                 which.kind == CollectiveKind::kAlltoall
             ? static_cast<size_t>(ranks)
             : 1;
}

size_t OutputBlocks(const CollectiveCase& which, int ranks) {
  return which.kind == CollectiveKind::kReduceScatter
             ? 1
             : static_cast<size_t>(ranks);
}

int ValueAt(int rank, size_t i) {
  return static_cast<int>((i * 7 + static_cast<size_t>(rank) * 5 + i / 97) %
                          kValues);
}

template <typename T>
void WriteAs(const std::vector<float>& values, std::byte* to) {
  const std::vector<T> cast(values.begin(), values.end());
  std::memcpy(to, cast.data(), cast.size() * sizeof(T));
}

template <typename T>
float ReadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return static_cast<float>(value);
}

// `values` in the memory's type.
void Write(Dtype type, const std::vector<float>& values, std::byte* to) {
  const kernels::CastKernels& cast = kernels::CpuKernels().cast;
  kernels::EncodeStats stats;
  auto* codes = reinterpret_cast<uint8_t*>(to);
  if (values.empty()) return;  // null pointers: not for memcpy
  switch (type) {
    case Dtype::kFloat32:
      return WriteAs<float>(values, to);
    case Dtype::kFloat16:
      return cast.fp16.encode(values.data(), nullptr, values.size(),
                              kernels::NonFinite::kPropagate, codes, &stats,
                              {});
    case Dtype::kBfloat16:
      return cast.bf16.encode(values.data(), nullptr, values.size(),
                              kernels::NonFinite::kPropagate, codes, &stats,
                              {});
    case Dtype::kInt32:
      return WriteAs<int32_t>(values, to);
    case Dtype::kInt64:
      return WriteAs<int64_t>(values, to);
    case Dtype::kFloat64:
      return WriteAs<double>(values, to);
    default:  // uint8 is the only one left
      return WriteAs<uint8_t>(values, to);
  }
}

// The element at `from`.
float Read(Dtype type, const std::byte* from) {
  const kernels::CastKernels& cast = kernels::CpuKernels().cast;
  const auto* code = reinterpret_cast<const uint8_t*>(from);
  float value = 0;
  switch (type) {
    case Dtype::kFloat32:
      return ReadAs<float>(from);
    case Dtype::kFloat16:
      cast.fp16.decode(code, 1, &value, {});
      return value;
    case Dtype::kBfloat16:
      cast.bf16.decode(code, 1, &value, {});
      return value;
    case Dtype::kInt32:
      return ReadAs<int32_t>(from);
    case Dtype::kInt64:
      return ReadAs<int64_t>(from);
    case Dtype::kFloat64:
      return ReadAs<double>(from);
    default:
      return ReadAs<uint8_t>(from);
  }
}

}  // namespace

collective::Operation OperationOf(const CollectiveCase& which) {
  switch (which.kind) {
    case CollectiveKind::kAllreduce:
      return collective::Operation::kAllreduce;
    case CollectiveKind::kReduceScatter:
      return collective::Operation::kReduceScatter;
    case CollectiveKind::kAllgather:
      return collective::Operation::kAllgather;
    case CollectiveKind::kBroadcast:
      return collective::Operation::kBroadcast;
    case CollectiveKind::kAlltoall:
      return collective::Operation::kAlltoall;
    case CollectiveKind::kBarrier:
      return collective::Operation::kBarrier;
  }
  return collective::Operation::kNone;
}

size_t BlocksOf(const CollectiveCase& which, int ranks) {
  switch (which.kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllgather:
    case CollectiveKind::kAlltoall:
      return static_cast<size_t>(ranks);
    default:
      return 1;
  }
}

double BusFactor(const CollectiveCase& which, int ranks) {
  const double n = ranks;
  switch (which.kind) {
    case CollectiveKind::kAllreduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllgather:
    case CollectiveKind::kAlltoall:
      return (n - 1) / n;
    default:
      return 1;
  }
}

CollectiveData::CollectiveData(const CollectiveCase& which, Dtype type,
                               int rank, int ranks, int root, size_t max_count)
    : case_(which),
      type_(type),
      rank_(rank),
      ranks_(ranks),
      root_(root),
      max_count_(max_count),
      in_(max_count * input_blocks() * SizeOf(type)),
      out_(is_in_place() ? 0 : max_count * output_blocks() * SizeOf(type)) {
  Fill().IgnoreError();  // the host's memory gives no error
}

absl::Status CollectiveData::MoveTo(Device device) {
  if (device == Device{}) return absl::OkStatus();
  ASSIGN_OR_RETURN(in_there_, PayloadMemory::Make(device, in_.size()));
  ASSIGN_OR_RETURN(out_there_, PayloadMemory::Make(device, out_.size()));
  return Fill();
}

bool CollectiveData::is_in_place() const { return IsInPlace(case_); }

size_t CollectiveData::input_blocks() const {
  return InputBlocks(case_, ranks_);
}

size_t CollectiveData::output_blocks() const {
  return OutputBlocks(case_, ranks_);
}

absl::Status CollectiveData::CheckMemory(const CollectiveCase& which,
                                         Dtype type, int ranks,
                                         size_t max_count) {
  const size_t blocks = InputBlocks(which, ranks) +
                        (IsInPlace(which) ? 0 : OutputBlocks(which, ranks));
  const double needed = static_cast<double>(max_count) *
                        static_cast<double>(blocks * SizeOf(type));
  const double there = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s of %d elements takes %.3g GB of each rank, this machine has %.3g: a "
      "smaller --size or profile fits",
      which.name, max_count, needed / 1e9, there / 1e9));
}

absl::Status CollectiveData::Fill() {
  std::vector<float> values(max_count_ * input_blocks());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(ValueAt(rank_, i));
  }
  Write(type_, values, in_.data());
  if (!is_in_place()) {
    Write(type_, std::vector<float>(max_count_ * output_blocks(), kUnwritten),
          out_.data());
  }
  if (in_there_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(in_there_->Write(in_.view()));
  return out_there_->Write(out_.view());
}

absl::Status CollectiveData::Call(Group& group, size_t count,
                                  CollectiveSettings settings) {
  const bool is_there = in_there_ != nullptr;
  std::byte* in = is_there ? in_there_->view().data : in_.data();
  std::byte* out = is_there ? out_there_->view().data : out_.data();
  switch (case_.kind) {
    case CollectiveKind::kAllreduce:
      return group.Allreduce(in, count, type_, ReduceOp::kSum, settings);
    case CollectiveKind::kReduceScatter:
      return group.ReduceScatter(in, out, count, type_, ReduceOp::kSum,
                                 settings);
    case CollectiveKind::kAllgather:
      return group.Allgather(in, out, count, type_, settings);
    case CollectiveKind::kBroadcast:
      return group.Broadcast(in, count, type_, root_, settings);
    case CollectiveKind::kAlltoall:
      return group.Alltoall(in, out, count, type_, settings);
    case CollectiveKind::kBarrier:
      return group.Barrier(settings);
  }
  return absl::InternalError("no such collective");
}

// Element i of the output, of calls with `count` elements.
int CollectiveData::Expected(size_t i, size_t count) const {
  const size_t own_block = static_cast<size_t>(rank_) * count;
  switch (case_.kind) {
    case CollectiveKind::kBroadcast:
      return ValueAt(root_, i);
    case CollectiveKind::kAllgather:
      return ValueAt(static_cast<int>(i / count), i % count);
    case CollectiveKind::kAlltoall:
      return ValueAt(static_cast<int>(i / count), own_block + i % count);
    default:
      break;
  }
  const size_t at =
      case_.kind == CollectiveKind::kReduceScatter ? own_block + i : i;
  int sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) sum += ValueAt(rank, at);
  return sum;
}

absl::Status CollectiveData::Verify(size_t count) {
  if (in_there_ != nullptr) {
    RETURN_IF_ERROR(is_in_place() ? in_there_->Read(in_.view())
                                  : out_there_->Read(out_.view()));
  }
  const size_t blocks = is_in_place() ? 1 : output_blocks();
  std::vector<float> expected(count * blocks);
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] = static_cast<float>(Expected(i, count));
  }
  const size_t size = SizeOf(type_);
  Buffer wanted(expected.size() * size);
  Write(type_, expected, wanted.data());
  const std::byte* got = is_in_place() ? in_.data() : out_.data();
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(got + i * size, wanted.data() + i * size, size) == 0) {
      continue;
    }
    return absl::DataLossError(absl::StrFormat(
        "check: rank %d: element %d of %d of %s is %.9g, not %.9g", rank_, i,
        expected.size(), case_.name, Read(type_, got + i * size), expected[i]));
  }
  return absl::OkStatus();
}

}  // namespace telegrad::perf
