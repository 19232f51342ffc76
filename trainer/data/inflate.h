#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/input_file.h"

namespace telegrad {

// The first of `paths`, each as it is and then with ".gz", that is a file. A
// folder of that name is passed over, and named where there is nothing else.
absl::StatusOr<std::string> FindDataFile(const std::vector<std::string>& paths);

// Reads a file that may be gzip from the front to the end: a series of members
// (RFC 1952, 2.2), behind which zeros may follow. Errors name the file. One
// thread.
class InflateReader {
 public:
  // As OpenFile; InvalidArgument, too, when it is packed in another way.
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
  InflateReader(std::string path, InputStream file);
  absl::Status Fill();
  absl::Status Start();
  absl::Status Inflate();
  absl::Status EndMember();
  // The place in the file of the next byte that has not been consumed.
  uint64_t file_offset() const { return bytes_read_ - stream_.avail_in; }

  const std::string path_;
  const InputStream file_;
  std::vector<uint8_t> input_;
  z_stream stream_{};
  uint64_t bytes_read_ = 0;
  bool is_gzip_ = false;
  bool is_ended_ = false;  // the last gzip member has ended
};

}  // namespace telegrad
