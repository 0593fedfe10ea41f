// SPDX-License-Identifier: Apache-2.0
#include "exec/user_object.h"

#include <climits>
#include <thread>

#include "base/gate.h"
#include "base/handles.h"

namespace simcuda {

struct UserObject {
  void* pointer;
  CUhostFn destroy;
  std::mutex mutex;
  unsigned references;
};

namespace {

HandleTable<CUuserObject, UserObject>& objects() {
  static auto& all = *new HandleTable<CUuserObject, UserObject>;
  return all;
}

bool sensible(unsigned count) { return count >= 1 && count <= INT_MAX; }

}  // namespace

CUresult create_user_object(void* pointer, CUhostFn destroy, unsigned references,
                            CUuserObject* out) {
  if (destroy == nullptr || out == nullptr || !sensible(references)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto object = std::make_shared<UserObject>();
  object->pointer = pointer;
  object->destroy = destroy;
  object->references = references;
  *out = objects().insert(std::move(object));
  return CUDA_SUCCESS;
}

CUresult retain_user_object(CUuserObject handle, unsigned count) {
  const auto object = objects().find(handle);
  if (object == nullptr || !sensible(count)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(object->mutex);
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult release_user_object(CUuserObject handle, unsigned count) {
  const auto object = objects().find(handle);
  if (object == nullptr || !sensible(count)) return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(object->mutex);
    if (count > object->references) return CUDA_ERROR_INVALID_VALUE;
    object->references -= count;
    if (object->references != 0) return CUDA_SUCCESS;
  }
  objects().remove(handle);
  // The driver calls it on a thread of its own, and as a callback it must not call CUDA.
  std::thread([object] {
    const InCallback guard;
    object->destroy(object->pointer);
  }).detach();
  return CUDA_SUCCESS;
}

KeptObjects::~KeptObjects() {
  for (const auto& [handle, count] : counts_) release_user_object(handle, count);
}

CUresult KeptObjects::retain(CUuserObject handle, unsigned count, bool moved) {
  if (objects().find(handle) == nullptr || !sensible(count)) return CUDA_ERROR_INVALID_VALUE;
  if (!moved) {
    if (const CUresult code = retain_user_object(handle, count); code != CUDA_SUCCESS) return code;
  }
  const std::lock_guard lock(mutex_);
  counts_[handle] += count;
  return CUDA_SUCCESS;
}

CUresult KeptObjects::release(CUuserObject handle, unsigned count) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(handle);
    if (found == counts_.end() || !sensible(count) || count > found->second) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    found->second -= count;
    if (found->second == 0) counts_.erase(found);
  }
  return release_user_object(handle, count);
}

void KeptObjects::take_from(const KeptObjects& other) {
  const std::lock_guard lock(other.mutex_);
  for (const auto& [handle, count] : other.counts_) retain(handle, 1, false);
}

}  // namespace simcuda
