// SPDX-License-Identifier: Apache-2.0
#include "exec/copy.h"

#include <cstring>
#include <memory>
#include <mutex>

#include "exec/capture.h"
#include "exec/context.h"
#include "exec/engine.h"
#include "exec/out_of_order.h"
#include "memory/allocation.h"
#include "memory/device.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

// What an end of a copy turned out to be.
enum class Place : uint8_t { kDevice, kPinned, kPageable, kInvalid };

char* host(CUdeviceptr address) { return reinterpret_cast<char*>(address); }

Place place_of(const CopyEnd& end, size_t bytes) {
  const auto found = find_allocation(end.address);
  if (!found) return end.side == Side::kDevice ? Place::kInvalid : Place::kPageable;
  if (end.side == Side::kHost) return is_host(found->kind) ? Place::kPinned : Place::kPageable;
  if (!device_covers(end.address, bytes)) return Place::kInvalid;
  return is_host(found->kind) ? Place::kPinned : Place::kDevice;
}

size_t extent(const Box& box, const Layout& layout) {
  return (box.depth - 1) * layout.slice + (box.height - 1) * layout.row + box.width;
}

void move_box(char* to, Layout to_layout, const char* from, Layout from_layout, Box box) {
  for (size_t z = 0; z < box.depth; ++z) {
    for (size_t y = 0; y < box.height; ++y) {
      std::memmove(to + z * to_layout.slice + y * to_layout.row,
                   from + z * from_layout.slice + y * from_layout.row, box.width);
    }
  }
}

// Synchronous copies wait unless both ends are device memory; asynchronous ones only for pageable
// memory they write to.
Wait waiting(Timing timing, Place to, Place from) {
  const bool device_only = to == Place::kDevice && from == Place::kDevice;
  if (timing == Timing::kSynchronous) return device_only ? Wait::kNo : Wait::kYes;
  return to == Place::kPageable ? Wait::kYes : Wait::kNo;
}

// The rows of a box as what the work touches; without gaps they are one stretch.
void add_rows(std::vector<Access>& all, CUdeviceptr start, Layout layout, Box box, Touch touch) {
  const bool flat_rows = layout.row == box.width || box.height == 1;
  const bool flat = flat_rows && (layout.slice == box.width * box.height || box.depth == 1);
  if (flat) {
    all.push_back({start, box.width * box.height * box.depth, touch});
    return;
  }
  for (size_t z = 0; z < box.depth; ++z) {
    for (size_t y = 0; y < box.height; ++y) {
      all.push_back({start + z * layout.slice + y * layout.row, box.width, touch});
    }
  }
}

CUresult prepare(Call call, const StreamRef& stream, const BatchCopy& what, Timing timing,
                 Unordered* out) {
  const auto& [to, to_layout, from, from_layout, box, source_order] = what;
  const size_t from_bytes = extent(box, from_layout);
  const Place to_place = place_of(to, extent(box, to_layout));
  const Place from_place = place_of(from, from_bytes);
  if (to_place == Place::kInvalid || from_place == Place::kInvalid) return CUDA_ERROR_INVALID_VALUE;

  Work &work = out->work, &read = out->read;
  work.call = read.call = call;
  out->wait = waiting(timing, to_place, from_place);
  const bool captured = being_captured(stream);
  // A captured copy reads and writes host memory whenever it is replayed.
  if (captured && timing == Timing::kAsynchronous) out->wait = Wait::kNo;

  std::shared_ptr<char[]> staged;
  const char* source = host(from.address);
  const bool pageable = from_place == Place::kPageable;
  const bool early = !pageable && source_order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && !captured;
  if (early || (pageable && out->wait == Wait::kNo && !captured)) {
    staged.reset(new char[from_bytes]);
    if (!early) std::memcpy(staged.get(), source, from_bytes);
    if (early) read.run = [=] { std::memcpy(staged.get(), source, from_bytes); };
  }
  if (watching() || several_contexts() || captured) {
    // Pageable memory is the host's: the copy is over with it when the call returns.
    if (to_place != Place::kPageable) {
      add_rows(work.accesses, to.address, to_layout, box, Touch::kWrite);
    }
    if (!pageable) {
      add_rows((early ? read : work).accesses, from.address, from_layout, box, Touch::kRead);
    }
  }
  work.run = [=, target = host(to.address), target_layout = to_layout, source_layout = from_layout,
              part = box] {
    move_box(target, target_layout, staged == nullptr ? source : staged.get(), source_layout, part);
  };
  return CUDA_SUCCESS;
}

bool is_empty(const Box& box) { return box.width == 0 || box.height == 0 || box.depth == 0; }

}  // namespace

CUresult copy_box(Call call, const StreamRef& stream, CopyEnd to, Layout to_layout, CopyEnd from,
                  Layout from_layout, Box box, Timing timing) {
  if (is_empty(box)) return CUDA_SUCCESS;
  Unordered piece;
  const CUresult code =
      prepare(call, stream, {to, to_layout, from, from_layout, box}, timing, &piece);
  return code != CUDA_SUCCESS ? code : submit(stream, std::move(piece.work), piece.wait);
}

CUresult copy_batch(Call call, const StreamRef& stream, const std::vector<BatchCopy>& copies) {
  std::vector<Unordered> pieces;
  for (const BatchCopy& what : copies) {
    if (is_empty(what.box)) continue;
    const CUresult code =
        prepare(call, stream, what, Timing::kAsynchronous, &pieces.emplace_back());
    if (code != CUDA_SUCCESS) return code;
  }
  return submit_unordered(stream, std::move(pieces));
}

CUresult copy(Call call, const StreamRef& stream, CopyEnd to, CopyEnd from, size_t bytes,
              Timing timing) {
  const Layout flat{bytes, bytes};
  return copy_box(call, stream, to, flat, from, flat, {bytes, 1, 1}, timing);
}

CUresult fill(Call call, const StreamRef& stream, const Fill& what, Timing timing) {
  if (what.width == 0 || what.height == 0) return CUDA_SUCCESS;
  const size_t row = what.width * what.element;
  const size_t bytes = (what.height - 1) * what.pitch + row;
  const bool aligned = what.address % what.element == 0 &&
                       (what.height == 1 || (what.pitch >= row && what.pitch % what.element == 0));
  if (!aligned || !device_covers(what.address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  Work work{.call = call};
  if (watching() || several_contexts() || being_captured(stream)) {
    add_rows(work.accesses, what.address, {what.pitch, 0}, {row, what.height, 1}, Touch::kWrite);
  }
  work.run = [what, row] {
    for (size_t y = 0; y < what.height; ++y) {
      fill_memory(what.address + y * what.pitch, what.value, what.element, row);
    }
  };
  const auto found = find_allocation(what.address);
  const bool hosts = found && (is_host(found->kind) || found->kind == MemoryKind::kManaged);
  const bool waits = timing == Timing::kSynchronous && hosts;
  return submit(stream, std::move(work), waits ? Wait::kYes : Wait::kNo);
}

}  // namespace simcuda
