// SPDX-License-Identifier: Apache-2.0
//
// The installed toolkit's cuda_runtime_api.h, under the names of CUDA 13.0: there, some names mean
// a newer version of the function, with other parameters. As with shim/toolkit/cuda.h, with
// 13.0 and later it adds nothing. nvcc includes the toolkit's own header at the start of a .cu: one
// that calls such a function includes this.
#pragma once
#pragma GCC system_header  // -Wpedantic objects to include_next
#include_next <cuda_runtime_api.h>

#if CUDART_VERSION < 13000
#undef cudaGraphAddNode
#undef cudaGraphNodeGetDependencies
#undef cudaMemAdvise
#undef cudaMemPrefetchAsync
#undef cudaStreamGetCaptureInfo
#undef cudaStreamUpdateCaptureDependencies
#define cudaGraphAddNode cudaGraphAddNode_v2
#define cudaGraphNodeGetDependencies cudaGraphNodeGetDependencies_v2
#define cudaMemAdvise cudaMemAdvise_v2
#define cudaMemPrefetchAsync __CUDART_API_PTSZ(cudaMemPrefetchAsync_v2)
#define cudaStreamGetCaptureInfo __CUDART_API_PTSZ(cudaStreamGetCaptureInfo_v3)
#define cudaStreamUpdateCaptureDependencies \
  __CUDART_API_PTSZ(cudaStreamUpdateCaptureDependencies_v2)

#if CUDART_VERSION < 12050
#define cudaGetDriverEntryPointByVersion __CUDART_API_PTSZ(cudaGetDriverEntryPointByVersion)
extern "C" cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned int version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* found = nullptr);
#endif
#endif
