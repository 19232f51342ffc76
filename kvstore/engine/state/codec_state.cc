#include "kvstore/engine/state/codec_state.h"

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

constexpr char kCodecMagic[] = "TGCS";
constexpr uint32_t kCodecStateVersion = 2;

bool CanBeScale(int16_t scale) {
  return scale == kNoScale || scale == kFixedScale ||
         (scale >= kMinScale && scale <= kMaxScale);
}

}  // namespace

void StateWriter::PutBytes(ConstBytes bytes) {
  if (bytes.size == 0) return;
  text_.append(reinterpret_cast<const char*>(bytes.data), bytes.size);
}

void StateWriter::PutSettings(const ChunkSettings& settings) {
  Put(static_cast<uint8_t>(settings.mode));
  Put(settings.scale);
}

ConstBytes StateReader::TakeBytes(uint64_t size) {
  if (size > rest_.size()) {
    is_wrong_ = true;
    return {};
  }
  const ConstBytes taken(rest_.data(), static_cast<size_t>(size));
  rest_.remove_prefix(taken.size);
  return taken;
}

ChunkSettings StateReader::TakeSettings() {
  ChunkSettings settings;
  settings.mode = static_cast<CodecMode>(Take<uint8_t>());
  settings.scale = Take<int16_t>();
  is_wrong_ |= !CanBeScale(settings.scale);
  return settings;
}

absl::Status StateReader::Finish() const {
  if (!is_wrong_ && rest_.empty()) return absl::OkStatus();
  return absl::DataLossError("the state of a codec is damaged");
}

std::string CodecSectionsText(uint64_t rounds,
                              const std::vector<std::string>& sections) {
  StateWriter writer;
  writer.PutBytes({kCodecMagic, 4});
  writer.Put(kCodecStateVersion);
  writer.Put(rounds);
  writer.Put(uint64_t{sections.size()});
  for (const std::string& section : sections) {
    writer.Put(uint64_t{section.size()});
    writer.PutBytes({section.data(), section.size()});
  }
  return writer.Take();
}

absl::StatusOr<CodecSections> ReadCodecSections(absl::string_view text,
                                                size_t num_sections) {
  StateReader reader(text);
  const ConstBytes magic = reader.TakeBytes(4);
  const bool has_magic =
      magic.size == 4 &&
      absl::string_view(reinterpret_cast<const char*>(magic.data), 4) ==
          kCodecMagic;
  if (!has_magic) return absl::DataLossError("no state of a codec");
  if (const auto version = reader.Take<uint32_t>();
      version != kCodecStateVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("state of a codec of version ", version,
                     "; this build reads ", kCodecStateVersion));
  }
  CodecSections read;
  read.rounds = reader.Take<uint64_t>();
  if (const auto count = reader.Take<uint64_t>(); count != num_sections) {
    return absl::DataLossError(absl::StrCat("state of a codec with ", count,
                                            " parts; ", num_sections,
                                            " encoders and sums are here"));
  }
  for (size_t i = 0; i < num_sections; ++i) {
    const ConstBytes section = reader.TakeBytes(reader.Take<uint64_t>());
    read.sections.emplace_back(reinterpret_cast<const char*>(section.data),
                               section.size);
  }
  const absl::Status whole = reader.Finish();
  if (!whole.ok()) return whole;
  return read;
}

}  // namespace telegrad
