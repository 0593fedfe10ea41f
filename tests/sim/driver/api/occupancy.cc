// SPDX-License-Identifier: Apache-2.0
//
// Occupancy: as many blocks as the device's threads allow; registers and shared memory never bind.
#include "api/api.h"
#include "api/attributes.h"
#include "exec/kernels.h"

using namespace simcuda;

namespace {

CUresult active_blocks(int* blocks, CUfunction function, int block_size) {
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (function_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = block_size > device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
                ? 0
                : device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / block_size;
  return CUDA_SUCCESS;
}

CUresult best_block(int* grid_size, int* block_size, CUfunction function, int limit) {
  if (grid_size == nullptr || block_size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int most = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  const int best = limit > 0 && limit < most ? limit : most;
  int blocks = 0;
  const CUresult code = active_blocks(&blocks, function, best);
  if (code != CUDA_SUCCESS) return code;
  *block_size = best;
  *grid_size = blocks * device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return call(Call::cuOccupancyMaxActiveBlocksPerMultiprocessor,
              [&] { return active_blocks(numBlocks, func, blockSize); });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  return call(Call::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
              [&] { return active_blocks(numBlocks, func, blockSize); });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return call(Call::cuOccupancyMaxPotentialBlockSize,
              [&] { return best_block(minGridSize, blockSize, func, blockSizeLimit); });
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  return call(Call::cuOccupancyMaxPotentialBlockSizeWithFlags,
              [&] { return best_block(minGridSize, blockSize, func, blockSizeLimit); });
}

}  // extern "C"
