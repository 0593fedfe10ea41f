// SPDX-License-Identifier: Apache-2.0
#include "config/backward.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "config/glob.h"

namespace cistern::config {
namespace {

// Whatever says so by name, and the engines of automatic differentiation.
constexpr std::string_view kBackward[] = {
    "*backward*",
    "*Backward*",
    "*BACKWARD*",
    "torch::autograd::Engine::*",        // PyTorch, C++
    "torch::autograd::python::Python*",  // PyTorch, functions written in Python
    "*tensorflow::GradientTape*",        // TensorFlow, eager
    "*tensorflow::eager::GradientTape*",
    "GradientTape.gradient",              // TensorFlow, Python
    "*paddle::imperative::BasicEngine*",  // Paddle, dynamic graph before and since 2.3
    "*paddle::imperative::PartialGradEngine*",
    "*egr::Grad*",
    "*egr::RunBackward*",
    "vjp*",  // JAX, Python
    "*.vjp",
    "value_and_grad.*",
    "grad.*",
};

constexpr std::string_view kBackwardFunctions[] = {
    "*@GRAD*",           // Paddle: the gradient of a variable, x@GRAD
    "*_grad*",           // operators of both: conv2d_grad, slow_conv2d_grad_input
    "*GradOp*",          // Paddle, operators of static graphs
    "*Grad*Kernel*",     // Paddle, phi::ConvGradKernel
    "*GradNode*",        // Paddle, nodes of its eager engine
    "*AccumulateGrad*",  // PyTorch, what adds up a parameter's gradient
};

template <size_t kCount>
bool fits_one(const std::string_view (&globs)[kCount], std::string_view text) {
  return std::any_of(std::begin(globs), std::end(globs),
                     [=](std::string_view glob) { return matches_glob(glob, text); });
}

}  // namespace

bool names_backward(std::string_view text, bool function) {
  return fits_one(kBackward, text) || (function && fits_one(kBackwardFunctions, text));
}

}  // namespace cistern::config
