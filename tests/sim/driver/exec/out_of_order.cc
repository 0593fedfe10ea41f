// SPDX-License-Identifier: Apache-2.0
#include "exec/out_of_order.h"

#include <mutex>

#include "exec/capture.h"
#include "exec/context.h"
#include "exec/engine.h"

namespace simcuda {
namespace {

// Pieces beyond that many share helpers.
constexpr size_t kHelpers = 8;

// Caller holds exec_mutex().
StreamRef helper(Stream& stream, size_t index) {
  auto& all = stream.helpers;
  while (all.size() <= index) {
    all.push_back(std::make_shared<Stream>(stream.context, Stream::Role::kCreated,
                                           CU_STREAM_NON_BLOCKING, stream.priority));
  }
  return all[index];
}

// What the stream is given next comes behind these.
CUresult rejoin(const StreamRef& stream, Call call, const std::vector<MarkerRef>& all) {
  Work end{.call = call};
  for (const MarkerRef& marker : all) end.after.add(marker);
  return submit(stream, std::move(end));
}

}  // namespace

CUresult submit_early(const StreamRef& stream, Work kernel) {
  StreamRef aside;
  Order before;
  {
    const std::lock_guard lock(exec_mutex());
    const bool may_overlap = stream->before_kernel && stream->role != Stream::Role::kLegacy &&
                             stream->capture == nullptr;
    if (may_overlap) {
      // Two in turn: the next such kernel need not come behind this one either.
      aside = helper(*stream, stream->early_kernels++ % 2);
      before = *stream->before_kernel;
      if (stream->blocking()) before.add(stream->context.legacy->tail);
    }
  }
  if (aside == nullptr) return submit(stream, std::move(kernel));
  const Call call = kernel.call;
  kernel.after.add(before);
  MarkerRef done;
  const CUresult code = submit(aside, std::move(kernel), Wait::kNo, &done);
  if (code != CUDA_SUCCESS) return code;
  const CUresult joined = rejoin(stream, call, {done});
  const std::lock_guard lock(exec_mutex());
  stream->before_kernel = std::move(before);
  return joined;
}

CUresult submit_unordered(const StreamRef& stream, std::vector<Unordered> pieces) {
  if (pieces.empty()) return CUDA_SUCCESS;
  const Call call = pieces.front().work.call;
  if (being_captured(stream)) {
    CUresult code = CUDA_SUCCESS;
    for (Unordered& piece : pieces) {
      if (code == CUDA_SUCCESS) code = submit(stream, std::move(piece.work), piece.wait);
    }
    return code;
  }
  MarkerRef begin;
  CUresult code = submit(stream, {.call = call}, Wait::kNo, &begin);
  std::vector<MarkerRef> all;
  for (size_t i = 0; i < pieces.size() && code == CUDA_SUCCESS; ++i) {
    Unordered& piece = pieces[i];
    StreamRef aside, reader;
    {
      const std::lock_guard lock(exec_mutex());
      aside = helper(*stream, i % kHelpers);
      if (piece.read.run) reader = helper(*stream, kHelpers);
    }
    if (reader != nullptr) code = submit(reader, std::move(piece.read), Wait::kYes);
    if (code != CUDA_SUCCESS) break;
    piece.work.after.add(begin);
    all.emplace_back();
    code = submit(aside, std::move(piece.work), piece.wait, &all.back());
  }
  const CUresult joined = rejoin(stream, call, all);
  return code != CUDA_SUCCESS ? code : joined;
}

}  // namespace simcuda
