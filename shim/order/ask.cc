// SPDX-License-Identifier: Apache-2.0
#include "shim/order/ask.h"

#include "shim/order/captures/capture_gate.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

// True for codes that may last. For some, cuda.h says at CUresult that the process is left in an
// inconsistent state in which any further work returns the same error, or that the context or
// process must end. Others mean that hardware failed during execution; cuda.h does not say whether
// they last.
bool may_last(CUresult code) {
  switch (static_cast<int>(code)) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:     // hardware
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:  // hardware
    case 226:                              // CUDA_ERROR_CONTAINED
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:  // "The context cannot be used anymore, and must be destroyed"
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case 721:                               // CUDA_ERROR_TENSOR_MEMORY_LEAK
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:  // "the process must be terminated and relaunched"
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:  // may stand for any of these
      return true;
    default:
      return false;
  }
}

}  // namespace

void note_failure(CUresult answer, CUcontext handle) {
  // Each suspicion gets a number of its own, to distinguish it from an earlier one. The numbers are
  // odd, so none is ever 0, which means no suspicion.
  static constinit std::atomic<uint32_t> next{1};
  if (!may_last(answer) || !active()) return;
  if (handle == nullptr) driver().cuCtxGetCurrent(&handle);
  ContextSlot* context = handle == nullptr ? nullptr : find_context_slot(handle);
  if (context != nullptr) context->suspicion.store(next.fetch_add(2));
}

// Makes the cheapest call that cuda.h says "may also return error codes from previous, asynchronous
// launches".
CUresult ask_suspect(ContextSlot& context) {
  uint32_t suspicion = context.suspicion.load();
  const GatePass pass;
  CUcontext current = nullptr;
  if (!pass || driver().cuCtxGetCurrent(&current) != CUDA_SUCCESS ||
      current != context.handle.load(std::memory_order_acquire)) {
    return CUDA_SUCCESS;
  }
  size_t free, total;
  const CUresult answer = driver().cuMemGetInfo_v2(&free, &total);
  // If another thread noted a new suspicion meanwhile, that one has another number and stays.
  if (answer == CUDA_SUCCESS) context.suspicion.compare_exchange_strong(suspicion, 0);
  return answer;
}

}  // namespace cistern::shim
