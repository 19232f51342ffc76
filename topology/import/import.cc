#include "topology/import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "topology/import/hwloc_xml.h"
#include "topology/import/nccl_xml.h"
#include "topology/import/xml.h"
#include "topology/machine_json.h"

namespace telegrad {
namespace {

constexpr size_t kMaxFile = size_t{16} << 20;
constexpr char kWhatIsRead[] =
    "a dump of telegrad-topo (JSON), NCCL's topology XML (NCCL_TOPO_DUMP_FILE) "
    "or hwloc's XML (lstopo FILE.xml) is read";

class File {
 public:
  explicit File(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const File file(path);
  if (file.fd() < 0) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  struct stat info {};
  if (fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a file"));
  }
  std::string text;
  char buffer[65536];
  ssize_t size = 0;
  while ((size = read(file.fd(), buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(size));
    if (text.size() > kMaxFile) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": more than 16 MiB; ", kWhatIsRead));
    }
  }
  if (size < 0) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return text;
}

absl::StatusOr<Machine> MachineFromXml(absl::string_view text) {
  ASSIGN_OR_RETURN(const topology_import::XmlElement root,
                   topology_import::ParseXml(text));
  if (root.name == "system") return topology_import::MachineFromNcclXml(root);
  if (root.name == "topology") {
    return topology_import::MachineFromHwlocXml(root);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("XML of <", root.name, ">; ", kWhatIsRead));
}

}  // namespace

absl::StatusOr<Machine> MachineFromText(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");  // a byte order mark
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(text);
  if (absl::StartsWith(start, "{")) return MachineFromJson(start);
  if (absl::StartsWith(start, "<")) return MachineFromXml(start);
  return absl::InvalidArgumentError(
      absl::StrCat("neither JSON nor XML; ", kWhatIsRead));
}

absl::StatusOr<Machine> MachineFromFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<Machine> machine = MachineFromText(text);
  if (!machine.ok()) {
    return absl::Status(machine.status().code(),
                        absl::StrCat(path, ": ", machine.status().message()));
  }
  machine->source = path;
  return machine;
}

}  // namespace telegrad
