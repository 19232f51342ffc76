#include "trainer/data/inflate.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kInputBytes = 64 * 1024;
constexpr int kGzipWindow = 15 + 16;  // zlib: largest window, gzip header

}  // namespace

absl::StatusOr<std::unique_ptr<InflateReader>> InflateReader::Open(
    const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) {
    const int code = errno;
    const std::string message = absl::StrCat(path, ": ", std::strerror(code));
    return code == ENOENT ? absl::NotFoundError(message)
                          : absl::InvalidArgumentError(message);
  }
  std::unique_ptr<InflateReader> reader(new InflateReader(path, file));
  RETURN_IF_ERROR(reader->Start());
  return reader;
}

InflateReader::InflateReader(std::string path, std::FILE* file)
    : path_(std::move(path)), file_(file), input_(kInputBytes) {}

InflateReader::~InflateReader() {
  if (is_gzip_) inflateEnd(&stream_);
}

absl::Status InflateReader::Fill() {
  if (stream_.avail_in > 0) return absl::OkStatus();
  const size_t got = std::fread(input_.data(), 1, input_.size(), file_.get());
  if (got < input_.size() && std::ferror(file_.get())) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, ": byte ", bytes_read_ + got, ": ", std::strerror(errno)));
  }
  bytes_read_ += got;
  stream_.next_in = input_.data();
  stream_.avail_in = static_cast<uInt>(got);
  return absl::OkStatus();
}

absl::Status InflateReader::Start() {
  RETURN_IF_ERROR(Fill());
  if (stream_.avail_in < 2 || input_[0] != 0x1f || input_[1] != 0x8b) {
    return absl::OkStatus();
  }
  if (inflateInit2(&stream_, kGzipWindow) != Z_OK) {
    return absl::InternalError(absl::StrCat(path_, ": zlib did not start"));
  }
  is_gzip_ = true;
  return absl::OkStatus();
}

absl::Status InflateReader::Inflate() {
  const int code = inflate(&stream_, Z_NO_FLUSH);
  if (code == Z_OK || code == Z_BUF_ERROR) return absl::OkStatus();
  if (code != Z_STREAM_END) {
    return absl::DataLossError(absl::StrCat(
        path_, ": byte ", file_offset(),
        ": not gzip: ", stream_.msg != nullptr ? stream_.msg : "zlib error"));
  }
  is_ended_ = true;
  RETURN_IF_ERROR(Fill());
  if (stream_.avail_in > 0) {
    return absl::DataLossError(
        absl::StrCat(path_, ": byte ", file_offset(),
                     ": surplus bytes after the gzip data"));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> InflateReader::Read(uint8_t* to, size_t size) {
  size_t done = 0;
  while (done < size && !is_ended_) {
    RETURN_IF_ERROR(Fill());
    if (stream_.avail_in == 0) {
      if (!is_gzip_) break;
      return absl::DataLossError(absl::StrCat(path_, ": byte ", bytes_read_,
                                              ": the gzip data is cut off"));
    }
    const size_t room =
        std::min<size_t>(size - done, std::numeric_limits<uInt>::max());
    if (!is_gzip_) {
      const size_t part = std::min<size_t>(room, stream_.avail_in);
      std::memcpy(to + done, stream_.next_in, part);
      stream_.next_in += part;
      stream_.avail_in -= static_cast<uInt>(part);
      done += part;
      continue;
    }
    stream_.next_out = to + done;
    stream_.avail_out = static_cast<uInt>(room);
    RETURN_IF_ERROR(Inflate());
    done += room - stream_.avail_out;
  }
  return done;
}

}  // namespace telegrad
