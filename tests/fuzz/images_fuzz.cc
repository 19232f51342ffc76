// libFuzzer: images of a data set, JPEG and PNG, in colours and grey.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// After <cstdio>: jpeglib.h uses FILE.
#include <jpeglib.h>
#include <png.h>

#include "tests/fuzz/edited.h"
#include "trainer/data/image_file.h"

namespace telegrad {
namespace {

constexpr int kSide = 16;

std::string GoodPng(int format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = kSide;
  image.format = static_cast<png_uint_32>(format);
  const std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image), 100);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0,
                            nullptr);
  bytes.resize(size);
  return bytes;
}

std::string GoodJpeg(int channels) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &memory, &size);
  encoder.image_width = encoder.image_height = kSide;
  encoder.input_components = channels;
  encoder.in_color_space = channels == 1   ? JCS_GRAYSCALE
                           : channels == 3 ? JCS_RGB
                                           : JCS_CMYK;
  jpeg_set_defaults(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  std::vector<uint8_t> row(static_cast<size_t>(channels) * kSide, 100);
  while (encoder.next_scanline < encoder.image_height) {
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&encoder, &rows, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&encoder);
  std::free(memory);
  return bytes;
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace telegrad;
  static const auto* const good =
      new std::vector<std::string>{GoodPng(PNG_FORMAT_RGB),
                                   GoodPng(PNG_FORMAT_GRAY),
                                   GoodPng(PNG_FORMAT_RGBA),
                                   GoodJpeg(1),
                                   GoodJpeg(3),
                                   GoodJpeg(4)};
  if (size < 2) return 0;
  const int channels = data[0] % 2 == 0 ? 3 : 1;
  const auto image = DecodeImage(
      "image",
      EditedOrRaw((*good)[data[0] / 2 % good->size()], data + 1, size - 1),
      channels);
  if (!image.ok()) return 0;
  if (image->pixels.size() != static_cast<size_t>(image->rows) *
                                  static_cast<size_t>(image->cols) *
                                  static_cast<size_t>(channels)) {
    std::abort();
  }
  std::vector<uint8_t> pixels(static_cast<size_t>(channels) * 32 * 32);
  FitImage(*image, 32, 32, pixels.data());
  return 0;
}
