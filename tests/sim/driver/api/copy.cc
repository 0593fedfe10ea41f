// SPDX-License-Identifier: Apache-2.0
//
// Linear copies: synchronous and asynchronous, for both default streams.
#include "exec/copy.h"

#include "api/api.h"

using namespace simcuda;

namespace {

CopyEnd device(CUdeviceptr address) { return {address, Side::kDevice}; }
CopyEnd any(CUdeviceptr address) { return {address, Side::kAny}; }
CopyEnd host(const void* p) { return {reinterpret_cast<CUdeviceptr>(p), Side::kHost}; }

CUresult copy_now(Call call, DefaultStream kind, CopyEnd to, CopyEnd from, size_t bytes) {
  return on_stream(nullptr, kind, [&](const StreamRef& stream) {
    return copy(call, stream, to, from, bytes, Timing::kSynchronous);
  });
}

CUresult copy_later(Call call, DefaultStream kind, CopyEnd to, CopyEnd from, size_t bytes,
                    CUstream handle) {
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    return copy(call, stream, to, from, bytes, Timing::kAsynchronous);
  });
}

}  // namespace

extern "C" {

SIM_PAIR(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
         return call(
             kCall, [&] { return copy_now(kCall, kDefault, any(dst), any(src), ByteCount); },
             address("dst", dst), address("src", src), in("ByteCount", ByteCount),
             stream(nullptr));)

SIM_PAIR(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount),
         return call(
             kCall,
             [&] { return copy_now(kCall, kDefault, device(dstDevice), host(srcHost), ByteCount); },
             address("dstDevice", dstDevice), in("srcHost", srcHost), in("ByteCount", ByteCount),
             stream(nullptr));)

SIM_PAIR(cuMemcpyDtoH_v2, _ptds, (void* dstHost, CUdeviceptr srcDevice, size_t ByteCount),
         return call(
             kCall,
             [&] { return copy_now(kCall, kDefault, host(dstHost), device(srcDevice), ByteCount); },
             in("dstHost", dstHost), address("srcDevice", srcDevice), in("ByteCount", ByteCount),
             stream(nullptr));)

SIM_PAIR(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
         return call(
             kCall,
             [&] {
               return copy_now(kCall, kDefault, device(dstDevice), device(srcDevice), ByteCount);
             },
             address("dstDevice", dstDevice), address("srcDevice", srcDevice),
             in("ByteCount", ByteCount), stream(nullptr));)

SIM_PAIR(cuMemcpyPeer, _ptds,
         (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
          size_t ByteCount),
         return call(
             kCall,
             [&] {
               return copy_now(kCall, kDefault, device(dstDevice), device(srcDevice), ByteCount);
             },
             address("dstDevice", dstDevice), in("dstContext", dstContext),
             address("srcDevice", srcDevice), in("srcContext", srcContext),
             in("ByteCount", ByteCount), stream(nullptr));)

SIM_PAIR(
    cuMemcpyAsync, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
    return call(
        kCall, [&] { return copy_later(kCall, kDefault, any(dst), any(src), ByteCount, hStream); },
        address("dst", dst), address("src", src), in("ByteCount", ByteCount), stream(hStream));)

SIM_PAIR(cuMemcpyWithAttributesAsync, _ptsz,
         (CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes* attr,
          CUstream hStream),
         return call(
             kCall, [&] { return copy_later(kCall, kDefault, any(dst), any(src), size, hStream); },
             address("dst", dst), address("src", src), in("size", size), stream(hStream));)

SIM_PAIR(cuMemcpyHtoDAsync_v2, _ptsz,
         (CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount, CUstream hStream),
         return call(
             kCall,
             [&] {
               return copy_later(kCall, kDefault, device(dstDevice), host(srcHost), ByteCount,
                                 hStream);
             },
             address("dstDevice", dstDevice), in("srcHost", srcHost), in("ByteCount", ByteCount),
             stream(hStream));)

SIM_PAIR(cuMemcpyDtoHAsync_v2, _ptsz,
         (void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
         return call(
             kCall,
             [&] {
               return copy_later(kCall, kDefault, host(dstHost), device(srcDevice), ByteCount,
                                 hStream);
             },
             in("dstHost", dstHost), address("srcDevice", srcDevice), in("ByteCount", ByteCount),
             stream(hStream));)

SIM_PAIR(cuMemcpyDtoDAsync_v2, _ptsz,
         (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
         return call(
             kCall,
             [&] {
               return copy_later(kCall, kDefault, device(dstDevice), device(srcDevice), ByteCount,
                                 hStream);
             },
             address("dstDevice", dstDevice), address("srcDevice", srcDevice),
             in("ByteCount", ByteCount), stream(hStream));)

SIM_PAIR(cuMemcpyPeerAsync, _ptsz,
         (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
          size_t ByteCount, CUstream hStream),
         return call(
             kCall,
             [&] {
               return copy_later(kCall, kDefault, device(dstDevice), device(srcDevice), ByteCount,
                                 hStream);
             },
             address("dstDevice", dstDevice), in("dstContext", dstContext),
             address("srcDevice", srcDevice), in("srcContext", srcContext),
             in("ByteCount", ByteCount), stream(hStream));)

}  // extern "C"
