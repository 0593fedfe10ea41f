// SPDX-License-Identifier: Apache-2.0
//
// Fills. Even the synchronous ones are asynchronous to the host, except for memory of the host and
// managed memory.
#include "api/api.h"
#include "exec/copy.h"

using namespace simcuda;

namespace {

CUresult fill_now(Call id, DefaultStream kind, const Fill& what) {
  return on_stream(nullptr, kind, [&](const StreamRef& stream) {
    return fill(id, stream, what, Timing::kSynchronous);
  });
}

CUresult fill_later(Call id, DefaultStream kind, CUstream handle, const Fill& what) {
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    return fill(id, stream, what, Timing::kAsynchronous);
  });
}

}  // namespace

// One element type: flat and pitched, synchronous and asynchronous, for both default streams.
#define SIM_FILL(bits, type)                                                                       \
  SIM_PAIR(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr dstDevice, type value, size_t N),             \
           return call(                                                                            \
               kCall,                                                                              \
               [&] {                                                                               \
                 return fill_now(kCall, kDefault, {dstDevice, 0, value, sizeof(type), N, 1});      \
               },                                                                                  \
               address("dstDevice", dstDevice), in("value", value), in("N", N), stream(nullptr));) \
  SIM_PAIR(cuMemsetD##bits##Async, _ptsz,                                                          \
           (CUdeviceptr dstDevice, type value, size_t N, CUstream hStream),                        \
           return call(                                                                            \
               kCall,                                                                              \
               [&] {                                                                               \
                 return fill_later(kCall, kDefault, hStream,                                       \
                                   {dstDevice, 0, value, sizeof(type), N, 1});                     \
               },                                                                                  \
               address("dstDevice", dstDevice), in("value", value), in("N", N), stream(hStream));) \
  SIM_PAIR(cuMemsetD2D##bits##_v2, _ptds,                                                          \
           (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height),      \
           return call(                                                                            \
               kCall,                                                                              \
               [&] {                                                                               \
                 return fill_now(kCall, kDefault,                                                  \
                                 {dstDevice, dstPitch, value, sizeof(type), Width, Height});       \
               },                                                                                  \
               address("dstDevice", dstDevice), in("dstPitch", dstPitch), in("value", value),      \
               in("Width", Width), in("Height", Height), stream(nullptr));)                        \
  SIM_PAIR(cuMemsetD2D##bits##Async, _ptsz,                                                        \
           (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height,       \
            CUstream hStream),                                                                     \
           return call(                                                                            \
               kCall,                                                                              \
               [&] {                                                                               \
                 return fill_later(kCall, kDefault, hStream,                                       \
                                   {dstDevice, dstPitch, value, sizeof(type), Width, Height});     \
               },                                                                                  \
               address("dstDevice", dstDevice), in("dstPitch", dstPitch), in("value", value),      \
               in("Width", Width), in("Height", Height), stream(hStream));)

extern "C" {

SIM_FILL(8, unsigned char)
SIM_FILL(16, unsigned short)
SIM_FILL(32, unsigned int)

}  // extern "C"
