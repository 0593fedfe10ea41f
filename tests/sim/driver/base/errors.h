// SPDX-License-Identifier: Apache-2.0
//
// CUresult codes by number, name and text (errors.def). Pure.
#pragma once

#include <optional>
#include <string_view>

#include "base/cuda.h"

namespace simcuda {

// Null for a code CUDA does not know.
const char* error_name(CUresult code);
const char* error_text(CUresult code);

// A code given by number ("2") or name ("CUDA_ERROR_OUT_OF_MEMORY").
std::optional<CUresult> find_error(std::string_view text);

}  // namespace simcuda
