#include "kvstore/operations/request.h"

#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/endian.h"

namespace telegrad::operations {
namespace {

constexpr std::array kKinds = {"allreduce",
                               "allgather",
                               "broadcast",
                               "reducescatter",
                               "alltoall",
                               "barrier",
                               "join",
                               "new process set",
                               "end of a process set",
                               "end of a request"};
constexpr std::array kOps = {"sum",     "min",     "max",
                             "product", "average", "adasum"};

// As it goes between ranks; name, codec, shape and splits follow.
struct Fixed {
  uint8_t kind, op, dtype, num_dims;
  int32_t set, root, group_size;
  uint64_t group;
  double prescale, postscale;
  uint16_t name_bytes, codec_bytes;
  uint16_t num_splits;
  int16_t device;
};
static_assert(sizeof(Fixed) == 48, "no gaps");

// Takes what is there from the front of bytes that may end anywhere.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  bool is_at_end() const { return bytes_.empty(); }
  bool Take(void* to, size_t size) {
    if (size > bytes_.size()) return false;
    bytes_.copy(static_cast<char*>(to), size);
    bytes_.remove_prefix(size);
    return true;
  }
  bool Take(size_t count, std::vector<int64_t>* to) {
    if (count > bytes_.size() / sizeof(int64_t)) return false;
    to->resize(count);
    return Take(to->data(), count * sizeof(int64_t));
  }
  bool Take(size_t size, std::string* to) {
    if (size > bytes_.size()) return false;
    to->resize(size);
    return Take(to->data(), size);
  }

 private:
  absl::string_view bytes_;
};

}  // namespace

const char* ToString(Kind kind) { return kKinds.at(static_cast<size_t>(kind)); }

const char* ToString(Op op) { return kOps.at(static_cast<size_t>(op)); }

int64_t RowElems(const std::vector<int64_t>& shape) {
  int64_t elems = 1;
  for (size_t i = 1; i < shape.size(); ++i) elems *= shape[i];
  return elems;
}

int64_t NumElems(const std::vector<int64_t>& shape) {
  return shape.empty() ? 1 : shape[0] * RowElems(shape);
}

int64_t RowsOf(int64_t rows, int64_t members, int64_t i) {
  return rows / members + (i < rows % members ? 1 : 0);
}

void AppendRequest(const Request& request, std::string* to) {
  AppendLittleEndian(
      to,
      Fixed{static_cast<uint8_t>(request.kind),
            static_cast<uint8_t>(request.op),
            static_cast<uint8_t>(request.dtype),
            static_cast<uint8_t>(request.shape.size()), request.set,
            request.root, request.group_size, request.group, request.prescale,
            request.postscale, static_cast<uint16_t>(request.name.size()),
            static_cast<uint16_t>(request.codec.size()),
            static_cast<uint16_t>(request.splits.size()),
            static_cast<int16_t>(request.device)});
  to->append(request.name);
  to->append(request.codec);
  for (const int64_t value : request.shape) AppendLittleEndian(to, value);
  for (const int64_t value : request.splits) AppendLittleEndian(to, value);
}

absl::StatusOr<std::vector<Request>> ParseRequests(absl::string_view bytes) {
  std::vector<Request> requests;
  Reader reader(bytes);
  while (!reader.is_at_end()) {
    Fixed fixed;
    Request& request = requests.emplace_back();
    if (!reader.Take(&fixed, sizeof(fixed)) || fixed.kind >= kKinds.size() ||
        fixed.op >= kOps.size() ||
        SizeOf(static_cast<Dtype>(fixed.dtype)) == 0 ||
        fixed.num_dims > kMaxDims || fixed.name_bytes > kMaxNameBytes ||
        fixed.codec_bytes > kMaxCodecBytes || fixed.num_splits > kMaxSplits ||
        fixed.device < kEmulatedMemory || fixed.device > kMaxDevice ||
        !reader.Take(fixed.name_bytes, &request.name) ||
        !reader.Take(fixed.codec_bytes, &request.codec) ||
        !reader.Take(fixed.num_dims, &request.shape) ||
        !reader.Take(fixed.num_splits, &request.splits)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "request ", requests.size(), " of ", bytes.size(), " bytes is none"));
    }
    request.kind = static_cast<Kind>(fixed.kind);
    request.op = static_cast<Op>(fixed.op);
    request.dtype = static_cast<Dtype>(fixed.dtype);
    request.set = fixed.set;
    request.root = fixed.root;
    request.group_size = fixed.group_size;
    request.device = fixed.device;
    request.group = fixed.group;
    request.prescale = fixed.prescale;
    request.postscale = fixed.postscale;
  }
  return requests;
}

}  // namespace telegrad::operations
