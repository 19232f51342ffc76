#include <gtest/gtest.h>

// jpeglib.h uses FILE.
#include <jpeglib.h>
#include <png.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/random.h"
#include "tests/testing/status_matchers.h"
#include "trainer/data/dataset.h"
#include "trainer/data/image_file.h"

namespace telegrad {
namespace {

using absl::StatusCode;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::StatusIs;

constexpr int kSide = 8;

// The left half red, the right half blue.
std::vector<uint8_t> RedAndBlue() {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < kSide * kSide; ++i) {
    const bool is_left = i % kSide < kSide / 2;
    pixels.insert(pixels.end(), {uint8_t(is_left ? 255 : 0), uint8_t{0},
                                 uint8_t(is_left ? 0 : 255)});
  }
  return pixels;
}

std::string Png(std::vector<uint8_t> pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = kSide;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0,
                            nullptr);
  std::string bytes(size, '\0');
  png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0,
                            nullptr);
  return bytes;
}

std::string Jpeg(std::vector<uint8_t> pixels, J_COLOR_SPACE space = JCS_YCbCr,
                 bool is_adobe = true) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &memory, &size);
  encoder.image_width = encoder.image_height = kSide;
  const int channels = space == JCS_YCbCr ? 3 : 4;
  encoder.input_components = channels;
  encoder.in_color_space = channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&encoder);
  jpeg_set_colorspace(&encoder, space);
  if (!is_adobe) encoder.write_Adobe_marker = FALSE;
  jpeg_set_quality(&encoder, 100, TRUE);
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    JSAMPROW row = pixels.data() + static_cast<size_t>(channels) * kSide *
                                       encoder.next_scanline;
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&encoder);
  std::free(memory);
  return bytes;
}

// The same with black's part, full light or nothing missing of it.
std::vector<uint8_t> WithBlack(const std::vector<uint8_t>& pixels,
                               bool is_adobe) {
  std::vector<uint8_t> wider;
  for (size_t i = 0; i < pixels.size(); ++i) {
    wider.push_back(uint8_t(is_adobe ? pixels[i] : 255 - pixels[i]));
    if (i % 3 == 2) wider.push_back(is_adobe ? 204 : 51);
  }
  return wider;
}

class ImageFolder : public ::testing::Test {
 protected:
  ImageFolder() {
    std::filesystem::remove_all(folder_);
    for (const char* part : {"train", "val"}) {
      Write(absl::StrCat(part, "/cat/1.png"), Png(RedAndBlue()));
      Write(absl::StrCat(part, "/dog/1.JPEG"), Jpeg(RedAndBlue()));
      Write(absl::StrCat(part, "/dog/notes.txt"), "not an image");
    }
  }
  ~ImageFolder() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  absl::StatusOr<DatasetPair> Load(SampleShape shape = {.channels = 3,
                                                        .rows = 4,
                                                        .cols = 4}) const {
    return LoadDataset("imagefolder:" + folder_, {.images = shape});
  }

  const std::string folder_ = absl::StrCat(
      ::testing::TempDir(), "/image_folder_",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ImageFolder, ReadsJpegAndPngWhenTheyAreAskedFor) {
  const auto pair = Load();
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->train.labels, (std::vector<uint16_t>{0, 1}));
  EXPECT_EQ(pair->train.num_classes, 2);
  for (size_t sample = 0; sample < 2; ++sample) {
    std::vector<uint8_t> pixels(3 * 16);
    ASSERT_THAT(pair->train.read(sample, pixels.data()), IsOk());
    // JPEG blurs colours.
    EXPECT_NEAR(pixels[0], 255, sample == 0 ? 0 : 40) << sample;  // red
    EXPECT_NEAR(pixels[3], 0, sample == 0 ? 0 : 40) << sample;    // right
    EXPECT_NEAR(pixels[2 * 16 + 3], 255, sample == 0 ? 0 : 40) << sample;
  }
  std::vector<float> values(2 * 48);
  std::vector<int64_t> labels(2);
  ASSERT_THAT(GatherBatch(pair->train, {}, std::vector<uint32_t>{1, 0},
                          values.data(), labels.data()),
              IsOk());
  EXPECT_FLOAT_EQ(values[48], (1.0f - 0.485f) / 0.229f);
  EXPECT_EQ(labels, (std::vector<int64_t>{1, 0}));
}

// Some of ImageNet's are for printers: a fifth of black over red and blue.
TEST_F(ImageFolder, ReadsJpegOfFourColours) {
  for (const bool is_adobe : {true, false}) {
    for (const J_COLOR_SPACE space : {JCS_CMYK, JCS_YCCK}) {
      if (space == JCS_YCCK && !is_adobe) continue;  // Adobe's marker says it
      Write("four.jpg",
            Jpeg(WithBlack(RedAndBlue(), is_adobe), space, is_adobe));
      const auto image = ReadImage(folder_ + "/four.jpg", 3);
      ASSERT_THAT(image, IsOk());
      ASSERT_EQ(image->pixels.size(), size_t{3} * kSide * kSide);
      const uint8_t* right = image->pixels.data() + size_t{3} * (kSide - 1);
      for (const auto& [pixel, wanted] :
           {std::pair(image->pixels.data(), std::vector<int>{204, 0, 0}),
            {right, {0, 0, 204}}}) {
        for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(pixel[i], wanted[i], 4) << i;
      }
      const auto grey = ReadImage(folder_ + "/four.jpg", 1);
      ASSERT_THAT(grey, IsOk());
      ASSERT_EQ(grey->pixels.size(), size_t{kSide} * kSide);
      EXPECT_NEAR(grey->pixels[0], 0.299 * 204, 4);
      EXPECT_NEAR(grey->pixels[kSide - 1], 0.114 * 204, 4);
    }
  }
}

TEST_F(ImageFolder, HiddenNamesAreNoClassesAndEmptyOnesAreRefused) {
  for (const char* part : {"train", "val"}) {
    Write(absl::StrCat(part, "/.git/1.png"), Png(RedAndBlue()));
    Write(absl::StrCat(part, "/cat/._1.png"), "not an image");
    std::filesystem::create_directory(
        absl::StrCat(folder_, "/", part, "/cat/0.jpg"));
  }
  const auto pair = Load();
  ASSERT_THAT(pair, IsOk());
  EXPECT_EQ(pair->train.num_classes, 2);
  EXPECT_EQ(pair->test.labels, (std::vector<uint16_t>{0, 1}));
  for (const char* part : {"val", "train"}) {
    Write(absl::StrCat(part, "/bird/notes.txt"), "no image");
    EXPECT_THAT(Load(), StatusIs(StatusCode::kInvalidArgument,
                                 absl::StrCat(part, "/bird")));
  }
}

TEST_F(ImageFolder, FaultsOfPngNameTheByte) {
  std::string png = Png(RedAndBlue());
  const auto fault = [&](const std::string& bytes) {
    Write("bad.png", bytes);
    return ReadImage(folder_ + "/bad.png", 3).status();
  };
  const size_t cut = png.size() - 20;
  EXPECT_THAT(fault(png.substr(0, cut)),
              StatusIs(StatusCode::kDataLoss, absl::StrCat(": byte ", cut)));
  // The length and the name of the second chunk stand behind the first, which
  // ends at byte 33.
  png[33] = '\xff';
  EXPECT_THAT(fault(png), StatusIs(StatusCode::kDataLoss, ": byte 41: "));
}

TEST_F(ImageFolder, FaultsNameFileAndPlace) {
  const std::string png = Png(RedAndBlue());
  const std::string jpeg = Jpeg(RedAndBlue());
  for (const std::string& bad :
       {std::string("GIF89a"), std::string(), png.substr(0, png.size() - 20),
        jpeg.substr(0, jpeg.size() / 2)}) {
    Write("train/cat/2.png", bad);
    const auto pair = Load();
    ASSERT_THAT(pair, IsOk());
    std::vector<uint8_t> pixels(3 * 16);
    const absl::Status status = pair->train.read(1, pixels.data());
    EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss, "cat/2.png: byte"));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
    // The first one of a part is read before a run begins.
    Write("val/cat/1.png", bad);
    EXPECT_THAT(Load(), StatusIs(StatusCode::kDataLoss, "cat/1.png: byte"));
    Write("val/cat/1.png", png);
  }
  std::filesystem::remove_all(folder_ + "/val/dog");
  Write("val/bird/1.png", png);
  EXPECT_THAT(Load(), StatusIs(StatusCode::kInvalidArgument, "bird"));
  std::filesystem::remove_all(folder_ + "/train");
  EXPECT_THAT(Load(), StatusIs(StatusCode::kNotFound, "/train"));
  EXPECT_THAT(Load({.channels = 2}),
              StatusIs(StatusCode::kInvalidArgument, "1 or 3 channels"));
}

// Whatever lies in a file, reading ends with an image or with an error.
TEST_F(ImageFolder, DamagedFilesEndInAnErrorOrAnImage) {
  Random random(11);
  int num_errors = 0;
  for (const std::string& good : {Png(RedAndBlue()), Jpeg(RedAndBlue())}) {
    for (int i = 0; i < 300; ++i) {
      std::string bytes = good;
      for (int flips = 0; flips < 3; ++flips) {
        bytes[random.NextBelow(bytes.size())] =
            static_cast<char>(random.NextU32());
      }
      Write("damaged", bytes);
      const auto image = ReadImage(folder_ + "/damaged", 3);
      num_errors += image.ok() ? 0 : 1;
      if (!image.ok()) continue;
      std::vector<uint8_t> pixels(3 * 16);
      FitImage(*image, 4, 4, pixels.data());
    }
  }
  EXPECT_GT(num_errors, 100);
}

TEST(FitImage, TakesTheMiddleAndTheMeanOfWhatAPixelStandsFor) {
  Image wide{.channels = 1, .rows = 2, .cols = 6, .pixels = {}};
  wide.pixels = {9, 9, 0, 4, 9, 9,  //
                 9, 9, 8, 4, 9, 9};
  uint8_t pixel = 0;
  FitImage(wide, 1, 1, &pixel);
  EXPECT_EQ(pixel, 4);
  std::vector<uint8_t> pixels(16);
  FitImage(wide, 4, 4, pixels.data());  // larger than the image
  EXPECT_EQ(pixels[0], 0);
  EXPECT_EQ(pixels[15], 4);
  EXPECT_EQ(pixels[12], 8);
}

}  // namespace
}  // namespace telegrad
