// SPDX-License-Identifier: Apache-2.0
//
// Objects that graphs keep.
#include "exec/user_object.h"

#include "api/api.h"
#include "exec/graph.h"

using namespace simcuda;

extern "C" {

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  return call(Call::cuUserObjectCreate, [&] {
    // The one flag there is says that nobody waits for the destructor; it has to be there.
    if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
    return create_user_object(ptr, destroy, initialRefcount, object_out);
  });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return call(Call::cuUserObjectRetain, [&] { return retain_user_object(object, count); });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return call(Call::cuUserObjectRelease, [&] { return release_user_object(object, count); });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
  return call(Call::cuGraphRetainUserObject, [&] {
    const auto found = find_graph(graph);
    if (found == nullptr || (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return found->kept.retain(object, count, flags == CU_GRAPH_USER_OBJECT_MOVE);
  });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  return call(Call::cuGraphReleaseUserObject, [&] {
    const auto found = find_graph(graph);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : found->kept.release(object, count);
  });
}

}  // extern "C"
