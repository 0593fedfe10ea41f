// SPDX-License-Identifier: Apache-2.0
// Contexts whose work may have died. After a kernel's fault every driver call in its context
// returns the kernel's error code, until the context ends. An allocation or a free that a pool
// serves must return the same, but makes no driver call. So a context becomes suspect when a driver
// call that Cistern sees returns a code that may last. From then on each allocation and free in it
// asks the driver first, until the driver returns no error: a code that does not last costs one
// such call. Any thread.
#pragma once

#include "shim/order/contexts/context_slot.h"

namespace cistern::shim {

// noted() is put around the driver calls whose answers can show a fault, and returns the answer.
// `handle`: the context of the call; nullptr: the current one.
void note_failure(CUresult answer, CUcontext handle);
inline CUresult noted(CUresult answer, CUcontext handle = nullptr) {
  if (answer != CUDA_SUCCESS) [[unlikely]]
    note_failure(answer, handle);
  return answer;
}

// CUDA_SUCCESS, or what the driver answers to every call in this context. Where it cannot be asked
// (another context is current, a capture is in progress), the pool's answer stands.
CUresult ask_suspect(ContextSlot& context);
inline CUresult condition_of(ContextSlot& context) {
  if (context.suspicion.load(std::memory_order_relaxed) == 0) [[likely]]
    return CUDA_SUCCESS;
  return ask_suspect(context);
}

}  // namespace cistern::shim
