// SPDX-License-Identifier: Apache-2.0
//
// Two- and three-dimensional copies between linear memory and arrays.
#include "api/copy_box.h"

#include "api/api.h"
#include "memory/array.h"

using namespace simcuda;

namespace {

// One end of a copy as the program gives it.
struct Given {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t pitch;   // 0: rows without padding
  size_t height;  // of a slice; 0: slices without padding
  size_t x_bytes, y, z;
};

struct End {
  CopyEnd end;
  Layout layout;
};

CUresult end_in_array(const Given& given, Box box, End* end) {
  Elements elements;
  const CUresult code = elements_of(given.array, &elements);
  if (code != CUDA_SUCCESS) return code;
  if (given.x_bytes + box.width > elements.row_bytes || given.y + box.height > elements.rows ||
      given.z + box.depth > elements.images) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Layout layout{elements.row_bytes, elements.row_bytes * elements.rows};
  const size_t offset = given.z * layout.slice + given.y * layout.row + given.x_bytes;
  *end = {{elements.memory + offset, Side::kDevice}, layout};
  return CUDA_SUCCESS;
}

CUresult end_of(const Given& given, Box box, End* end) {
  if (given.type == CU_MEMORYTYPE_ARRAY) return end_in_array(given, box, end);
  const size_t row = given.pitch == 0 ? box.width : given.pitch;
  if (box.height > 1 && row < box.width) return CUDA_ERROR_INVALID_VALUE;
  const Layout layout{row, row * (given.height == 0 ? box.height : given.height)};
  const size_t offset = given.z * layout.slice + given.y * layout.row + given.x_bytes;
  switch (given.type) {
    case CU_MEMORYTYPE_HOST:
      *end = {{reinterpret_cast<CUdeviceptr>(given.host) + offset, Side::kHost}, layout};
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      *end = {{given.device + offset, Side::kDevice}, layout};
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      *end = {{given.device + offset, Side::kAny}, layout};
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult copy_ends(Call id, const StreamRef& stream, const Given& to, const Given& from, Box box,
                   Timing timing) {
  End target{}, source{};
  CUresult code = end_of(to, box, &target);
  if (code == CUDA_SUCCESS) code = end_of(from, box, &source);
  if (code != CUDA_SUCCESS) return code;
  return copy_box(id, stream, target.end, target.layout, source.end, source.layout, box, timing);
}

CUresult copy_2d(Call id, DefaultStream kind, const CUDA_MEMCPY2D* c, CUstream handle,
                 Timing timing) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Given to{c->dstMemoryType, c->dstHost,  c->dstDevice,
                 c->dstArray,      c->dstPitch, 0,
                 c->dstXInBytes,   c->dstY,     0};
  const Given from{c->srcMemoryType, c->srcHost,  c->srcDevice,
                   c->srcArray,      c->srcPitch, 0,
                   c->srcXInBytes,   c->srcY,     0};
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    return copy_ends(id, stream, to, from, {c->WidthInBytes, c->Height, 1}, timing);
  });
}

CUresult copy_3d(Call id, DefaultStream kind, const CUDA_MEMCPY3D* c, CUstream handle,
                 Timing timing) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(handle, kind,
                   [&](const StreamRef& stream) { return copy_3d_on(id, stream, *c, timing); });
}

// The contexts say nothing that the ends do not: memory is where its address is.
CUresult copy_peer(Call id, DefaultStream kind, const CUDA_MEMCPY3D_PEER* c, CUstream handle,
                   Timing timing) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D same{};
  same.srcXInBytes = c->srcXInBytes;
  same.srcY = c->srcY;
  same.srcZ = c->srcZ;
  same.srcMemoryType = c->srcMemoryType;
  same.srcHost = c->srcHost;
  same.srcDevice = c->srcDevice;
  same.srcArray = c->srcArray;
  same.srcPitch = c->srcPitch;
  same.srcHeight = c->srcHeight;
  same.dstXInBytes = c->dstXInBytes;
  same.dstY = c->dstY;
  same.dstZ = c->dstZ;
  same.dstMemoryType = c->dstMemoryType;
  same.dstHost = c->dstHost;
  same.dstDevice = c->dstDevice;
  same.dstArray = c->dstArray;
  same.dstPitch = c->dstPitch;
  same.dstHeight = c->dstHeight;
  same.WidthInBytes = c->WidthInBytes;
  same.Height = c->Height;
  same.Depth = c->Depth;
  return copy_3d(id, kind, &same, handle, timing);
}

}  // namespace

namespace simcuda {

CUresult copy_3d_on(Call id, const StreamRef& stream, const CUDA_MEMCPY3D& c, Timing timing) {
  const Given to{c.dstMemoryType, c.dstHost,     c.dstDevice, c.dstArray, c.dstPitch,
                 c.dstHeight,     c.dstXInBytes, c.dstY,      c.dstZ};
  const Given from{c.srcMemoryType, c.srcHost,     c.srcDevice, c.srcArray, c.srcPitch,
                   c.srcHeight,     c.srcXInBytes, c.srcY,      c.srcZ};
  return copy_ends(id, stream, to, from, {c.WidthInBytes, c.Height, c.Depth}, timing);
}

}  // namespace simcuda

extern "C" {

SIM_PAIR(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER* pCopy),
         return call(
             kCall,
             [&] { return copy_peer(kCall, kDefault, pCopy, nullptr, Timing::kSynchronous); },
             in("pCopy", pCopy), stream(nullptr));)

SIM_PAIR(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream),
         return call(
             kCall,
             [&] { return copy_peer(kCall, kDefault, pCopy, hStream, Timing::kAsynchronous); },
             in("pCopy", pCopy), stream(hStream));)

SIM_PAIR(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* pCopy),
         return call(
             kCall, [&] { return copy_2d(kCall, kDefault, pCopy, nullptr, Timing::kSynchronous); },
             in("pCopy", pCopy), stream(nullptr));)

SIM_PAIR(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* pCopy),
         return call(
             kCall, [&] { return copy_2d(kCall, kDefault, pCopy, nullptr, Timing::kSynchronous); },
             in("pCopy", pCopy), stream(nullptr));)

SIM_PAIR(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* pCopy, CUstream hStream),
         return call(
             kCall, [&] { return copy_2d(kCall, kDefault, pCopy, hStream, Timing::kAsynchronous); },
             in("pCopy", pCopy), stream(hStream));)

SIM_PAIR(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* pCopy),
         return call(
             kCall, [&] { return copy_3d(kCall, kDefault, pCopy, nullptr, Timing::kSynchronous); },
             in("pCopy", pCopy), stream(nullptr));)

SIM_PAIR(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* pCopy, CUstream hStream),
         return call(
             kCall, [&] { return copy_3d(kCall, kDefault, pCopy, hStream, Timing::kAsynchronous); },
             in("pCopy", pCopy), stream(hStream));)

}  // extern "C"
