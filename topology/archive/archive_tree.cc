#include "topology/archive/archive_tree.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/input_file.h"
#include "base/of_flag.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kMaxEntries = 200000;
constexpr size_t kMaxTotal = 256UL * 1024 * 1024;
constexpr size_t kMaxFile = 1024UL * 1024;

struct ReaderDeleter {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, ReaderDeleter>;

// `file` outlives it.
absl::StatusOr<Reader> OpenReader(const std::string& path,
                                  const UniqueFd& file) {
  Reader reader(archive_read_new());
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_filter_bzip2(reader.get());
  archive_read_support_filter_xz(reader.get());
  archive_read_support_filter_zstd(reader.get());
  archive_read_support_format_tar(reader.get());
  constexpr size_t kBlock = 65536;
  if (archive_read_open_fd(reader.get(), file.get(), kBlock) != ARCHIVE_OK) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", archive_error_string(reader.get())));
  }
  return reader;
}

// Appends what the entry holds, `total` counts what was unpacked.
absl::Status ReadEntry(archive* reader, const std::string& path,
                       std::string* text, size_t* total) {
  std::array<char, 16384> buffer{};
  while (true) {
    const la_ssize_t got =
        archive_read_data(reader, buffer.data(), buffer.size());
    if (got == 0) return absl::OkStatus();
    if (got < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", archive_error_string(reader)));
    }
    const auto size = static_cast<size_t>(got);
    *total += size;
    if (*total > kMaxTotal) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": holds more than ", kMaxTotal,
                       " bytes; unpack it and name "
                       "the folder"));
    }
    text->append(buffer.data(), std::min(size, kMaxFile - text->size()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileTree>> ReadArchive(const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd file, OfFlag(path, OpenFile(path)));
  ASSIGN_OR_RETURN(const Reader reader, OpenReader(path, file));
  auto tree = std::make_unique<MemoryTree>();
  size_t total = 0;
  while (true) {
    archive_entry* entry = nullptr;
    const int rc = archive_read_next_header(reader.get(), &entry);
    if (rc == ARCHIVE_EOF) break;
    if (rc < ARCHIVE_WARN) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", archive_error_string(reader.get())));
    }
    if (tree->size() >= kMaxEntries) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": has more than ", kMaxEntries, " entries"));
    }
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr) continue;
    const auto type = archive_entry_filetype(entry);
    const char* target = archive_entry_symlink(entry);
    if (type == AE_IFLNK && target != nullptr) {
      tree->AddLink(name, target);
    } else if (type == AE_IFDIR) {
      tree->AddFolder(name);
    } else if (type == AE_IFREG) {
      std::string text;
      RETURN_IF_ERROR(ReadEntry(reader.get(), path, &text, &total));
      tree->AddFile(name, std::move(text));
    }
  }
  return std::unique_ptr<FileTree>(std::move(tree));
}

}  // namespace telegrad
