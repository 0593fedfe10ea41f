// SPDX-License-Identifier: Apache-2.0
//
// Memory operations of a stream: those that write. None waits for a value.
#include <cstring>

#include "api/api.h"
#include "exec/capture.h"
#include "memory/allocation.h"

using namespace simcuda;

namespace {

struct MemoryOperation {
  CUdeviceptr address = 0;
  uint64_t value = 0;
  size_t bytes = 4;
  int combine = kWrite;  // a CUatomicOperation
  static constexpr int kWrite = -1, kAdd = 0, kAnd = 5, kOr = 6;
};

template <class Word>
void apply(const MemoryOperation& operation) {
  auto* word = reinterpret_cast<Word*>(operation.address);
  const auto value = static_cast<Word>(operation.value);
  switch (operation.combine) {
    case MemoryOperation::kAdd:
      __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
      break;
    case MemoryOperation::kAnd:
      __atomic_fetch_and(word, value, __ATOMIC_SEQ_CST);
      break;
    case MemoryOperation::kOr:
      __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);
      break;
    default:
      __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
  }
}

CUresult read_reduction(const CisternAtomicReduction& given, MemoryOperation* operation) {
  constexpr unsigned kUnsigned32 = 2 | 4 | 8, kUnsigned64 = 2 | 4 | 16;
  const int combine = static_cast<int>(given.reductionOp);
  const bool known = combine == MemoryOperation::kAdd || combine == MemoryOperation::kAnd ||
                     combine == MemoryOperation::kOr;
  if (!known || (given.dataType != kUnsigned32 && given.dataType != kUnsigned64)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *operation = {given.address, given.value, given.dataType == kUnsigned64 ? size_t{8} : size_t{4},
                combine};
  return CUDA_SUCCESS;
}

// Stands for what nobody knows yet. It writes.
constexpr unsigned kOfALaterDriver = 100;

CUresult read_operation(const CUstreamBatchMemOpParams& params, MemoryOperation* operation) {
  CisternAtomicReduction given;  // an older header's enumeration has no room for all
  std::memcpy(&given, &params, sizeof given);
  switch (given.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case kOfALaterDriver:
      *operation = {params.writeValue.address, params.writeValue.value, 4};
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      *operation = {params.writeValue.address, params.writeValue.value64, 8};
      return CUDA_SUCCESS;
    case CISTERN_ATOMIC_REDUCTION:
      return read_reduction(given, operation);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult submit_operation(Call id, const StreamRef& stream,
                          const CUstreamBatchMemOpParams& params) {
  MemoryOperation operation;
  const CUresult code = read_operation(params, &operation);
  if (code != CUDA_SUCCESS) return code;
  if (operation.address % operation.bytes != 0 ||
      !device_covers(operation.address, operation.bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool writes = operation.combine == MemoryOperation::kWrite;
  Work work{.call = id};
  work.accesses = {{operation.address, operation.bytes, writes ? Touch::kWrite : Touch::kUpdate}};
  work.run = [operation] {
    operation.bytes == 8 ? apply<uint64_t>(operation) : apply<uint32_t>(operation);
  };
  return submit(stream, std::move(work));
}

}  // namespace

extern "C" {

SIM_PAIR(cuStreamBatchMemOp_v2, _ptsz,
         (CUstream hStream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
          unsigned int flags),
         return call(
             kCall,
             [&] {
               if (paramArray == nullptr || count == 0 || flags != 0) {
                 return CUDA_ERROR_INVALID_VALUE;
               }
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 CUresult code = CUDA_SUCCESS;
                 for (unsigned i = 0; i < count && code == CUDA_SUCCESS; ++i) {
                   code = submit_operation(kCall, target, paramArray[i]);
                 }
                 return code;
               });
             },
             in("count", count), stream(hStream));)

}  // extern "C"
