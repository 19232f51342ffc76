#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/input_file.h"

namespace telegrad {

// What one member puts into a checkpoint (docs/checkpoints.md, byte by byte):
// blocks of at most 1 MiB, each with its CRC-32C; within them "TGCKPART", the
// version, and fields, each a name, a size and bytes, ended by an empty name.
inline constexpr uint32_t kPartVersion = 2;
inline constexpr size_t kPartBlockBytes = size_t{1} << 20;
inline constexpr size_t kMostFieldName = 1024;

// Writes a new file, which nobody else may read. One thread.
class PartWriter {
 public:
  // Unavailable, as all errors, names the file; it must not be there.
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(
      const std::string& path);
  ~PartWriter();
  absl::Status Add(absl::string_view name, absl::string_view bytes);
  // The last call: what was added is on the disk afterwards. The file's
  // SHA-256.
  absl::StatusOr<std::string> Finish();

 private:
  PartWriter(std::string path, int fd);
  absl::Status Append(absl::string_view bytes);
  absl::Status WriteBlock();

  const std::string path_;
  int fd_;
  std::string block_;
  struct Sum;
  std::unique_ptr<Sum> sum_;
};

// Reads fields in the order in which they were written. Memory follows what the
// caller expects, not what the file says. DataLoss names the file and where in
// it. One thread.
class PartReader {
 public:
  static absl::StatusOr<std::unique_ptr<PartReader>> Open(
      const std::string& path);
  // Reads from an open file, which it takes; `path` is for errors.
  static absl::StatusOr<std::unique_ptr<PartReader>> Begin(
      const std::string& path, InputStream file);

  struct Field {
    std::string name;  // empty: the end
    uint64_t size = 0;
  };
  absl::StatusOr<Field> Next();
  // The bytes of the field, whole or in pieces.
  absl::Status Read(void* to, size_t size);
  absl::Status Skip(uint64_t size);
  // Name and size must be these; its bytes follow.
  absl::Status Expect(absl::string_view name, uint64_t size);

 private:
  PartReader(std::string path, InputStream file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status ReadBlock();
  absl::Status Wrong(absl::string_view what) const;

  const std::string path_;
  const InputStream file_;
  std::string block_;
  size_t used_ = 0;      // bytes of the block that were read
  uint64_t offset_ = 0;  // the block's place in the file
};

}  // namespace telegrad
