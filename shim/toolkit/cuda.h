// SPDX-License-Identifier: Apache-2.0
//
// The installed toolkit's cuda.h, and what it lacks of CUDA 13.5, which hooks, simulator and tests
// are written against: here of 13.0, in newer.h of what came later. This folder comes before the
// toolkit's in the search for headers, so that `#include <cuda.h>` means this file everywhere.
// Declared are the types and functions that something here uses; their layout and values are the
// driver's ABI.
#pragma once
#pragma GCC system_header  // -Wpedantic objects to include_next
#include_next <cuda.h>

#if CUDA_VERSION < 12040
#error \
    "cistern: needs CUDA 12.4 or later; install a newer toolkit and name it: CUDA_HOME=/path/to/cuda make"
#endif

#if CUDA_VERSION < 13000
extern "C" {

// Values that the installed header's enumerations lack.
#define CISTERN_VALUE(type, name, value) constexpr type name = static_cast<type>(value);

#if CUDA_VERSION < 12050
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_P010, 0x9f)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_P016, 0xa1)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_NV16, 0xa2)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_P210, 0xa3)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_P216, 0xa4)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_YUY2, 0xa5)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_Y210, 0xa6)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_Y216, 0xa7)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_AYUV, 0xa8)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_Y410, 0xa9)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_Y416, 0xb1)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_Y444_PLANAR8, 0xb2)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_Y444_PLANAR10, 0xb3)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 0xb4)
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 0xb5)

struct CUctxCreateParams_st;  // passed on, never looked into
typedef struct CUctxCreateParams_st CUctxCreateParams;
#endif

#if CUDA_VERSION < 12080
CISTERN_VALUE(CUarray_format, CU_AD_FORMAT_UNORM_INT_101010_2, 0x50)
CISTERN_VALUE(CUpointer_attribute, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, 21)
CISTERN_VALUE(CUresult, CUDA_ERROR_CONTAINED, 226)
CISTERN_VALUE(CUresult, CUDA_ERROR_TENSOR_MEMORY_LEAK, 721)
CISTERN_VALUE(CUresult, CUDA_ERROR_KEY_ROTATION, 916)

typedef enum { CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1 } CUmemRangeFlags;

typedef enum { CU_MEMCPY_FLAG_DEFAULT = 0 } CUmemcpyFlags;

typedef enum {
  CU_MEMCPY_SRC_ACCESS_ORDER_INVALID,
  CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
  CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
  CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
  CU_MEMCPY_SRC_ACCESS_ORDER_MAX = 0x7FFFFFFF
} CUmemcpySrcAccessOrder;

typedef struct {
  CUmemcpySrcAccessOrder srcAccessOrder;
  CUmemLocation srcLocHint, dstLocHint;
  unsigned int flags;
} CUmemcpyAttributes;

typedef enum {
  CU_MEMCPY_OPERAND_TYPE_POINTER = 1,
  CU_MEMCPY_OPERAND_TYPE_ARRAY = 2,
  CU_MEMCPY_OPERAND_TYPE_MAX = 0x7FFFFFFF
} CUmemcpy3DOperandType;

typedef struct {
  size_t x, y, z;
} CUoffset3D;

typedef struct {
  size_t width, height, depth;
} CUextent3D;

typedef struct {
  CUmemcpy3DOperandType type;
  union {
    struct {
      CUdeviceptr ptr;
      size_t rowLength, layerHeight;
      CUmemLocation locHint;
    } ptr;
    struct {
      CUarray array;
      CUoffset3D offset;
    } array;
  } op;
} CUmemcpy3DOperand;

typedef struct {
  CUmemcpy3DOperand src, dst;
  CUextent3D extent;
  CUmemcpySrcAccessOrder srcAccessOrder;
  unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;

typedef enum { CU_MEM_DECOMPRESS_UNSUPPORTED = 0 } CUmemDecompressAlgorithm;

typedef struct {
  size_t srcNumBytes, dstNumBytes;
  cuuint32_t* dstActBytes;
  const void* src;
  void* dst;
  CUmemDecompressAlgorithm algo;
  unsigned char padding[20];
} CUmemDecompressParams;
#endif

CISTERN_VALUE(CUmemAllocationType, CU_MEM_ALLOCATION_TYPE_MANAGED, 2)
CISTERN_VALUE(CUresult, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, 36)
#undef CISTERN_VALUE

// Under the names of cuda.h where it has the function: the same declaration twice is no error.
CUresult CUDAAPI cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned int flags,
                                CUdevice dev);
CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx);
CUresult CUDAAPI cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent);
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx);
CUresult CUDAAPI cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent);
CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                        int priority);
CUresult CUDAAPI cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd);
CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                        CUmemAllocationType type);
CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                 CUmemAllocationType type);
CUresult CUDAAPI cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                                 CUmemoryPool pool);

#define CISTERN_BOTH(name, parameters) \
  CUresult CUDAAPI name parameters;    \
  CUresult CUDAAPI name##_ptsz parameters;
CISTERN_BOTH(cuMemBatchDecompressAsync, (CUmemDecompressParams * paramsArray, size_t count,
                                         unsigned int flags, size_t* errorIndex, CUstream stream))
CISTERN_BOTH(cuMemDiscardAndPrefetchBatchAsync,
             (CUdeviceptr * dptrs, size_t* sizes, size_t count, CUmemLocation* prefetchLocs,
              size_t* prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
              CUstream hStream))
CISTERN_BOTH(cuMemDiscardBatchAsync, (CUdeviceptr * dptrs, size_t* sizes, size_t count,
                                      unsigned long long flags, CUstream hStream))
CISTERN_BOTH(cuMemPrefetchBatchAsync,
             (CUdeviceptr * dptrs, size_t* sizes, size_t count, CUmemLocation* prefetchLocs,
              size_t* prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
              CUstream hStream))
CISTERN_BOTH(cuMemcpy3DBatchAsync, (size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                                    unsigned long long flags, CUstream hStream))
CISTERN_BOTH(cuMemcpy3DBatchAsync_v2, (size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                       unsigned long long flags, CUstream hStream))
CISTERN_BOTH(cuMemcpyBatchAsync, (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes,
                                  size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                  size_t numAttrs, size_t* failIdx, CUstream hStream))
CISTERN_BOTH(cuMemcpyBatchAsync_v2,
             (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
              CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream))
CISTERN_BOTH(cuStreamGetCtx_v2, (CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx))
#undef CISTERN_BOTH
}  // extern "C"

// Names that mean a newer version of the function in 13.0, with other parameters.
#ifndef __CUDA_API_VERSION_INTERNAL
#undef cuCtxCreate
#undef cuGraphAddDependencies
#undef cuGraphAddNode
#undef cuGraphGetEdges
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
#undef cuGraphRemoveDependencies
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuMemcpy3DBatchAsync
#undef cuMemcpyBatchAsync
#undef cuStreamGetCaptureInfo
#undef cuStreamUpdateCaptureDependencies
#define cuCtxCreate cuCtxCreate_v4
#define cuGraphAddDependencies cuGraphAddDependencies_v2
#define cuGraphAddNode cuGraphAddNode_v2
#define cuGraphGetEdges cuGraphGetEdges_v2
#define cuGraphNodeGetDependencies cuGraphNodeGetDependencies_v2
#define cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2
#define cuGraphRemoveDependencies cuGraphRemoveDependencies_v2
#define cuMemAdvise cuMemAdvise_v2
#define cuMemPrefetchAsync __CUDA_API_PTSZ(cuMemPrefetchAsync_v2)
#define cuMemcpy3DBatchAsync __CUDA_API_PTSZ(cuMemcpy3DBatchAsync_v2)
#define cuMemcpyBatchAsync __CUDA_API_PTSZ(cuMemcpyBatchAsync_v2)
#define cuStreamGetCaptureInfo __CUDA_API_PTSZ(cuStreamGetCaptureInfo_v3)
#define cuStreamUpdateCaptureDependencies __CUDA_API_PTSZ(cuStreamUpdateCaptureDependencies_v2)
#endif
#endif

#include "newer.h"
