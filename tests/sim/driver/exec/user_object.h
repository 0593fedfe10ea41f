// SPDX-License-Identifier: Apache-2.0
//
// Objects of the program that graphs keep: counted references, and a function that is called once,
// when the last one is gone. Graphs give their references back with themselves, an executable graph
// those that it got from its graph (cuda.h, cuUserObjectCreate). Any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/cuda.h"

namespace simcuda {

struct UserObject;

CUresult create_user_object(void* pointer, CUhostFn destroy, unsigned references,
                            CUuserObject* out);
CUresult retain_user_object(CUuserObject object, unsigned count);
CUresult release_user_object(CUuserObject object, unsigned count);

// The references of one graph.
class KeptObjects {
 public:
  KeptObjects() = default;
  ~KeptObjects();
  KeptObjects(const KeptObjects&) = delete;
  KeptObjects& operator=(const KeptObjects&) = delete;

  // `moved`: the caller's references become the graph's; else these are new ones.
  CUresult retain(CUuserObject handle, unsigned count, bool moved);
  CUresult release(CUuserObject handle, unsigned count);
  // One reference of its own to everything that the other has.
  void take_from(const KeptObjects& other);

 private:
  mutable std::mutex mutex_;
  std::map<CUuserObject, unsigned> counts_;
};

}  // namespace simcuda
