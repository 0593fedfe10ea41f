// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills as work on a stream, with the real driver's rules about pageable memory: what
// is read from it is taken at the call, what is written to it has arrived when the call returns.
#pragma once

#include <vector>

#include "base/cuda.h"
#include "exec/stream.h"

namespace simcuda {

enum class Side : uint8_t { kDevice, kHost, kAny };

struct CopyEnd {
  CUdeviceptr address;
  Side side;
};

enum class Timing : uint8_t { kSynchronous, kAsynchronous };

CUresult copy(Call call, const StreamRef& stream, CopyEnd to, CopyEnd from, size_t bytes,
              Timing timing);

// `depth` slices of `height` rows of `width` bytes; strides in bytes.
struct Box {
  size_t width;
  size_t height;
  size_t depth;
};
struct Layout {
  size_t row;
  size_t slice;
};
CUresult copy_box(Call call, const StreamRef& stream, CopyEnd to, Layout to_layout, CopyEnd from,
                  Layout from_layout, Box box, Timing timing);

// Asynchronous copies that have no order among themselves. One that reads its source out of stream
// order does so during the call.
struct BatchCopy {
  CopyEnd to;
  Layout to_layout;
  CopyEnd from;
  Layout from_layout;
  Box box;
  CUmemcpySrcAccessOrder source_order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
};
CUresult copy_batch(Call call, const StreamRef& stream, const std::vector<BatchCopy>& copies);

// Fills `height` rows of `width` elements with a value of 1, 2 or 4 bytes. A synchronous one waits
// where the memory is pinned or managed.
struct Fill {
  CUdeviceptr address;
  size_t pitch;
  unsigned value;
  unsigned element;
  size_t width;
  size_t height;
};
CUresult fill(Call call, const StreamRef& stream, const Fill& what, Timing timing);

}  // namespace simcuda
