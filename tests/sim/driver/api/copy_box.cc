// SPDX-License-Identifier: Apache-2.0
//
// Two- and three-dimensional copies between linear memory. Arrays are not simulated.
#include <optional>

#include "api/api.h"
#include "exec/copy.h"

using namespace simcuda;

namespace {

struct End {
  CopyEnd end;
  Layout layout;
};

// Where an end of a copy starts; none for an array.
std::optional<End> end_of(CUmemorytype type, const void* host, CUdeviceptr device, Layout layout,
                          size_t offset) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return End{{reinterpret_cast<CUdeviceptr>(host) + offset, Side::kHost}, layout};
    case CU_MEMORYTYPE_DEVICE:
      return End{{device + offset, Side::kDevice}, layout};
    case CU_MEMORYTYPE_UNIFIED:
      return End{{device + offset, Side::kAny}, layout};
    default:
      return std::nullopt;
  }
}

// A pitch of 0 means rows without padding.
Layout layout_of(size_t pitch, size_t width, size_t height) {
  const size_t row = pitch == 0 ? width : pitch;
  return {row, row * height};
}

CUresult copy_ends(Call id, DefaultStream kind, CUstream handle, const std::optional<End>& to,
                   const std::optional<End>& from, Box box, Timing timing) {
  if (!to || !from) return CUDA_ERROR_NOT_SUPPORTED;
  if (box.height > 1 && (to->layout.row < box.width || from->layout.row < box.width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    return copy_box(id, stream, to->end, to->layout, from->end, from->layout, box, timing);
  });
}

CUresult copy_2d(Call id, DefaultStream kind, const CUDA_MEMCPY2D* c, CUstream handle,
                 Timing timing) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Layout to = layout_of(c->dstPitch, c->WidthInBytes, c->Height);
  const Layout from = layout_of(c->srcPitch, c->WidthInBytes, c->Height);
  return copy_ends(
      id, kind, handle,
      end_of(c->dstMemoryType, c->dstHost, c->dstDevice, to, c->dstY * to.row + c->dstXInBytes),
      end_of(c->srcMemoryType, c->srcHost, c->srcDevice, from, c->srcY * from.row + c->srcXInBytes),
      {c->WidthInBytes, c->Height, 1}, timing);
}

CUresult copy_3d(Call id, DefaultStream kind, const CUDA_MEMCPY3D* c, CUstream handle,
                 Timing timing) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Layout to =
      layout_of(c->dstPitch, c->WidthInBytes, c->dstHeight == 0 ? c->Height : c->dstHeight);
  const Layout from =
      layout_of(c->srcPitch, c->WidthInBytes, c->srcHeight == 0 ? c->Height : c->srcHeight);
  return copy_ends(id, kind, handle,
                   end_of(c->dstMemoryType, c->dstHost, c->dstDevice, to,
                          c->dstZ * to.slice + c->dstY * to.row + c->dstXInBytes),
                   end_of(c->srcMemoryType, c->srcHost, c->srcDevice, from,
                          c->srcZ * from.slice + c->srcY * from.row + c->srcXInBytes),
                   {c->WidthInBytes, c->Height, c->Depth}, timing);
}

// The contexts say where memory of an array would be: linear memory is where its address is.
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
  same.srcPitch = c->srcPitch;
  same.srcHeight = c->srcHeight;
  same.dstXInBytes = c->dstXInBytes;
  same.dstY = c->dstY;
  same.dstZ = c->dstZ;
  same.dstMemoryType = c->dstMemoryType;
  same.dstHost = c->dstHost;
  same.dstDevice = c->dstDevice;
  same.dstPitch = c->dstPitch;
  same.dstHeight = c->dstHeight;
  same.WidthInBytes = c->WidthInBytes;
  same.Height = c->Height;
  same.Depth = c->Depth;
  return copy_3d(id, kind, &same, handle, timing);
}

}  // namespace

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
