#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// What a read gave: text, or the errno of a read that failed.
struct FileText {
  std::string text = {};
  int error = 0;
};

// Files as a machine shows them, live or recorded. A path is relative to the
// root, without links and "..": "sys/class/net"; "" is the root.
class FileTree {
 public:
  enum class Kind { kNone, kFile, kFolder, kLink, kOther };
  virtual ~FileTree() = default;
  virtual Kind GetKind(const std::string& path) const = 0;
  virtual std::string LinkTarget(const std::string& path) const = 0;
  // At most `max_bytes`, the rest is cut off.
  virtual FileText Read(const std::string& path, size_t max_bytes) const = 0;
  virtual std::vector<std::string> List(const std::string& path) const = 0;
};

// A tree in memory, of an archive or of a test.
class MemoryTree : public FileTree {
 public:
  // Each makes the folders above; a later entry replaces an earlier one. False,
  // and nothing is added, for a path with "..", longer than 4096 bytes or
  // deeper than 64 folders.
  bool AddFile(absl::string_view path, std::string text);
  bool AddLink(absl::string_view path, std::string target);
  bool AddFolder(absl::string_view path);
  size_t size() const { return nodes_.size(); }

  Kind GetKind(const std::string& path) const override;
  std::string LinkTarget(const std::string& path) const override;
  FileText Read(const std::string& path, size_t max_bytes) const override;
  std::vector<std::string> List(const std::string& path) const override;

 private:
  struct Node {
    Kind kind = Kind::kFolder;
    std::string text = {};  // or the target of a link
  };
  bool Add(absl::string_view path, Node node);
  std::map<std::string, Node> nodes_;
};

// A folder of this machine; "/" is the machine itself. Links are not followed.
std::unique_ptr<FileTree> MakeFolderTree(std::string folder);

// The part of a file system that detection reads: /sys, /proc and /dev, of this
// machine or below a prefix. Paths are absolute ("/sys/class/net"). Links are
// resolved inside the root and never lead out of it. A file ERRNO at the root
// of a recorded tree lists what reads must fail with ("PATH<TAB>EINVAL"), which
// a plain tree cannot hold.
class SysRoot {
 public:
  static constexpr size_t kMaxBytes = 64 * 1024;

  static SysRoot Live();

  // A folder, or an archive (.tar, .tar.gz, .tar.bz2, .tar.xz);
  // "ARCHIVE!FOLDER" names a folder in it. Its top has sys/ (and proc/, dev/),
  // or is itself a sysfs, or holds one folder of such a form. Errors: NotFound,
  // and InvalidArgument for what is none of these.
  static absl::StatusOr<SysRoot> Open(const std::string& path);

  // As Open, for a tree at hand.
  static absl::StatusOr<SysRoot> FromTree(std::unique_ptr<FileTree> tree,
                                          std::string source,
                                          std::string folder = {});

  FileText Read(absl::string_view path, size_t max_bytes = kMaxBytes) const;
  // Sorted names, at most 65536; none when there is no such folder.
  std::vector<std::string> List(absl::string_view path) const;
  // Without links; empty when it leads nowhere.
  std::string RealPath(absl::string_view path) const;
  // The text of a link, even of a dangling one; empty when it is none.
  std::string LinkText(absl::string_view path) const;
  bool Exists(absl::string_view path) const;    // behind links
  bool HasEntry(absl::string_view path) const;  // a dangling link counts
  // Whether the tree would show `path` if the machine had it: a recorded sysfs
  // says nothing about /dev.
  bool Covers(absl::string_view path) const;

  bool is_live() const { return is_live_; }
  const std::string& source() const { return source_; }

 private:
  SysRoot() = default;
  std::string InTree(const std::string& path) const;
  FileTree::Kind KindOf(const std::string& path) const;
  bool Resolve(absl::string_view path, bool follow_last, std::string* real,
               int* error) const;
  int ListedError(const std::string& path) const;
  void ReadErrors();
  bool SettleFolder();

  std::unique_ptr<FileTree> tree_;
  std::string source_;
  std::string folder_;     // in the tree
  bool is_sysfs_ = false;  // folder_ is what /sys shows
  bool is_live_ = false;
  std::map<std::string, int> errors_;
};

}  // namespace telegrad
