// SPDX-License-Identifier: Apache-2.0
#include "exec/current.h"

namespace simcuda {

thread_local constinit ContextStack t_contexts{};

void set_current(Context* context) {
  ContextStack& stack = t_contexts;
  if (stack.size > 0) --stack.size;
  if (context != nullptr) stack.entries[stack.size++] = context;
}

CUresult push_current(Context* context) {
  ContextStack& stack = t_contexts;
  if (stack.size == ContextStack::kDepth) return CUDA_ERROR_INVALID_CONTEXT;
  stack.entries[stack.size++] = context;
  return CUDA_SUCCESS;
}

Context* pop_current() {
  ContextStack& stack = t_contexts;
  return stack.size == 0 ? nullptr : stack.entries[--stack.size];
}

}  // namespace simcuda
