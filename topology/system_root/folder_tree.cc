#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "topology/system_root.h"

namespace telegrad {
namespace {

constexpr size_t kMaxNames = 65536;

class FolderTree : public FileTree {
 public:
  explicit FolderTree(std::string folder) : folder_(std::move(folder)) {
    if (folder_.empty() || folder_.back() != '/') folder_ += '/';
  }

  Kind GetKind(const std::string& path) const override {
    // The folder itself may be named through a link.
    struct stat info {};
    const std::string name = folder_ + path;
    const int rc = path.empty() ? ::stat(name.c_str(), &info)
                                : ::lstat(name.c_str(), &info);
    if (rc != 0) return Kind::kNone;
    if (S_ISDIR(info.st_mode)) return Kind::kFolder;
    if (S_ISREG(info.st_mode)) return Kind::kFile;
    return S_ISLNK(info.st_mode) ? Kind::kLink : Kind::kOther;
  }

  std::string LinkTarget(const std::string& path) const override {
    std::array<char, PATH_MAX> target{};
    const ssize_t size =
        ::readlink((folder_ + path).c_str(), target.data(), target.size());
    return size > 0 ? std::string(target.data(), static_cast<size_t>(size))
                    : "";
  }

  FileText Read(const std::string& path, size_t max_bytes) const override {
    // A pipe or a device must not hold us up.
    const int fd = ::open((folder_ + path).c_str(),
                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return {.error = errno};
    struct stat info {};
    FileText result;
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      result.error = EINVAL;
    } else {
      result = ReadAll(fd, max_bytes);
    }
    ::close(fd);
    return result;
  }

  std::vector<std::string> List(const std::string& path) const override {
    std::vector<std::string> names;
    DIR* folder = ::opendir((folder_ + path).c_str());
    if (folder == nullptr) return names;
    while (const dirent* entry = ::readdir(folder)) {
      std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (names.size() == kMaxNames) break;
      names.push_back(std::move(name));
    }
    ::closedir(folder);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static FileText ReadAll(int fd, size_t max_bytes) {
    FileText result;
    std::array<char, 16384> buffer{};
    while (result.text.size() < max_bytes) {
      const size_t wanted =
          std::min(buffer.size(), max_bytes - result.text.size());
      const ssize_t got = ::read(fd, buffer.data(), wanted);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return {.error = errno};
      if (got == 0) break;
      result.text.append(buffer.data(), static_cast<size_t>(got));
    }
    return result;
  }

  std::string folder_;
};

}  // namespace

std::unique_ptr<FileTree> MakeFolderTree(std::string folder) {
  return std::make_unique<FolderTree>(std::move(folder));
}

}  // namespace telegrad
