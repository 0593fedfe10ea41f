// SPDX-License-Identifier: Apache-2.0
// What CISTERN_SKIP_GRADS and `cistern plan --skip-grads` look for: globs for ranges, functions and
// files of the backward part of a training step. They match whatever says so by name, and the
// engines of automatic differentiation. A header of its own, since the object and the planner need
// the same list. Plain data.
#pragma once

#include <string_view>

namespace cistern::config {

inline constexpr std::string_view kBackwardGlobs[] = {
    "*backward*",
    "*Backward*",
    "*BACKWARD*",
    "torch::autograd::Engine::*",        // PyTorch, C++
    "torch::autograd::python::Python*",  // PyTorch, functions written in Python
    "*tensorflow::GradientTape*",        // TensorFlow, eager
    "*tensorflow::eager::GradientTape*",
    "GradientTape.gradient",              // TensorFlow, Python
    "*paddle::imperative::BasicEngine*",  // Paddle, dynamic graph before and since 2.3
    "*egr::Grad*",
    "*egr::RunBackward*",
    "vjp*",  // JAX, Python
    "*.vjp",
    "value_and_grad.*",
    "grad.*",
};

}  // namespace cistern::config
