// SPDX-License-Identifier: Apache-2.0
//
// The calling thread's stack of contexts. Asking for the current one is a plain load: programs and
// pools do it on every call.
#pragma once

#include "base/cuda.h"
#include "exec/context.h"

namespace simcuda {

struct ContextStack {
  static constexpr int kDepth = 24;
  Context* entries[kDepth];
  int size;
};

extern thread_local constinit ContextStack t_contexts __attribute__((tls_model("initial-exec")));

// Null if the thread has none.
inline Context* current_context() {
  return t_contexts.size == 0 ? nullptr : t_contexts.entries[t_contexts.size - 1];
}

// The current context if it can be worked in; says in `code` what is wrong otherwise.
inline Context* usable_context(CUresult* code) {
  Context* context = current_context();
  if (context == nullptr) {
    *code = CUDA_ERROR_INVALID_CONTEXT;
    return nullptr;
  }
  if (!context->alive()) {
    *code = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return nullptr;
  }
  return context;
}

void set_current(Context* context);
CUresult push_current(Context* context);
// Null if the stack is empty.
Context* pop_current();

}  // namespace simcuda
