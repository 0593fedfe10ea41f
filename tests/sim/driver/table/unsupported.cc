// SPDX-License-Identifier: Apache-2.0
//
// Calls that are exported, and found by cuGetProcAddress, but not simulated: they answer
// CUDA_ERROR_NOT_SUPPORTED. Programs that name them load, and look-ups for them resolve. This file
// does not include cuda.h: the functions ignore their arguments, which both ABIs allow.
#include <iterator>

#include "table/calls.h"

namespace {
constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED
}

extern "C" {
#define UNSUPPORTED(symbol, name, version, kind) \
  __attribute__((visibility("protected"))) int symbol(void) { return kNotSupported; }
#include "table/calls.def"
}

namespace simcuda {
namespace {
const CallInfo kUnsupported[] = {
#define UNSUPPORTED(symbol, name, version, kind) \
  {#symbol, #name, version, StreamKind::kind, kPlain, reinterpret_cast<void*>(&::symbol)},
#include "table/calls.def"
};
}  // namespace

CallTable unsupported_calls() { return {std::begin(kUnsupported), std::end(kUnsupported)}; }

}  // namespace simcuda
