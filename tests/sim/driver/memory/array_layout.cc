// SPDX-License-Identifier: Apache-2.0
#include "memory/array_layout.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace simcuda {
namespace {

// A format by its comment in cuda.h. Its texels are kept in squares of `side` by `side`: those of a
// compressed format in blocks of 4, those that share a colour sample in blocks of 2.
struct Format {
  CUarray_format name;
  unsigned side;
  unsigned bits;  // of a texel, on average; of one channel where the descriptor gives their number
  bool by_channel = false;
};

constexpr Format kFormats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, 1, 8, true},
    {CU_AD_FORMAT_UNSIGNED_INT16, 1, 16, true},
    {CU_AD_FORMAT_UNSIGNED_INT32, 1, 32, true},
    {CU_AD_FORMAT_SIGNED_INT8, 1, 8, true},
    {CU_AD_FORMAT_SIGNED_INT16, 1, 16, true},
    {CU_AD_FORMAT_SIGNED_INT32, 1, 32, true},
    {CU_AD_FORMAT_HALF, 1, 16, true},
    {CU_AD_FORMAT_FLOAT, 1, 32, true},
    {CU_AD_FORMAT_UNORM_INT8X1, 1, 8},
    {CU_AD_FORMAT_UNORM_INT8X2, 1, 16},
    {CU_AD_FORMAT_UNORM_INT8X4, 1, 32},
    {CU_AD_FORMAT_UNORM_INT16X1, 1, 16},
    {CU_AD_FORMAT_UNORM_INT16X2, 1, 32},
    {CU_AD_FORMAT_UNORM_INT16X4, 1, 64},
    {CU_AD_FORMAT_SNORM_INT8X1, 1, 8},
    {CU_AD_FORMAT_SNORM_INT8X2, 1, 16},
    {CU_AD_FORMAT_SNORM_INT8X4, 1, 32},
    {CU_AD_FORMAT_SNORM_INT16X1, 1, 16},
    {CU_AD_FORMAT_SNORM_INT16X2, 1, 32},
    {CU_AD_FORMAT_SNORM_INT16X4, 1, 64},
    {CU_AD_FORMAT_UNORM_INT_101010_2, 1, 32},
    {CU_AD_FORMAT_BC1_UNORM, 4, 4},
    {CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 4},
    {CU_AD_FORMAT_BC2_UNORM, 4, 8},
    {CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 8},
    {CU_AD_FORMAT_BC3_UNORM, 4, 8},
    {CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 8},
    {CU_AD_FORMAT_BC4_UNORM, 4, 4},
    {CU_AD_FORMAT_BC4_SNORM, 4, 4},
    {CU_AD_FORMAT_BC5_UNORM, 4, 8},
    {CU_AD_FORMAT_BC5_SNORM, 4, 8},
    {CU_AD_FORMAT_BC6H_UF16, 4, 8},
    {CU_AD_FORMAT_BC6H_SF16, 4, 8},
    {CU_AD_FORMAT_BC7_UNORM, 4, 8},
    {CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 8},
    {CU_AD_FORMAT_NV12, 2, 12},
    {CU_AD_FORMAT_P010, 2, 24},
    {CU_AD_FORMAT_P016, 2, 24},
    {CU_AD_FORMAT_NV16, 2, 16},
    {CU_AD_FORMAT_P210, 2, 32},
    {CU_AD_FORMAT_P216, 2, 32},
    {CU_AD_FORMAT_YUY2, 2, 16},
    {CU_AD_FORMAT_Y210, 2, 32},
    {CU_AD_FORMAT_Y216, 2, 32},
    {CU_AD_FORMAT_AYUV, 1, 32},
    {CU_AD_FORMAT_Y410, 1, 32},
    {CU_AD_FORMAT_Y416, 1, 64},
    {CU_AD_FORMAT_Y444_PLANAR8, 1, 24},
    {CU_AD_FORMAT_Y444_PLANAR10, 1, 48},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 1, 24},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 1, 48},
};

constexpr size_t kTileBytes = 64;
constexpr size_t kTileRows = 8;

const Format* format_of(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const Format* format = std::find_if(std::begin(kFormats), std::end(kFormats),
                                      [&](const Format& f) { return f.name == shape.Format; });
  return format == std::end(kFormats) ? nullptr : format;
}

size_t in_units(size_t value, size_t unit) { return value / unit + (value % unit != 0 ? 1 : 0); }
size_t halved(size_t extent) { return extent > 1 ? extent / 2 : extent; }

// One image: whole tiles of 64 bytes by 8 rows. Without a height it is one row.
size_t image_bytes(const Format& format, size_t channels, size_t width, size_t height) {
  const size_t square = size_t{format.side} * format.side * format.bits / 8 * channels;
  const size_t row = in_units(in_units(width, format.side) * square, kTileBytes) * kTileBytes;
  if (height == 0) return row;
  return in_units(in_units(height, format.side), kTileRows) * kTileRows * row;
}

}  // namespace

size_t array_layout(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
  const Format* format = format_of(shape);
  const size_t channels = shape.NumChannels;
  if (format == nullptr || shape.Width == 0) return 0;
  if (format->by_channel && channels != 1 && channels != 2 && channels != 4) return 0;

  // Layers and the faces of a cube are as many images at each level; slices are halved with it.
  const bool layered = (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const size_t longest = std::max({shape.Width, shape.Height, layered ? 0 : shape.Depth});
  const auto most_levels = static_cast<unsigned>(std::bit_width(longest));

  size_t width = shape.Width, height = shape.Height, images = shape.Depth, sum = 0;
  for (unsigned level = 0; level < std::clamp(levels, 1u, most_levels); ++level) {
    sum += image_bytes(*format, format->by_channel ? channels : 1, width, height) *
           std::max<size_t>(images, 1);
    width = halved(width);
    height = halved(height);
    if (!layered) images = halved(images);
  }
  return in_units(sum, kArrayAlignment) * kArrayAlignment;
}

size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  const Format* format = format_of(shape);
  if (format == nullptr || format->side != 1) return 0;
  return format->bits / 8 * (format->by_channel ? shape.NumChannels : 1);
}

}  // namespace simcuda
