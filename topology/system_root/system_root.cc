#include "topology/system_root.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace telegrad {
namespace {

constexpr int kMaxLinks = 40;
constexpr size_t kMaxSteps = 4096;

int ErrnoByName(absl::string_view name) {
  static constexpr std::pair<const char*, int> kNames[] = {
      {"EINVAL", EINVAL},  {"ENOENT", ENOENT}, {"EACCES", EACCES},
      {"EPERM", EPERM},    {"EIO", EIO},       {"ENODEV", ENODEV},
      {"ENXIO", ENXIO},    {"EBUSY", EBUSY},   {"EOPNOTSUPP", EOPNOTSUPP},
      {"ENODATA", ENODATA}};
  for (const auto& [each, value] : kNames) {
    if (name == each) return value;
  }
  return EIO;
}

// The parts of `text` at the front of `parts`.
void PushFront(absl::string_view text, std::deque<std::string>* parts) {
  const std::vector<std::string> more =
      absl::StrSplit(text, '/', absl::SkipEmpty());
  parts->insert(parts->begin(), more.begin(), more.end());
}

}  // namespace

SysRoot SysRoot::Live() {
  SysRoot root;
  root.tree_ = MakeFolderTree("/");
  root.source_ = "live";
  root.is_live_ = true;
  return root;
}

absl::StatusOr<SysRoot> SysRoot::FromTree(std::unique_ptr<FileTree> tree,
                                          std::string source,
                                          std::string folder) {
  SysRoot root;
  root.tree_ = std::move(tree);
  root.source_ = std::move(source);
  root.folder_ = absl::StrJoin(
      std::vector<std::string>(absl::StrSplit(folder, '/', absl::SkipEmpty())),
      "/");
  if (!root.SettleFolder()) {
    return absl::InvalidArgumentError(
        absl::StrCat(root.source_,
                     ": there is no sys/ and no class/ in it; give the root "
                     "of a recorded file system, or its sysfs (of an "
                     "archive that has it deeper: ARCHIVE!FOLDER)"));
  }
  root.ReadErrors();
  return root;
}

// Finds the folder that holds sys/, or that is a sysfs; one folder alone is
// looked into.
bool SysRoot::SettleFolder() {
  const auto below = [&](const char* name) {
    return folder_.empty() ? std::string(name)
                           : absl::StrCat(folder_, "/", name);
  };
  for (int depth = 0; depth < 4; ++depth) {
    if (tree_->GetKind(folder_) != FileTree::Kind::kFolder) return false;
    if (tree_->GetKind(below("sys")) == FileTree::Kind::kFolder) return true;
    is_sysfs_ = tree_->GetKind(below("class")) == FileTree::Kind::kFolder ||
                tree_->GetKind(below("bus")) == FileTree::Kind::kFolder;
    if (is_sysfs_) return true;
    const std::vector<std::string> names = tree_->List(folder_);
    if (names.size() != 1) return false;
    folder_ = below(names.front().c_str());
  }
  return false;
}

void SysRoot::ReadErrors() {
  const std::string name =
      folder_.empty() ? "ERRNO" : absl::StrCat(folder_, "/ERRNO");
  constexpr size_t kMaxManifest = 1024 * 1024;
  const FileText file = tree_->Read(name, kMaxManifest);
  if (file.error != 0 || file.text.empty()) return;
  for (const absl::string_view line : absl::StrSplit(file.text, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, '\t');
    if (parts.size() != 2 || line.front() == '#') continue;
    const absl::string_view path = absl::StripPrefix(parts[0], "/");
    errors_[std::string(path)] =
        ErrnoByName(absl::StripAsciiWhitespace(parts[1]));
  }
}

// Where the tree has `path`, which is without links.
std::string SysRoot::InTree(const std::string& path) const {
  absl::string_view rest = path;
  if (is_sysfs_) {
    rest = absl::StripPrefix(absl::StripPrefix(rest, "sys"), "/");
  }
  if (folder_.empty() || rest.empty()) return absl::StrCat(folder_, rest);
  return absl::StrCat(folder_, "/", rest);
}

FileTree::Kind SysRoot::KindOf(const std::string& path) const {
  if (path.empty()) return FileTree::Kind::kFolder;
  if (is_sysfs_ && path != "sys" && path.compare(0, 4, "sys/") != 0) {
    return FileTree::Kind::kNone;
  }
  return tree_->GetKind(InTree(path));
}

int SysRoot::ListedError(const std::string& path) const {
  if (errors_.empty()) return 0;
  const auto listed = errors_.find(path);
  return listed == errors_.end() ? 0 : listed->second;
}

bool SysRoot::Resolve(absl::string_view path, bool follow_last,
                      std::string* real, int* error) const {
  std::deque<std::string> todo;
  PushFront(path, &todo);
  *error = ListedError(absl::StrJoin(todo, "/"));
  if (*error != 0) return false;
  std::vector<std::string> done;
  int links = 0;
  for (size_t step = 0; !todo.empty(); ++step) {
    if (step > kMaxSteps || todo.size() > kMaxSteps) {
      *error = ELOOP;
      return false;
    }
    std::string part = std::move(todo.front());
    todo.pop_front();
    if (part == ".") continue;
    if (part == "..") {
      if (!done.empty()) done.pop_back();
      continue;
    }
    done.push_back(std::move(part));
    const std::string here = absl::StrJoin(done, "/");
    const FileTree::Kind kind = KindOf(here);
    *error = kind == FileTree::Kind::kNone ? ENOENT : ListedError(here);
    if (*error != 0) return false;
    if (kind != FileTree::Kind::kLink || (todo.empty() && !follow_last)) {
      continue;
    }
    const std::string target = tree_->LinkTarget(InTree(here));
    if (++links > kMaxLinks || target.empty()) {
      *error = ELOOP;
      return false;
    }
    done.pop_back();
    if (target.front() == '/') done.clear();
    PushFront(target, &todo);
  }
  *real = absl::StrJoin(done, "/");
  return true;
}

FileText SysRoot::Read(absl::string_view path, size_t max_bytes) const {
  std::string real;
  FileText result;
  if (!Resolve(path, true, &real, &result.error)) return result;
  if (KindOf(real) != FileTree::Kind::kFile) return {.error = EISDIR};
  return tree_->Read(InTree(real), max_bytes);
}

std::vector<std::string> SysRoot::List(absl::string_view path) const {
  std::string real;
  int error = 0;
  if (!Resolve(path, true, &real, &error)) return {};
  if (KindOf(real) != FileTree::Kind::kFolder) return {};
  return tree_->List(InTree(real));
}

std::string SysRoot::RealPath(absl::string_view path) const {
  std::string real;
  int error = 0;
  return Resolve(path, true, &real, &error) ? absl::StrCat("/", real) : "";
}

std::string SysRoot::LinkText(absl::string_view path) const {
  std::string real;
  int error = 0;
  if (!Resolve(path, false, &real, &error)) return "";
  return KindOf(real) == FileTree::Kind::kLink ? tree_->LinkTarget(InTree(real))
                                               : "";
}

bool SysRoot::Exists(absl::string_view path) const {
  std::string real;
  int error = 0;
  return Resolve(path, true, &real, &error);
}

bool SysRoot::HasEntry(absl::string_view path) const {
  std::string real;
  int error = 0;
  return Resolve(path, false, &real, &error);
}

bool SysRoot::Covers(absl::string_view path) const {
  if (is_live_) return true;
  const std::vector<std::string> parts =
      absl::StrSplit(path, '/', absl::SkipEmpty());
  const std::string name = absl::StrJoin(parts, "/");
  if (ListedError(name) != 0) return true;
  // The folder above it; /dev and /proc alone are enough.
  const size_t slash = name.rfind('/');
  return slash != std::string::npos && Exists(name.substr(0, slash));
}

}  // namespace telegrad
