#include "transport/ofi/provider.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/socket.h"
#include "base/status_macros.h"

namespace telegrad::ofi {
namespace {

constexpr uint32_t kApi = FI_VERSION(1, 17);
constexpr absl::string_view kShmPrefix = "fi_shm://";

// net is tcp without the layer ofi_rxm; from libfabric 1.18 on it is tcp.
const std::vector<std::string>& TcpProviders() {
  static const auto* const names =
      new std::vector<std::string>{"net", "tcp;ofi_rxm", "tcp"};
  return *names;
}

absl::StatusOr<std::vector<std::string>> Candidates(
    const TransportOptions& options) {
  const std::string& tls = options.tls;
  if (tls == "tcp") return TcpProviders();
  if (tls == "shm" || tls == "efa") return std::vector<std::string>{tls};
  if (tls == "verbs") return std::vector<std::string>{"verbs;ofi_rxm"};
  if (tls.empty()) {
    std::vector<std::string> names;
    const auto addresses = Resolve(options.bind_address, 0);
    if (addresses.ok() && !IsLoopback(addresses->front())) {
      names = {"efa", "verbs;ofi_rxm"};
    }
    names.insert(names.end(), TcpProviders().begin(), TcpProviders().end());
    return names;
  }
  const bool is_name = std::all_of(tls.begin(), tls.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == ';';
  });
  if (is_name) return std::vector<std::string>{tls};
  return absl::InvalidArgumentError(
      absl::StrCat("transport ofi: tls \"", tls,
                   "\" is none of tcp, shm, verbs, efa, \"\", and no name of "
                   "a libfabric provider"));
}

InfoPtr MakeHints(const std::string& provider) {
  InfoPtr hints(fi_allocinfo());
  if (hints == nullptr) return hints;
  hints->caps = FI_MSG;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  return hints;
}

// Only these are found by an IP address of this machine.
bool HasIpAddress(const std::string& provider) {
  return provider != "shm" && provider != "efa";
}

int Query(const std::string& provider, const std::string& bind, uint64_t caps,
          InfoPtr* info) {
  const InfoPtr hints = MakeHints(provider);
  if (hints == nullptr) return FI_ENOMEM;
  hints->caps |= caps;
  fi_info* found = nullptr;
  if ((caps & FI_HMEM) != 0) hints->domain_attr->mr_mode |= FI_MR_HMEM;
  const bool by_ip = HasIpAddress(provider) && !bind.empty();
  const int result =
      fi_getinfo(kApi, by_ip ? bind.c_str() : nullptr, nullptr,
                 by_ip ? FI_SOURCE | FI_NUMERICHOST : 0, hints.get(), &found);
  info->reset(found);
  return -result;
}

// What the environment has that takes providers and interfaces away.
std::string SetForLibfabric() {
  std::string set;
  for (const char* name : {"FI_PROVIDER", "FI_PROVIDER_PATH", "FI_TCP_IFACE",
                           "FI_SOCKETS_IFACE", "FI_VERBS_IFACE"}) {
    const char* value = getenv(name);
    if (value != nullptr) absl::StrAppend(&set, " ", name, "=", value);
  }
  return set;
}

}  // namespace

absl::Status FabricError(absl::string_view what, int code) {
  const std::string text = absl::StrCat(what, ": ", fi_strerror(code));
  switch (code) {
    case FI_EINVAL:
      return absl::InvalidArgumentError(text);
    case FI_ENOMEM:
    case FI_EMFILE:
    case FI_ENOSPC:
      return absl::ResourceExhaustedError(text);
    case FI_ENOSYS:
    case FI_EOPNOTSUPP:
      return absl::UnimplementedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::Status CheckFi(absl::string_view what, int result) {
  return result == 0 ? absl::OkStatus() : FabricError(what, -result);
}

absl::StatusOr<InfoPtr> ChooseProvider(const TransportOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Candidates(options));
  int error = 0;
  for (const std::string& name : names) {
    InfoPtr info;
    if (options.memory == "direct" &&
        Query(name, options.bind_address, FI_TAGGED | FI_HMEM, &info) == 0 &&
        HasDeviceMemory(*info)) {
      return info;
    }
    // Tagged messages are for large payloads; all do without if need be.
    error = Query(name, options.bind_address, FI_TAGGED, &info);
    if (error != 0) error = Query(name, options.bind_address, 0, &info);
    if (error == 0) return info;
  }
  const std::string message = absl::StrCat(
      "transport ofi: libfabric has no reliable datagram endpoint of ",
      absl::StrJoin(names, ", "), " for ", options.bind_address, ": ",
      fi_strerror(error), "; see `fi_info -t FI_EP_RDM`");
  const std::string set = SetForLibfabric();
  if (!set.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        message, "; the environment has", set,
        ", which may be meant for another program: unset it for this one"));
  }
  if (options.tls.empty()) return absl::UnavailableError(message);
  return absl::InvalidArgumentError(message);  // asked for by name
}

bool IsShm(const fi_info& info) {
  return absl::string_view(info.fabric_attr->prov_name) == "shm";
}

bool ChecksPackets(const fi_info& info) {
  const absl::string_view name = info.fabric_attr->prov_name;
  return absl::StrContains(name, "verbs") || absl::StrContains(name, "efa");
}

// ofi_rxm takes 70 MiB for an endpoint, and 1.17's crashes when one of several
// at a completion queue ends.
bool HasLanes(const fi_info& info) {
  return !IsShm(info) && (info.caps & FI_TAGGED) != 0 &&
         !absl::StrContains(info.fabric_attr->prov_name, "ofi_rxm");
}

bool HasDeviceMemory(const fi_info& info) {
  return (info.caps & FI_HMEM) != 0 && HasLanes(info);
}

std::string Describe(const fi_info& info) {
  const uint32_t version = fi_version();
  std::string text =
      absl::StrCat("libfabric ", FI_MAJOR(version), ".", FI_MINOR(version),
                   ", provider ", info.fabric_attr->prov_name, " ",
                   FI_MAJOR(info.fabric_attr->prov_version), ".",
                   FI_MINOR(info.fabric_attr->prov_version), ", domain ",
                   info.domain_attr->name);
  if (info.nic != nullptr && info.nic->device_attr != nullptr &&
      info.nic->device_attr->name != nullptr) {
    absl::StrAppend(&text, ", card ", info.nic->device_attr->name);
  }
  if (info.nic != nullptr && info.nic->link_attr != nullptr) {
    absl::StrAppend(&text, ", ", info.nic->link_attr->speed, " bit/s");
  }
  if ((info.domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    absl::StrAppend(&text, ", registered memory");
  }
  InfoPtr with_device_memory;
  const int error =
      Query(info.fabric_attr->prov_name, "", FI_HMEM, &with_device_memory);
  return absl::StrCat(text, ", FI_HMEM ", error == 0 ? "yes" : "no");
}

std::string FabricIdentity(const fi_info& info) {
  std::string identity = info.fabric_attr->prov_name;
  if (!IsShm(info)) return identity;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  absl::StrAppend(&identity, " ", boot, " uid:", geteuid());
  for (const char* name : {"pid", "ipc", "user", "mnt"}) {
    std::error_code error;
    absl::StrAppend(&identity, " ",
                    std::filesystem::read_symlink(
                        absl::StrCat("/proc/self/ns/", name), error)
                        .string());
  }
  return identity;
}

bool IsAddressLike(const fi_info& info, absl::string_view own,
                   absl::string_view peers) {
  if (info.addr_format != FI_ADDR_STR) {
    if (peers.size() != own.size()) return false;
    const bool is_socket = info.addr_format == FI_SOCKADDR ||
                           info.addr_format == FI_SOCKADDR_IN ||
                           info.addr_format == FI_SOCKADDR_IN6;
    // The family must be the same, or libfabric reads beyond the end.
    return !is_socket || own.substr(0, sizeof(sa_family_t)) ==
                             peers.substr(0, sizeof(sa_family_t));
  }
  // A name in /dev/shm, "PID:UID:N" of this user, since it may be removed: no
  // path, and with the end that a C string needs.
  if (!absl::StartsWith(peers, kShmPrefix) || peers.back() != '\0' ||
      peers.size() > kShmPrefix.size() + 64) {
    return false;
  }
  const absl::string_view name =
      peers.substr(kShmPrefix.size(), peers.size() - kShmPrefix.size() - 1);
  const std::vector<absl::string_view> parts = absl::StrSplit(name, ':');
  const auto is_number = [](absl::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return absl::ascii_isdigit(static_cast<unsigned char>(c));
    });
  };
  return parts.size() >= 3 && absl::c_all_of(parts, is_number) &&
         parts[1] == absl::StrCat(getuid());
}

int ShmProcess(const std::string& peers) {
  if (!absl::StartsWith(peers, kShmPrefix)) return 0;
  const std::string name = peers.c_str() + kShmPrefix.size();  // "PID:UID:N"
  int process = 0;
  return absl::SimpleAtoi(name.substr(0, name.find(':')), &process) ? process
                                                                    : 0;
}

bool RemoveLeftovers(const fi_info& info, const std::string& peers) {
  if (!IsShm(info)) return true;
  const std::string name = peers.c_str() + kShmPrefix.size();  // "PID:UID:N"
  const std::string pid = name.substr(0, name.find(':'));
  // A process that is being killed has lost its memory before its sockets,
  // and then is a zombie for as long as its parent likes.
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  long pages = 0;
  if (statm.is_open() && statm >> pages && pages > 0) return false;
  (void)shm_unlink(absl::StrCat("/", name).c_str());
  return true;
}

namespace {

// How long this process has been there; 0: unknown.
double OwnAge() {
  std::ifstream file("/proc/self/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  // The program's name may have spaces: field 22 is the 20th behind it.
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(stat).substr(stat.rfind(')') + 1), ' ');
  double ticks = 0;
  timespec now{};
  if (fields.size() < 21 || !absl::SimpleAtod(fields[20], &ticks) ||
      clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
    return 0;
  }
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec) -
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

void RemoveForerunners(const fi_info& info) {
  namespace fs = std::filesystem;
  const double age = OwnAge();
  if (!IsShm(info) || age <= 0) return;
  const std::string own = absl::StrCat(getpid(), ":", getuid(), ":");
  std::error_code error;
  for (const fs::directory_entry& each :
       fs::directory_iterator("/dev/shm", error)) {
    if (!absl::StartsWith(each.path().filename().string(), own)) continue;
    const auto written = fs::last_write_time(each.path(), error);
    const std::chrono::duration<double> since =
        fs::file_time_type::clock::now() - written;
    if (!error && since.count() > age) fs::remove(each.path(), error);
  }
}

}  // namespace telegrad::ofi
