// SPDX-License-Identifier: Apache-2.0
// Contexts whose work may have died. After a kernel's fault every driver call of its context
// answers the kernel's code, until the context ends; an allocation or a free that a pool serves
// makes no such call. So a context becomes suspect when a call we see answers a code that may last,
// and until the driver says otherwise, each allocation and free in it asks the driver first. A code
// that was of the moment costs one question. Any thread.
#pragma once

#include "shim/order/contexts/context_slot.h"

namespace cistern::shim {

// Every answer of the driver that passes us. `handle`: the context it came from; nullptr: the
// current one. Returns the answer.
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
