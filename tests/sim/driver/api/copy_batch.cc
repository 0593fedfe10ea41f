// SPDX-License-Identifier: Apache-2.0
//
// Batches of copies, and copies in the form of one of a batch. Those of one batch have no order.
#include "api/api.h"
#include "api/bindings.h"
#include "exec/copy.h"

using namespace simcuda;

namespace {

// Where the earlier versions tell which copy was refused: all of them were.
constexpr size_t kAll = SIZE_MAX;

// Submits the copies that `list` fills in, on any stream but the legacy one (cuda.h).
template <class List>
CUresult submit_batch(Call id, CUstream handle, DefaultStream kind, List&& list) {
  const bool legacy =
      handle == CU_STREAM_LEGACY || (handle == nullptr && kind == DefaultStream::kLegacy);
  if (legacy) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    std::vector<BatchCopy> copies;
    const CUresult code = list(copies);
    return code == CUDA_SUCCESS ? copy_batch(id, stream, copies) : code;
  });
}

struct Batch {
  const CUdeviceptr* to;
  const CUdeviceptr* from;
  const size_t* bytes;
  size_t count;
  const CUmemcpyAttributes* attributes;
  const size_t* first_with;  // the first copy with each of the attributes
  size_t attribute_count;

  CUmemcpySrcAccessOrder source_order(size_t copy) const {
    auto order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for (size_t i = 0; i < attribute_count && first_with[i] <= copy; ++i) {
      order = attributes[i].srcAccessOrder;
    }
    return order;
  }
};

BatchCopy flat_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpySrcAccessOrder order) {
  const Layout flat{bytes, bytes};
  return {{to, Side::kAny}, flat, {from, Side::kAny}, flat, {bytes, 1, 1}, order};
}

CUresult copy_flat_batch(Call id, DefaultStream kind, CUstream handle, Batch batch) {
  const bool valid = batch.to != nullptr && batch.from != nullptr && batch.bytes != nullptr;
  if (!valid || batch.count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (batch.attributes == nullptr || batch.first_with == nullptr) batch.attribute_count = 0;
  return submit_batch(id, handle, kind, [&](std::vector<BatchCopy>& copies) {
    for (size_t i = 0; i < batch.count; ++i) {
      copies.push_back(
          flat_copy(batch.to[i], batch.from[i], batch.bytes[i], batch.source_order(i)));
    }
    return CUDA_SUCCESS;
  });
}

Layout layout_of(const CUmemcpy3DOperand& operand, const CUextent3D& extent) {
  const auto& ptr = operand.op.ptr;
  const size_t row = ptr.rowLength == 0 ? extent.width : ptr.rowLength;
  return {row, row * (ptr.layerHeight == 0 ? extent.height : ptr.layerHeight)};
}

CUresult add_box(std::vector<BatchCopy>& copies, const CUDA_MEMCPY3D_BATCH_OP& op) {
  const auto& [src, dst, extent, order, flags] = op;
  const bool linear =
      src.type == CU_MEMCPY_OPERAND_TYPE_POINTER && dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER;
  if (!linear) return CUDA_ERROR_NOT_SUPPORTED;
  copies.push_back({{dst.op.ptr.ptr, Side::kAny},
                    layout_of(dst, extent),
                    {src.op.ptr.ptr, Side::kAny},
                    layout_of(src, extent),
                    {extent.width, extent.height, extent.depth},
                    order});
  return CUDA_SUCCESS;
}

CUresult copy_box_batch(Call id, DefaultStream kind, CUstream handle,
                        const CUDA_MEMCPY3D_BATCH_OP* list, size_t count) {
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  return submit_batch(id, handle, kind, [&](std::vector<BatchCopy>& copies) {
    CUresult code = CUDA_SUCCESS;
    for (size_t i = 0; i < count && code == CUDA_SUCCESS; ++i) code = add_box(copies, list[i]);
    return code;
  });
}

// 0: no memory is there.
CUdeviceptr address_of(const CUfabricCpyOperand& operand) {
  return operand.type == CU_FABRIC_COPY_OPERAND_TYPE_POINTER
             ? operand.op.ptr.ptr
             : address_behind(operand.op.le.id, operand.op.le.offset);
}

CUresult copy_fabric_batch(Call id, DefaultStream kind, CUstream handle,
                           const CUDA_FABRIC_COPY_BATCH_OP* list, size_t count) {
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  return submit_batch(id, handle, kind, [&](std::vector<BatchCopy>& copies) {
    for (size_t i = 0; i < count; ++i) {
      const CUdeviceptr to = address_of(list[i].dst), from = address_of(list[i].src);
      if (to == 0 || from == 0) return CUDA_ERROR_INVALID_VALUE;
      copies.push_back(flat_copy(to, from, list[i].size, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM));
    }
    return CUDA_SUCCESS;
  });
}

CUresult told(CUresult code, size_t* failed) {
  if (code != CUDA_SUCCESS && failed != nullptr) *failed = kAll;
  return code;
}

}  // namespace

extern "C" {

SIM_PAIR(cuMemcpyBatchAsync, _ptsz,
         (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
          CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
          CUstream hStream),
         return call(
             kCall,
             [&] {
               return told(copy_flat_batch(kCall, kDefault, hStream,
                                           {dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs}),
                           failIdx);
             },
             in("count", count), stream(hStream));)

SIM_PAIR(cuMemcpyBatchAsync_v2, _ptsz,
         (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
          CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream),
         return call(
             kCall,
             [&] {
               return copy_flat_batch(kCall, kDefault, hStream,
                                      {dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs});
             },
             in("count", count), stream(hStream));)

SIM_PAIR(cuMemcpy3DBatchAsync, _ptsz,
         (size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx, unsigned long long flags,
          CUstream hStream),
         return call(
             kCall,
             [&] {
               return told(copy_box_batch(kCall, kDefault, hStream, opList, numOps), failIdx);
             },
             in("numOps", numOps), stream(hStream));)

SIM_PAIR(cuMemcpy3DBatchAsync_v2, _ptsz,
         (size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long flags,
          CUstream hStream),
         return call(
             kCall, [&] { return copy_box_batch(kCall, kDefault, hStream, opList, numOps); },
             in("numOps", numOps), stream(hStream));)

SIM_PAIR(cuMemcpy3DWithAttributesAsync, _ptsz,
         (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream hStream),
         return call(
             kCall,
             [&] {
               if (op == nullptr) return CUDA_ERROR_INVALID_VALUE;
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 std::vector<BatchCopy> copies;
                 const CUresult code = add_box(copies, *op);
                 return code == CUDA_SUCCESS ? copy_batch(kCall, target, copies) : code;
               });
             },
             stream(hStream));)

SIM_PAIR(cuFabricCpyBatchAsync, _ptsz,
         (size_t numOps, CUDA_FABRIC_COPY_BATCH_OP* opList, unsigned long long flags,
          CUstream hStream),
         return call(
             kCall, [&] { return copy_fabric_batch(kCall, kDefault, hStream, opList, numOps); },
             in("numOps", numOps), stream(hStream));)

}  // extern "C"
