#include "trainer/data/idx.h"

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "trainer/data/inflate.h"

namespace telegrad {
namespace {

constexpr uint32_t kUnsignedBytes = 0x0800;
// Above any such data set, and small enough for the memory of a worker.
constexpr uint64_t kMostBytes = uint64_t{4} << 30;
constexpr size_t kStepBytes = size_t{1} << 20;

absl::Status Wrong(const InflateReader& reader, uint64_t offset,
                   absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat(reader.path(), ": byte ", offset, ": ", what));
}

absl::StatusOr<uint32_t> ReadBigEndian(InflateReader& reader, uint64_t offset) {
  std::array<uint8_t, 4> bytes{};
  ASSIGN_OR_RETURN(const size_t got, reader.Read(bytes.data(), bytes.size()));
  if (got < bytes.size()) {
    return Wrong(reader, offset + got, "the file ends inside its header");
  }
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
         uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

absl::StatusOr<uint64_t> ReadHeader(InflateReader& reader, size_t num_dims,
                                    IdxFile& file) {
  const uint32_t wanted = kUnsignedBytes | static_cast<uint32_t>(num_dims);
  ASSIGN_OR_RETURN(const uint32_t magic, ReadBigEndian(reader, 0));
  if (magic != wanted) {
    return Wrong(reader, 0,
                 absl::StrFormat("magic 0x%08x, but IDX bytes of %d dimensions "
                                 "have 0x%08x",
                                 magic, num_dims, wanted));
  }
  uint64_t total = 1;
  for (size_t i = 0; i < num_dims; ++i) {
    const uint64_t offset = 4 + 4 * i;
    ASSIGN_OR_RETURN(const uint32_t extent, ReadBigEndian(reader, offset));
    if (extent == 0 || extent > kMostBytes / total) {
      return Wrong(reader, offset,
                   absl::StrCat("extent ", extent, " is zero or too large"));
    }
    total *= extent;
    file.extents.push_back(extent);
  }
  return total;
}

}  // namespace

absl::StatusOr<IdxFile> ReadIdx(const std::string& path, size_t num_dims) {
  ASSIGN_OR_RETURN(std::unique_ptr<InflateReader> reader,
                   InflateReader::Open(path));
  IdxFile file;
  ASSIGN_OR_RETURN(const uint64_t total, ReadHeader(*reader, num_dims, file));
  const uint64_t header = IdxHeaderBytes(num_dims);
  while (file.values.size() < total) {
    const size_t at = file.values.size();
    const size_t step =
        static_cast<size_t>(std::min<uint64_t>(kStepBytes, total - at));
    file.values.resize(at + step);
    ASSIGN_OR_RETURN(const size_t got,
                     reader->Read(file.values.data() + at, step));
    if (got < step) {
      return Wrong(*reader, header + at + got,
                   absl::StrCat("the file ends here, its header says ",
                                header + total, " bytes"));
    }
  }
  uint8_t surplus = 0;
  ASSIGN_OR_RETURN(const size_t got, reader->Read(&surplus, 1));
  if (got > 0) {
    return Wrong(*reader, header + total,
                 "surplus bytes after what its header says");
  }
  return file;
}

}  // namespace telegrad
