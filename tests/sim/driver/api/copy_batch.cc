// SPDX-License-Identifier: Apache-2.0
//
// Batches of copies, and copies in the form of one of a batch. Those of one batch are in no order
// in CUDA; here they follow each other.
#include "api/api.h"
#include "api/bindings.h"
#include "exec/copy.h"

using namespace simcuda;

namespace {

// Where the earlier versions tell which copy was refused: all of them were.
constexpr size_t kAll = SIZE_MAX;

// Runs copy(StreamRef, i) for each of the batch, on any stream but the legacy one (cuda.h).
template <class Copy>
CUresult for_each(CUstream handle, DefaultStream kind, size_t count, Copy&& copy) {
  const bool legacy =
      handle == CU_STREAM_LEGACY || (handle == nullptr && kind == DefaultStream::kLegacy);
  if (legacy) return CUDA_ERROR_INVALID_VALUE;
  return on_stream(handle, kind, [&](const StreamRef& stream) {
    CUresult code = CUDA_SUCCESS;
    for (size_t i = 0; i < count && code == CUDA_SUCCESS; ++i) code = copy(stream, i);
    return code;
  });
}

struct Batch {
  const CUdeviceptr* to;
  const CUdeviceptr* from;
  const size_t* bytes;
  size_t count;
};

CUresult copy_batch(Call id, DefaultStream kind, CUstream handle, const Batch& batch) {
  const bool valid = batch.to != nullptr && batch.from != nullptr && batch.bytes != nullptr;
  if (!valid || batch.count == 0) return CUDA_ERROR_INVALID_VALUE;
  return for_each(handle, kind, batch.count, [&](const StreamRef& stream, size_t i) {
    return copy(id, stream, {batch.to[i], Side::kAny}, {batch.from[i], Side::kAny}, batch.bytes[i],
                Timing::kAsynchronous);
  });
}

Layout layout_of(const CUmemcpy3DOperand& operand, const CUextent3D& extent) {
  const auto& ptr = operand.op.ptr;
  const size_t row = ptr.rowLength == 0 ? extent.width : ptr.rowLength;
  return {row, row * (ptr.layerHeight == 0 ? extent.height : ptr.layerHeight)};
}

CUresult copy_box_op(Call id, const StreamRef& stream, const CUDA_MEMCPY3D_BATCH_OP& op) {
  const auto& [src, dst, extent, order, flags] = op;
  const bool linear =
      src.type == CU_MEMCPY_OPERAND_TYPE_POINTER && dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER;
  if (!linear) return CUDA_ERROR_NOT_SUPPORTED;
  return copy_box(id, stream, {dst.op.ptr.ptr, Side::kAny}, layout_of(dst, extent),
                  {src.op.ptr.ptr, Side::kAny}, layout_of(src, extent),
                  {extent.width, extent.height, extent.depth}, Timing::kAsynchronous);
}

CUresult copy_box_batch(Call id, DefaultStream kind, CUstream handle,
                        const CUDA_MEMCPY3D_BATCH_OP* list, size_t count) {
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  return for_each(handle, kind, count, [&](const StreamRef& stream, size_t i) {
    return copy_box_op(id, stream, list[i]);
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
  return for_each(handle, kind, count, [&](const StreamRef& stream, size_t i) {
    const CUdeviceptr to = address_of(list[i].dst), from = address_of(list[i].src);
    if (to == 0 || from == 0) return CUDA_ERROR_INVALID_VALUE;
    return copy(id, stream, {to, Side::kAny}, {from, Side::kAny}, list[i].size,
                Timing::kAsynchronous);
  });
}

CUresult told(CUresult code, size_t* failed) {
  if (code != CUDA_SUCCESS && failed != nullptr) *failed = kAll;
  return code;
}

}  // namespace

extern "C" {

SIM_PAIR(
    cuMemcpyBatchAsync, _ptsz,
    (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attrs,
     size_t* attrsIdxs, size_t numAttrs, size_t* failIdx, CUstream hStream),
    return call(
        kCall,
        [&] {
          return told(copy_batch(kCall, kDefault, hStream, {dsts, srcs, sizes, count}), failIdx);
        },
        in("count", count), stream(hStream));)

SIM_PAIR(cuMemcpyBatchAsync_v2, _ptsz,
         (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
          CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream),
         return call(
             kCall,
             [&] {
               return copy_batch(kCall, kDefault, hStream, {dsts, srcs, sizes, count});
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
                 return copy_box_op(kCall, target, *op);
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
