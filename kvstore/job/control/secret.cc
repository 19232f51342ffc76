#include "kvstore/job/control/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "transport/crypto.h"

namespace telegrad {
namespace {

constexpr size_t kMaxFileBytes = 4096;  // a key, not a document
constexpr char kSalt[] = "telegrad job key v1";

absl::Status Refused(absl::Status status) {
  return WithExitCode(ExitCode::kAuthentication, std::move(status));
}

std::string About(const std::string& path) {
  return absl::StrCat("secret file \"", path, "\": ");
}

// What makes the open file unfit to hold a secret.
absl::Status CheckFile(const std::string& path, const struct stat& file) {
  if (!S_ISREG(file.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(About(path), "is not a regular file"));
  }
  if (file.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        About(path), "belongs to user ", file.st_uid, ", this process is user ",
        geteuid(), "; use a file of your own"));
  }
  if ((file.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%smode %04o lets others in; run: chmod 600 %s",
                        About(path), file.st_mode & 07777, path));
  }
  if (file.st_size < static_cast<off_t>(Secret::kMinFileBytes)) {
    return absl::FailedPreconditionError(
        absl::StrCat(About(path), "holds ", file.st_size, " bytes, at least ",
                     Secret::kMinFileBytes,
                     " are needed; run: openssl rand -hex 32 > ", path));
  }
  if (file.st_size > static_cast<off_t>(kMaxFileBytes)) {
    return absl::FailedPreconditionError(
        absl::StrCat(About(path), "holds ", file.st_size, " bytes, at most ",
                     kMaxFileBytes, " are allowed"));
  }
  return absl::OkStatus();
}

// Bytes that are wiped when they go.
struct Material {
  ~Material() { OPENSSL_cleanse(bytes.data(), bytes.size()); }
  std::array<char, kMaxFileBytes + 1> bytes{};
  size_t size = 0;
};

absl::Status ReadAll(int fd, const std::string& path, Material* material) {
  while (material->size < material->bytes.size()) {
    const ssize_t got = read(fd, material->bytes.data() + material->size,
                             material->bytes.size() - material->size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::UnavailableError(
          absl::StrCat(About(path), "read: ", std::strerror(errno)));
    }
    if (got == 0) break;
    material->size += static_cast<size_t>(got);
  }
  if (material->size > kMaxFileBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(About(path), "grew while it was read"));
  }
  return absl::OkStatus();
}

absl::Status ReadSecretFile(const std::string& path, Material* material) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const UniqueFd fd(
      open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) {
    const int error = errno;
    if (error == ELOOP) {
      return absl::FailedPreconditionError(absl::StrCat(
          About(path), "is a symbolic link; name the file itself"));
    }
    return absl::NotFoundError(
        absl::StrCat(About(path), std::strerror(error),
                     "; openssl rand -hex 32 makes what such a file holds"));
  }
  struct stat file {};
  if (fstat(fd.get(), &file) != 0) {
    return absl::UnavailableError(
        absl::StrCat(About(path), std::strerror(errno)));
  }
  RETURN_IF_ERROR(CheckFile(path, file));
  return ReadAll(fd.get(), path, material);
}

}  // namespace

ConnectionKey Secret::ForConnections() const {
  if (!has_key_) return nullptr;
  return MakeConnectionKey(
      {reinterpret_cast<const char*>(key_.data()), key_.size()});
}

Secret::~Secret() { OPENSSL_cleanse(key_.data(), key_.size()); }

absl::StatusOr<Secret> Secret::FromFile(const std::string& path,
                                        absl::string_view job_id) {
  Material material;
  if (absl::Status read = ReadSecretFile(path, &material); !read.ok()) {
    const bool is_unfit = absl::IsFailedPrecondition(read);
    return WithExitCode(is_unfit ? ExitCode::kAuthentication : ExitCode::kUsage,
                        std::move(read));
  }
  return Derive(absl::string_view(material.bytes.data(), material.size),
                job_id);
}

absl::StatusOr<Secret> Secret::Derive(absl::string_view material,
                                      absl::string_view job_id) {
  if (material.size() < kMinFileBytes) {
    return Refused(absl::FailedPreconditionError(
        absl::StrCat("secret of ", material.size(), " bytes, at least ",
                     kMinFileBytes, " are needed")));
  }
  if (job_id.empty()) {
    return Refused(absl::InvalidArgumentError("secret without a job id"));
  }
  Secret secret;
  RETURN_IF_ERROR(HkdfSha256(material, kSalt, job_id, secret.key_));
  secret.has_key_ = true;
  return secret;
}

}  // namespace telegrad
