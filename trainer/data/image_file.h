#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

struct Image {
  int channels = 3;
  int rows = 0;
  int cols = 0;
  std::vector<uint8_t> pixels = {};  // [rows, cols, channels]
};

// Reads a JPEG or PNG, told apart by their first bytes, as RGB or, with one
// channel, grey. Files of at most 64 MiB, images of at most 16,384 a side and
// 64 million pixels. DataLoss names the file, and the byte where the decoder
// stood; NotFound when it is not there.
absl::StatusOr<Image> ReadImage(const std::string& path, int channels);
// Decodes a file's bytes; `path` is for errors.
absl::StatusOr<Image> DecodeImage(const std::string& path, std::string bytes,
                                  int channels);

// The largest part in the middle that has the shape's proportions, as
// [channels, rows, cols]; a pixel is the mean of those that it stands for.
void FitImage(const Image& image, int rows, int cols, uint8_t* pixels);

}  // namespace telegrad
