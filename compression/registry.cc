#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compression/block/block_codecs.h"
#include "compression/cast/cast_codec.h"
#include "compression/codec.h"
#include "compression/none/none_codec.h"
#include "compression/powersgd/powersgd_codec.h"
#include "compression/sign/block_sign_codec.h"
#include "compression/sign/one_bit_codec.h"
#include "compression/sparse/dgc_codec.h"
#include "compression/sparse/randomk_codec.h"
#include "compression/sparse/sparseloco_codec.h"
#include "compression/sparse/threshold_codec.h"
#include "compression/sparse/topk_codec.h"
#include "compression/two_bit/two_bit_codec.h"

namespace telegrad {

const std::vector<const Codec*>& AllCodecs() {
  static const auto* codecs = new std::vector<const Codec*>{
      &NoneCodec(),       &TwoBitCodec(),     &PowerSgdCodec(),
      &Int8Codec(),       &Int4Codec(),       &Int3Codec(),
      &Int2Codec(),       &Int8SharedCodec(), &Int4SharedCodec(),
      &Int3SharedCodec(), &Int2SharedCodec(), &QsgdCodec(),
      &TernGradCodec(),   &Fp16Codec(),       &Bf16Codec(),
      &OneBitCodec(),     &BlockSignCodec(),  &ThresholdCodec(),
      &TopKCodec(),       &DgcCodec(),        &RandomKCodec(),
      &SparseLoCoCodec(),
  };
  return *codecs;
}

absl::StatusOr<const Codec*> FindCodec(absl::string_view name) {
  std::string known;
  for (const Codec* codec : AllCodecs()) {
    if (codec->traits().name == name) return codec;
    absl::StrAppend(&known, known.empty() ? "" : ", ", codec->traits().name);
  }
  return absl::NotFoundError(
      absl::StrCat("no codec '", name, "'; choose one of ", known));
}

std::string DescribeCodecs() {
  std::string text;
  for (const Codec* codec : AllCodecs()) {
    absl::StrAppendFormat(&text, "%-6s %s\n", codec->traits().name,
                          codec->traits().summary);
  }
  return text;
}

}  // namespace telegrad
