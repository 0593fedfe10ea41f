// SPDX-License-Identifier: Apache-2.0
#include "shim/order/participants.h"

#include <cstring>

#include "shim/order/captures/graphs.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_registry.h"
#include "shim/order/ties.h"

namespace cistern::shim {
namespace {

// The first byte of a box in pitched memory.
CUdeviceptr first_byte(CUdeviceptr base, size_t x, size_t y, size_t pitch, size_t z = 0,
                       size_t height = 0) {
  return base + x + pitch * (y + height * z);
}

CUdeviceptr address_of(CUmemorytype type, CUdeviceptr device, const void* host) {
  if (type == CU_MEMORYTYPE_ARRAY) return 0;
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
}

// Read as a type of our own, since the enumeration of an older header cannot hold some values.
CisternAtomicReduction as_reduction(const CUstreamBatchMemOpParams& operation) {
  CisternAtomicReduction reduction;
  static_assert(sizeof reduction <= sizeof operation);
  memcpy(&reduction, &operation, sizeof reduction);
  return reduction;
}

}  // namespace

// An unknown context may be any context.
void Participants::add_context(CUcontext handle) {
  if (const Context* context = working_context(handle)) {
    contexts_.add(context->number);
  } else if (handle != nullptr && in_crowd(handle)) {
    contexts_.add(kCrowd);
  } else if (handle != nullptr) {
    contexts_.add(living_contexts());
  }
}

void Participants::worker(CUstream stream) {
  add_context(stream == nullptr ? current_handle() : context_of_stream(stream));
}

void Participants::worker_of_stream(CUstream stream) {
  stream_ = stream;
  has_stream_ = true;
  worker(stream);
}

void Participants::add(CUdeviceptr address) {
  const alloc::Chunk* chunk = address == 0 ? nullptr : shared().index.find(address);
  if (chunk != nullptr) contexts_.add(chunk->at().owner());
}

void Participants::add(CUgraphExec exec) { contexts_.add(contexts_of(exec)); }

void Participants::add(const CUdeviceptr* addresses) {
  for (size_t i = 0; addresses != nullptr && i < count_; ++i) add(addresses[i]);
}

void Participants::add(const CUDA_MEMCPY2D* copy) {
  const CUDA_MEMCPY2D& c = *copy;
  add(first_byte(address_of(c.srcMemoryType, c.srcDevice, c.srcHost), c.srcXInBytes, c.srcY,
                 c.srcPitch));
  add(first_byte(address_of(c.dstMemoryType, c.dstDevice, c.dstHost), c.dstXInBytes, c.dstY,
                 c.dstPitch));
}

void Participants::add(const CUDA_MEMCPY3D* copy) { add_box(*copy); }

void Participants::add(const CUDA_MEMCPY3D_PEER* copy) {
  add_context(copy->srcContext);
  add_context(copy->dstContext);
  add_box(*copy);
}

template <typename Copy>
void Participants::add_box(const Copy& c) {
  add(first_byte(address_of(c.srcMemoryType, c.srcDevice, c.srcHost), c.srcXInBytes, c.srcY,
                 c.srcPitch, c.srcZ, c.srcHeight));
  add(first_byte(address_of(c.dstMemoryType, c.dstDevice, c.dstHost), c.dstXInBytes, c.dstY,
                 c.dstPitch, c.dstZ, c.dstHeight));
}

void Participants::add(CUDA_MEMCPY3D_BATCH_OP* copies) {
  for (size_t i = 0; copies != nullptr && i < count_; ++i) {
    for (const CUmemcpy3DOperand* operand : {&copies[i].src, &copies[i].dst}) {
      if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) add(operand->op.ptr.ptr);
    }
  }
}

// Memory that is bound to a logical endpoint is never pooled (hooks/memory.cc).
void Participants::add(CUDA_FABRIC_COPY_BATCH_OP* copies) {
  for (size_t i = 0; copies != nullptr && i < count_; ++i) {
    for (const CUfabricCpyOperand* operand : {&copies[i].src, &copies[i].dst}) {
      if (operand->type == CU_FABRIC_COPY_OPERAND_TYPE_POINTER) add(operand->op.ptr.ptr);
    }
  }
}

void Participants::add(CUmemDecompressParams* parameters) {
  for (size_t i = 0; parameters != nullptr && i < count_; ++i) {
    add(parameters[i].src);
    add(parameters[i].dst);
    add(reinterpret_cast<CUdeviceptr>(parameters[i].dstActBytes));
  }
}

void Participants::add(CUstreamBatchMemOpParams* operations) {
  for (size_t i = 0; operations != nullptr && i < count_; ++i) {
    const CisternAtomicReduction reduction = as_reduction(operations[i]);
    switch (reduction.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        add(operations[i].waitValue.address);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        add(operations[i].writeValue.address);
        break;
      case CISTERN_ATOMIC_REDUCTION:
        add(reduction.address);
        break;
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      case CU_STREAM_MEM_OP_BARRIER:
        break;
      default:  // unknown: it may touch memory of any context
        contexts_.add(living_contexts());
        break;
    }
  }
}

void Participants::tie() const {
  if (!contexts_.several()) return;
  const FollowedCopy followed(contexts_, stream_);
  shim::tie(contexts_, contexts_);
}

}  // namespace cistern::shim
