// SPDX-License-Identifier: Apache-2.0
// Threads, devices and primary contexts. A reset raises the device's generation, so that a thread
// notices with one comparison that the context it was bound to is gone.

#include "tests/sim/cudart/state.h"

#include <atomic>
#include <mutex>

namespace simcudart {
namespace {

constexpr int kMaxDevices = 64;

struct Device {
  std::atomic<unsigned> generation{1};
  CUcontext primary = nullptr;  // guarded by g_mutex
};

struct Thread {
  cudaError_t error = cudaSuccess;
  int device = 0;
  unsigned bound_generation = 0;  // 0: not bound yet
};

constinit Device g_devices[kMaxDevices];
constinit std::mutex g_mutex;
constinit thread_local Thread t_thread;

cudaError_t bind_primary(int device) {
  const std::lock_guard lock(g_mutex);
  Device& state = g_devices[device];
  if (state.primary != nullptr) return as_runtime(driver()->cuCtxSetCurrent_(state.primary));
  // NVIDIA's runtime has the context made by the driver's own table, and retains it afterwards.
  CUcontext made = nullptr;
  CUresult result = driver()->make_primary(&made, device);
  if (result == CUDA_SUCCESS) result = driver()->cuCtxSetCurrent_(made);
  if (result == CUDA_SUCCESS) result = driver()->cuDevicePrimaryCtxRetain_(&made, device);
  if (result == CUDA_SUCCESS) state.primary = made;
  return as_runtime(result);
}

// A thread that comes with a context of its own keeps it, as with NVIDIA's runtime.
bool adopt_current_context() {
  CUcontext current = nullptr;
  CUdevice device = 0;
  if (driver()->cuCtxGetCurrent_(&current) != CUDA_SUCCESS || current == nullptr) return false;
  if (driver()->cuCtxGetDevice_(&device) != CUDA_SUCCESS) return false;
  t_thread.device = device;
  return true;
}

}  // namespace

cudaError_t remember(cudaError_t status) {
  if (status != cudaSuccess) t_thread.error = status;
  return status;
}

cudaError_t last_error() { return t_thread.error; }

cudaError_t take_last_error() {
  const cudaError_t error = t_thread.error;
  t_thread.error = cudaSuccess;
  return error;
}

cudaError_t ready() {
  if (driver() == nullptr) return cudaErrorInsufficientDriver;
  return as_runtime(driver_status());
}

cudaError_t bind_context() {
  const unsigned generation = g_devices[t_thread.device].generation.load();
  if (t_thread.bound_generation == generation) return cudaSuccess;
  if (const cudaError_t status = ready(); status != cudaSuccess) return status;
  const bool first_time = t_thread.bound_generation == 0;
  if (!(first_time && adopt_current_context())) {
    const cudaError_t status = bind_primary(t_thread.device);
    if (status != cudaSuccess) return status;
  }
  t_thread.bound_generation = g_devices[t_thread.device].generation.load();
  return cudaSuccess;
}

int current_device() { return t_thread.device; }

cudaError_t set_device(int device) {
  if (const cudaError_t status = ready(); status != cudaSuccess) return status;
  int count = 0;
  const CUresult result = driver()->cuDeviceGetCount_(&count);
  if (result != CUDA_SUCCESS) return as_runtime(result);
  if (device < 0 || device >= count || device >= kMaxDevices) return cudaErrorInvalidDevice;
  const unsigned generation = g_devices[device].generation.load();
  if (const cudaError_t status = bind_primary(device); status != cudaSuccess) return status;
  t_thread.device = device;
  t_thread.bound_generation = generation;
  return cudaSuccess;
}

cudaError_t primary_of(int device, CUcontext* context) {
  const int own = current_device();
  cudaError_t status = set_device(device);
  if (status == cudaSuccess) status = as_runtime(driver()->cuCtxGetCurrent_(context));
  const cudaError_t back = set_device(own);
  return status != cudaSuccess ? status : back;
}

cudaError_t reset_device() {
  if (const cudaError_t status = ready(); status != cudaSuccess) return status;
  const std::lock_guard lock(g_mutex);
  Device& state = g_devices[t_thread.device];
  const CUresult result = driver()->cuDevicePrimaryCtxReset_(t_thread.device);
  state.primary = nullptr;
  ++state.generation;
  return as_runtime(result);
}

}  // namespace simcudart
