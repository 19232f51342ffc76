#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace telegrad {

// Reads a file that may be gzip (one member) from the front to the end. Errors
// name the file. One thread.
class InflateReader {
 public:
  // NotFound when there is no such file.
  static absl::StatusOr<std::unique_ptr<InflateReader>> Open(
      const std::string& path);
  ~InflateReader();
  InflateReader(const InflateReader&) = delete;
  InflateReader& operator=(const InflateReader&) = delete;

  // Up to `size` bytes into `to`; fewer only at the end. DataLoss names the
  // byte offset in the file, as it lies on the disk, of what is not gzip.
  absl::StatusOr<size_t> Read(uint8_t* to, size_t size);

  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  InflateReader(std::string path, std::FILE* file);
  absl::Status Fill();
  absl::Status Start();
  absl::Status Inflate();
  // Of the next byte that has not been consumed.
  uint64_t file_offset() const { return bytes_read_ - stream_.avail_in; }

  const std::string path_;
  const std::unique_ptr<std::FILE, Close> file_;
  std::vector<uint8_t> input_;
  z_stream stream_{};
  uint64_t bytes_read_ = 0;
  bool is_gzip_ = false;
  bool is_ended_ = false;  // of the gzip member
};

}  // namespace telegrad
