// SPDX-License-Identifier: Apache-2.0
#include "config/known.h"

#include <strings.h>

#include <cstdio>

namespace cistern::config {
namespace {

constexpr char kPyTorch[] = "PYTORCH_NO_CUDA_MEMORY_CACHING";
constexpr char kJax[] = "XLA_PYTHON_CLIENT_ALLOCATOR";
constexpr char kTensorFlow[] = "TF_GPU_ALLOCATOR";

// PyTorch asks only whether its variable is there.
constexpr Framework kFrameworks[] = {
    {"PyTorch", "libc10_cuda.so", "torch/lib/libc10_cuda.so", kPyTorch, nullptr,
     "PYTORCH_NO_CUDA_MEMORY_CACHING=1", false},
    {"JAX", "xla_cuda_plugin.so", "jax_plugins/xla_cuda13/xla_cuda_plugin.so", kJax, "platform",
     "XLA_PYTHON_CLIENT_ALLOCATOR=platform", false},
    {"JAX", "xla_cuda_plugin.so", "jax_plugins/xla_cuda12/xla_cuda_plugin.so", kJax, "platform",
     "XLA_PYTHON_CLIENT_ALLOCATOR=platform", false},
    {"TensorFlow", "libtensorflow_framework.so", "tensorflow/libtensorflow_framework.so.2",
     kTensorFlow, "cuda_malloc", "TF_GPU_ALLOCATOR=cuda_malloc", false},
    {"CuPy", "cupy_backends", "cupy_backends", nullptr, nullptr, "cupy.cuda.set_allocator(None)",
     false},
    {"RMM", "librmm.so", "librmm/lib64/librmm.so", nullptr, nullptr,
     "rmm.reinitialize(pool_allocator=False)", true},
    {"ONNX Runtime", "libonnxruntime_providers_cuda.so",
     "onnxruntime/capi/libonnxruntime_providers_cuda.so", nullptr, nullptr,
     "gpu_external_alloc and gpu_external_free of its CUDA provider", false},
    {"Taichi", "taichi_python", "taichi/_lib/core/taichi_python*.so", nullptr, nullptr, "", false,
     true},
    {"Warp", "warp.so", "warp/bin/warp.so", nullptr, nullptr,
     "wp.set_mempool_enabled(device, False)", false},
    {"Paddle", "libpaddle.so", "paddle/*/libpaddle.so", "FLAGS_use_system_allocator", "true",
     "FLAGS_use_system_allocator=true", false, false, true},
};

bool has_part(std::string_view path, std::string_view part) {
  for (size_t at = path.find(part); at != path.npos; at = path.find(part, at + 1)) {
    if (at == 0 || path[at - 1] == '/') return true;
  }
  return false;
}

}  // namespace

std::span<const Framework> frameworks() { return kFrameworks; }

const Framework* framework_of(std::string_view path) {
  for (const Framework& framework : kFrameworks) {
    if (has_part(path, framework.part)) return &framework;
  }
  return nullptr;
}

bool pools_itself(const Framework& framework, const char* value) {
  if (framework.variable == nullptr || value == nullptr) return true;
  return framework.value != nullptr && strcasecmp(value, framework.value) != 0;
}

void describe_framework(const Framework& framework, char* out, size_t size) {
  const bool has_switch = framework.setting[0] != '\0';
  snprintf(out, size, "pools device memory itself%s%s%s%s",
           framework.if_asked ? ", if the program asks it to" : "", has_switch ? "; " : "",
           framework.setting, has_switch ? " lets Cistern do it" : "");
}

}  // namespace cistern::config
