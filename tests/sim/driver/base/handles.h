// SPDX-License-Identifier: Apache-2.0
//
// Opaque CUDA handles for simulator objects. A handle names a small cell that outlives the object
// and is reused, last freed first, as the real driver reuses handles; a stale or invented handle is
// told from a live one without touching what it points to. Any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace simcuda {

template <class Handle, class Object>
class HandleTable {
 public:
  Handle insert(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      cells_.emplace_back();
      free_.push_back(reinterpret_cast<Handle>(&cells_.back()));
    }
    const Handle handle = free_.back();
    free_.pop_back();
    live_.emplace(handle, std::move(object));
    return handle;
  }

  // Null for a handle that names nothing.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    return found == live_.end() ? nullptr : found->second;
  }

  // Takes the object out of the table; null if the handle named nothing.
  std::shared_ptr<Object> remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    if (found == live_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    live_.erase(found);
    free_.push_back(handle);
    return object;
  }

  // Calls visit(object) for each live object, under the table's lock.
  template <class Visit>
  void for_each(Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, object] : live_) visit(object);
  }

 private:
  struct alignas(64) Cell {};

  mutable std::mutex mutex_;
  std::deque<Cell> cells_;
  std::vector<Handle> free_;
  std::unordered_map<Handle, std::shared_ptr<Object>> live_;
};

}  // namespace simcuda
