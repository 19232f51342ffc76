#include "trainer/checkpoint/checkpoint_part.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "trainer/checkpoint/digest.h"

namespace telegrad {
namespace {

constexpr char kMagic[] = "TGCKPART";
constexpr size_t kMagicBytes = 8;
constexpr size_t kBlockHeadBytes = 8;

// Little-endian, as everything here.
template <typename T>
std::string Number(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return bytes;
}

template <typename T>
T NumberOf(const char* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat(what, " ", path, ": ", std::strerror(errno)));
}

}  // namespace

struct PartWriter::Sum {
  Sha256 sha;
};

absl::StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(
    const std::string& path) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Failed("create", path);
  std::unique_ptr<PartWriter> writer(new PartWriter(path, fd));
  RETURN_IF_ERROR(writer->Append(absl::StrCat(
      absl::string_view(kMagic, kMagicBytes), Number(kPartVersion))));
  return writer;
}

PartWriter::PartWriter(std::string path, int fd)
    : path_(std::move(path)), fd_(fd), sum_(std::make_unique<Sum>()) {
  block_.reserve(kPartBlockBytes);
}

PartWriter::~PartWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status PartWriter::Add(absl::string_view name, absl::string_view bytes) {
  RETURN_IF_ERROR(
      Append(absl::StrCat(Number(static_cast<uint32_t>(name.size())), name,
                          Number(uint64_t{bytes.size()}))));
  return Append(bytes);
}

absl::Status PartWriter::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t count =
        std::min(bytes.size(), kPartBlockBytes - block_.size());
    block_.append(bytes.data(), count);
    bytes.remove_prefix(count);
    if (block_.size() == kPartBlockBytes) RETURN_IF_ERROR(WriteBlock());
  }
  return absl::OkStatus();
}

absl::Status PartWriter::WriteBlock() {
  const std::string whole =
      absl::StrCat(Number(static_cast<uint32_t>(block_.size())),
                   Number(Crc32c(block_.data(), block_.size())), block_);
  sum_->sha.Add(whole.data(), whole.size());
  absl::string_view left = whole;
  while (!left.empty()) {
    const ssize_t written = write(fd_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write", path_);
    left.remove_prefix(static_cast<size_t>(written));
  }
  block_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::string> PartWriter::Finish() {
  RETURN_IF_ERROR(Append(Number(uint32_t{0})));
  if (!block_.empty()) RETURN_IF_ERROR(WriteBlock());
  // After an error of fsync or close nobody knows what is on the disk: the
  // attempt is void, and neither is tried again.
  if (fsync(fd_) != 0) return Failed("fsync", path_);
  if (close(std::exchange(fd_, -1)) != 0) return Failed("close", path_);
  return sum_->sha.Hex();
}

absl::StatusOr<std::unique_ptr<PartReader>> PartReader::Open(
    const std::string& path) {
  ASSIGN_OR_RETURN(InputStream file,
                   OfFlag(path, OpenStream(path, Links::kRefuse)));
  return Begin(path, std::move(file));
}

absl::StatusOr<std::unique_ptr<PartReader>> PartReader::Begin(
    const std::string& path, InputStream file) {
  std::unique_ptr<PartReader> reader(new PartReader(path, std::move(file)));
  char head[kMagicBytes + 4] = {};
  RETURN_IF_ERROR(reader->Read(head, sizeof(head)));
  if (std::memcmp(head, kMagic, kMagicBytes) != 0) {
    return reader->Wrong("no part of a checkpoint begins so");
  }
  if (const auto version = NumberOf<uint32_t>(head + kMagicBytes);
      version != kPartVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": format version ", version,
                     ", this program reads ", kPartVersion));
  }
  return reader;
}

absl::Status PartReader::Wrong(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, ": block at byte ", offset_,
                                          ", its byte ", used_, ": ", what));
}

absl::Status PartReader::ReadBlock() {
  if (!block_.empty()) offset_ += kBlockHeadBytes + block_.size();
  block_.clear();
  used_ = 0;
  char head[kBlockHeadBytes];
  if (std::fread(head, 1, sizeof(head), file_.get()) < sizeof(head)) {
    return Wrong("the file ends here");
  }
  const auto size = NumberOf<uint32_t>(head);
  if (size == 0 || size > kPartBlockBytes) {
    return Wrong(absl::StrCat("a block of ", size, " bytes"));
  }
  std::string block(size, '\0');
  if (std::fread(block.data(), 1, size, file_.get()) < size) {
    return Wrong("the file ends within it");
  }
  if (Crc32c(block.data(), size) != NumberOf<uint32_t>(head + 4)) {
    return Wrong("its CRC-32C is another");
  }
  block_ = std::move(block);
  return absl::OkStatus();
}

absl::Status PartReader::Read(void* to, size_t size) {
  auto* out = static_cast<char*>(to);
  while (size > 0) {
    if (used_ == block_.size()) RETURN_IF_ERROR(ReadBlock());
    const size_t count = std::min(size, block_.size() - used_);
    std::memcpy(out, block_.data() + used_, count);
    used_ += count;
    out += count;
    size -= count;
  }
  return absl::OkStatus();
}

absl::Status PartReader::Skip(uint64_t size) {
  while (size > 0) {
    if (used_ == block_.size()) RETURN_IF_ERROR(ReadBlock());
    const auto count = std::min<uint64_t>(size, block_.size() - used_);
    used_ += static_cast<size_t>(count);
    size -= count;
  }
  return absl::OkStatus();
}

absl::StatusOr<PartReader::Field> PartReader::Next() {
  char head[8];
  RETURN_IF_ERROR(Read(head, 4));
  const auto name_size = NumberOf<uint32_t>(head);
  Field field;
  if (name_size == 0) return field;
  if (name_size > kMostFieldName) {
    return Wrong(absl::StrCat("a name of ", name_size, " bytes"));
  }
  field.name.resize(name_size);
  RETURN_IF_ERROR(Read(field.name.data(), name_size));
  if (absl::c_any_of(field.name, absl::ascii_iscntrl)) {
    return Wrong("a name with control characters");  // it would be printed
  }
  RETURN_IF_ERROR(Read(head, 8));
  field.size = NumberOf<uint64_t>(head);
  return field;
}

absl::Status PartReader::Expect(absl::string_view name, uint64_t size) {
  ASSIGN_OR_RETURN(const Field field, Next());
  if (field.name == name && field.size == size) return absl::OkStatus();
  return Wrong(absl::StrCat("field '", field.name, "' of ", field.size,
                            " bytes, where '", name, "' of ", size,
                            " belongs"));
}

}  // namespace telegrad
