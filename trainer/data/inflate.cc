#include "trainer/data/inflate.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/of_flag.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kInputBytes = 64 * 1024;
constexpr int kGzipWindow = 15 + 16;  // zlib: largest window, gzip header

// What no text and no data set begins with.
struct Packing {
  const char* name;
  absl::string_view magic;
};
constexpr Packing kNotRead[] = {{"xz", "\xfd\x37zXZ"},
                                {"zstd", "\x28\xb5\x2f\xfd"},
                                {"bzip2", "BZh91AY&SY"},
                                {"zip", "PK\x03\x04"}};

}  // namespace

absl::StatusOr<std::string> FindDataFile(
    const std::vector<std::string>& paths) {
  absl::Status wrong;
  for (const std::string& path : paths) {
    for (const char* packed : {"", ".gz"}) {
      const std::string file = path + packed;
      const absl::Status opened = OpenFile(file).status();
      if (opened.ok()) return file;
      if (!absl::IsNotFound(opened)) wrong.Update(OfFlag(file, opened));
    }
  }
  RETURN_IF_ERROR(wrong);
  return absl::NotFoundError(
      absl::StrCat(paths[0], ": no such file, nor with .gz"));
}

absl::StatusOr<std::unique_ptr<InflateReader>> InflateReader::Open(
    const std::string& path) {
  ASSIGN_OR_RETURN(InputStream file, OfFlag(path, OpenStream(path)));
  std::unique_ptr<InflateReader> reader(
      new InflateReader(path, std::move(file)));
  RETURN_IF_ERROR(reader->Start());
  return reader;
}

InflateReader::InflateReader(std::string path, InputStream file)
    : path_(std::move(path)), file_(std::move(file)), input_(kInputBytes) {}

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
  const absl::string_view start(reinterpret_cast<const char*>(input_.data()),
                                stream_.avail_in);
  for (const Packing& packing : kNotRead) {
    if (!absl::StartsWith(start, packing.magic)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": is packed by ", packing.name,
                     "; gzip and plain files are read: unpack it first"));
  }
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
  return EndMember();
}

absl::Status InflateReader::EndMember() {
  RETURN_IF_ERROR(Fill());
  if (stream_.avail_in > 0 && *stream_.next_in == 0x1f) {
    inflateReset(&stream_);
    return absl::OkStatus();
  }
  is_ended_ = true;
  while (stream_.avail_in > 0) {
    if (*stream_.next_in != 0) {
      return absl::DataLossError(
          absl::StrCat(path_, ": byte ", file_offset(),
                       ": surplus bytes after the gzip data"));
    }
    ++stream_.next_in;
    --stream_.avail_in;
    RETURN_IF_ERROR(Fill());
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
