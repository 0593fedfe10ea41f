// SPDX-License-Identifier: Apache-2.0
#include "exec/variables.h"

#include <cstring>

#include "exec/context.h"
#include "memory/device.h"

namespace simcuda {

Variables::~Variables() {
  for (const auto& [key, place] : places_) {
    const auto there = place.device->find(place.address);
    if (there && there->id == place.allocation) place.device->release(place.address);
  }
}

void Variables::declare(const std::vector<Variable>& variables) {
  const std::lock_guard lock(mutex_);
  for (const Variable& variable : variables) by_name_.emplace(variable.name, variable);
}

CUresult Variables::place_all(Context& context) {
  const std::lock_guard lock(mutex_);
  CUresult code = CUDA_SUCCESS;
  for (auto each = by_name_.begin(); each != by_name_.end() && code == CUDA_SUCCESS; ++each) {
    CUdeviceptr address = 0;
    code = place(context, each->second, &address);
  }
  return code;
}

CUresult Variables::find(Context& context, const char* name, CUdeviceptr* address, size_t* bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return CUDA_ERROR_NOT_FOUND;
  CUdeviceptr placed = 0;
  const CUresult code = place(context, found->second, &placed);
  if (code != CUDA_SUCCESS) return code;
  if (address != nullptr) *address = placed;
  if (bytes != nullptr) *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}

// Caller holds mutex_.
CUresult Variables::place(Context& context, const Variable& variable, CUdeviceptr* address) {
  const auto key = std::pair(context.id(), variable.name);
  if (const auto known = places_.find(key); known != places_.end()) {
    *address = known->second.address;
    return CUDA_SUCCESS;
  }
  Device& device = context.device();
  const CUdeviceptr base = device.allocate({.bytes = variable.bytes,
                                            .kind = MemoryKind::kGlobal,
                                            .device = device.ordinal(),
                                            .context = &context});
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* memory = reinterpret_cast<char*>(base);
  std::memset(memory, 0, variable.bytes);
  std::memcpy(memory, variable.initial.data(), variable.initial.size());
  places_.emplace(key, Place{&device, base, device.find(base)->id});
  *address = base;
  return CUDA_SUCCESS;
}

}  // namespace simcuda
