// SPDX-License-Identifier: Apache-2.0
// An array is charged by its format and shape as a device of the cap's size charges it.
// Makes one array at a time and says how much less is free meanwhile. All extents fill a device's
// tiles, so a cap that reckons by the elements must come to the same. `plain`: only the formats
// whose size the program's descriptor says; `all`: some of each other sort, too.

#include <cstring>

#include "../driver_codes.h"

namespace {

struct Format {
  const char* name;
  CUarray_format format;
  unsigned channels;
};

constexpr Format kPlain[] = {
    {"unsigned 8", CU_AD_FORMAT_UNSIGNED_INT8, 1},
    {"unsigned 16", CU_AD_FORMAT_UNSIGNED_INT16, 1},
    {"unsigned 32", CU_AD_FORMAT_UNSIGNED_INT32, 1},
    {"signed 8", CU_AD_FORMAT_SIGNED_INT8, 2},
    {"signed 16", CU_AD_FORMAT_SIGNED_INT16, 2},
    {"signed 32", CU_AD_FORMAT_SIGNED_INT32, 2},
    {"half", CU_AD_FORMAT_HALF, 4},
    {"float", CU_AD_FORMAT_FLOAT, 4},
};

constexpr Format kOther[] = {
    {"normalized 8x4", CU_AD_FORMAT_UNORM_INT8X4, 4},
    {"normalized 16x2", CU_AD_FORMAT_SNORM_INT16X2, 2},
    {"compressed 1", CU_AD_FORMAT_BC1_UNORM, 4},
    {"compressed 7", CU_AD_FORMAT_BC7_UNORM, 4},
    {"planar", CU_AD_FORMAT_NV12, 3},
};

struct Shape {
  const char* name;
  size_t width, height, depth;
  unsigned flags, levels;
};

constexpr Shape kShapes[] = {
    {"row", 1 << 21, 0, 0, 0, 0},
    {"flat", 4096, 512, 0, 0, 0},
    {"deep", 128, 128, 128, 0, 0},
    {"rows in layers", 1 << 18, 0, 8, CUDA_ARRAY3D_LAYERED, 0},
    {"layers", 512, 512, 8, CUDA_ARRAY3D_LAYERED, 0},
    {"cube", 1024, 1024, 6, CUDA_ARRAY3D_CUBEMAP, 0},
    {"cubes", 512, 512, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED, 0},
    {"flat, 3 levels", 4096, 512, 0, 0, 3},
    {"deep, 2 levels", 256, 128, 128, 0, 2},
    {"layers, 4 levels", 512, 512, 8, CUDA_ARRAY3D_LAYERED, 4},
    {"without memory", 4096, 512, 0, CUDA_ARRAY3D_DEFERRED_MAPPING, 0},
};

size_t free_now() {
  size_t free_bytes = 0;
  if (cuMemGetInfo(&free_bytes, nullptr) != CUDA_SUCCESS) std::puts("free: not told");
  return free_bytes;
}

void make(const CUDA_ARRAY3D_DESCRIPTOR& description, const Shape& shape) {
  const size_t before = free_now();
  CUarray array = nullptr;
  CUmipmappedArray mipmapped = nullptr;
  CUresult made, gone;
  size_t during;
  if (shape.levels != 0) {
    made = cuMipmappedArrayCreate(&mipmapped, &description, shape.levels);
    during = free_now();
    gone = cuMipmappedArrayDestroy(mipmapped);
  } else {
    made = cuArray3DCreate(&array, &description);
    during = free_now();
    gone = cuArrayDestroy(array);
  }
  std::printf("%s: %zu MiB", shape.name, (before - during) / kMiB);
  if (made != CUDA_SUCCESS || gone != CUDA_SUCCESS) std::printf(", %d and %d", made, gone);
  std::puts(free_now() == before ? "" : ", and some of it stays");
}

void make_all(const Format& format) {
  std::printf("%s, %u channels\n", format.name, format.channels);
  for (const Shape& shape : kShapes) {
    make({shape.width, shape.height, shape.depth, format.format, format.channels, shape.flags},
         shape);
  }
}

}  // namespace

int main(int argc, char** argv) {
  use_device(0);
  for (const Format& format : kPlain) make_all(format);
  const bool all = argc > 1 && std::strcmp(argv[1], "all") == 0;
  for (const Format& format : kOther) {
    if (all) make_all(format);
  }
  return 0;
}
