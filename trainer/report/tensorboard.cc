#include "trainer/report/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/resource_limit.h"
#include "base/status_macros.h"
#include "trainer/report/results.h"

namespace telegrad {
namespace event_file {
namespace {

// Protocol buffers' wire types.
enum Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
std::string LittleEndian(T value) {
  std::string text;
  AppendLittleEndian(&text, value);
  return text;
}

std::string Varint(uint64_t value) {
  std::string text;
  for (; value > 127; value >>= 7) {
    text += static_cast<char>((value & 127) | 128);
  }
  return text + static_cast<char>(value);
}

std::string Key(int field, Wire wire) {
  return Varint(static_cast<uint64_t>(field) << 3 | wire);
}

std::string Field(int field, absl::string_view bytes) {
  return absl::StrCat(Key(field, kBytes), Varint(bytes.size()), bytes);
}

std::string Time(double wall_time) {
  return Key(1, kFixed64) + LittleEndian(wall_time);
}

std::string MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  return LittleEndian(std::rotr(crc, 15) + uint32_t{0xa282ead8});
}

// uint64 length, its check, the event, its check.
std::string Framed(absl::string_view event) {
  const std::string length = LittleEndian(uint64_t{event.size()});
  return absl::StrCat(length, MaskedCrc(length), event, MaskedCrc(event));
}

}  // namespace

// Event: wall_time 1, step 2, file_version 3, summary 5.
std::string FirstRecord(double wall_time) {
  return Framed(absl::StrCat(Time(wall_time), Field(3, "brain.Event:2")));
}

// Summary: value 1; Value: tag 1, simple_value 2.
std::string Record(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    absl::StrAppend(
        &summary,
        Field(1, absl::StrCat(Field(1, tag), Key(2, kFixed32),
                              LittleEndian(static_cast<float>(value)))));
  }
  return Framed(absl::StrCat(Time(wall_time), Key(2, kVarint),
                             Varint(static_cast<uint64_t>(step)),
                             Field(5, summary)));
}

}  // namespace event_file

namespace {

double Now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorBoard>> TensorBoard::Open(
    const std::string& folder) {
  RETURN_IF_ERROR(MakeFolder("--tensorboard", folder));
  const std::string path =
      absl::StrCat(folder, "/events.out.tfevents.", static_cast<int64_t>(Now()),
                   ".", OwnHostName(), ".", getpid());
  std::unique_ptr<TensorBoard> made(new TensorBoard(path));
  made->file_ = UniqueFd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!made->file_.is_open()) {
    return SystemError(absl::StrCat("--tensorboard ", path), errno);
  }
  made->Write(event_file::FirstRecord(Now()));
  return made;
}

void TensorBoard::Write(absl::string_view record) {
  if (!file_.is_open()) return;
  const ssize_t written = write(file_.get(), record.data(), record.size());
  if (written == static_cast<ssize_t>(record.size())) return;
  LogWarning("--tensorboard ", path_, ": ",
             written < 0 ? std::strerror(errno) : "no room",
             "; nothing more is written there");
  file_.Close();
}

void TensorBoard::Add(int64_t step, const event_file::Scalars& scalars) {
  Write(event_file::Record(Now(), step, scalars));
}

void TensorBoard::Add(const MetricPoint& point, double samples_per_s) {
  Add(point.step,
      {{"train/loss", point.train_loss},
       {"train/accuracy", point.train_accuracy},
       {"train/samples_per_s", samples_per_s},
       {"telegrad/wire_bytes", static_cast<double>(point.wire_bytes)}});
}

void TensorBoard::AddTest(int64_t step, double accuracy, double loss) {
  Add(step, {{"test/accuracy", accuracy}, {"test/loss", loss}});
}

}  // namespace telegrad
