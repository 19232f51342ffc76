#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "topology/system_root.h"

namespace telegrad {
namespace {

constexpr size_t kMaxPath = 4096;
constexpr size_t kMaxDepth = 64;

}  // namespace

bool MemoryTree::Add(absl::string_view path, Node node) {
  if (path.size() > kMaxPath) return false;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(path, '/', absl::SkipEmpty());
  std::vector<absl::string_view> kept;
  for (const absl::string_view part : parts) {
    if (part == "..") return false;
    if (part != ".") kept.push_back(part);
  }
  if (kept.empty() || kept.size() > kMaxDepth) return false;
  std::string name;
  for (size_t i = 0; i + 1 < kept.size(); ++i) {
    absl::StrAppend(&name, i == 0 ? "" : "/", kept[i]);
    nodes_.try_emplace(name);
  }
  absl::StrAppend(&name, kept.size() == 1 ? "" : "/", kept.back());
  nodes_[name] = std::move(node);
  return true;
}

bool MemoryTree::AddFile(absl::string_view path, std::string text) {
  return Add(path, {.kind = Kind::kFile, .text = std::move(text)});
}

bool MemoryTree::AddLink(absl::string_view path, std::string target) {
  return Add(path, {.kind = Kind::kLink, .text = std::move(target)});
}

bool MemoryTree::AddFolder(absl::string_view path) { return Add(path, {}); }

FileTree::Kind MemoryTree::GetKind(const std::string& path) const {
  if (path.empty()) return Kind::kFolder;
  const auto node = nodes_.find(path);
  return node == nodes_.end() ? Kind::kNone : node->second.kind;
}

std::string MemoryTree::LinkTarget(const std::string& path) const {
  const auto node = nodes_.find(path);
  const bool is_link = node != nodes_.end() && node->second.kind == Kind::kLink;
  return is_link ? node->second.text : "";
}

FileText MemoryTree::Read(const std::string& path, size_t max_bytes) const {
  const auto node = nodes_.find(path);
  if (node == nodes_.end()) return {.error = ENOENT};
  if (node->second.kind != Kind::kFile) return {.error = EISDIR};
  return {.text = node->second.text.substr(0, max_bytes)};
}

std::vector<std::string> MemoryTree::List(const std::string& path) const {
  const std::string prefix = path.empty() ? "" : path + "/";
  std::vector<std::string> names;
  auto each = nodes_.lower_bound(prefix);
  while (each != nodes_.end() &&
         each->first.compare(0, prefix.size(), prefix) == 0) {
    const size_t slash = each->first.find('/', prefix.size());
    if (slash == std::string::npos) {
      names.push_back(each->first.substr(prefix.size()));
      ++each;
    } else {  // past all that is below: '0' follows '/'
      each = nodes_.lower_bound(each->first.substr(0, slash) + '0');
    }
  }
  return names;
}

}  // namespace telegrad
