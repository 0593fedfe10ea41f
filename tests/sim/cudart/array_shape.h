// SPDX-License-Identifier: Apache-2.0
// The shape of an element in the runtime's words and in the driver's. Any thread.
#pragma once

#include <cuda.h>
#include <driver_types.h>

#include <optional>

namespace simcudart {

struct ElementShape {
  CUarray_format format;
  unsigned channels;
};

// Nothing for a description that fits no format.
std::optional<ElementShape> shape_of(const cudaChannelFormatDesc& channels);
cudaChannelFormatDesc channels_of(const ElementShape& shape);

// What a texture is made of, in the driver's words; nothing for what it cannot be made of.
std::optional<CUDA_RESOURCE_DESC> driver_resource(const cudaResourceDesc& resource);
cudaResourceDesc runtime_resource(const CUDA_RESOURCE_DESC& resource);

}  // namespace simcudart
