// SPDX-License-Identifier: Apache-2.0
#include "config/text.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace cistern::config {
namespace {

// glob[*i] is the [ of a set; leaves *i behind its ].
bool in_set(std::string_view glob, size_t* i, char c) {
  size_t at = *i + 1;
  const bool negated = glob[at] == '!' || glob[at] == '^';
  if (negated) ++at;
  bool found = false;
  for (bool first = true; at < glob.size() && (first || glob[at] != ']'); first = false) {
    const auto low = static_cast<unsigned char>(glob[at++]);
    auto high = low;
    if (at + 1 < glob.size() && glob[at] == '-' && glob[at + 1] != ']') {
      high = static_cast<unsigned char>(glob[at + 1]);
      at += 2;
    }
    const auto byte = static_cast<unsigned char>(c);
    found = found || (low <= byte && byte <= high);
  }
  *i = at + 1;
  return found != negated;
}

// One element of the glob, which is no star, against one byte.
bool matches_one(std::string_view glob, size_t* i, char c) {
  switch (glob[*i]) {
    case '?':
      ++*i;
      return true;
    case '[':
      return in_set(glob, i, c);
    case '\\':
      ++*i;
      [[fallthrough]];
    default:
      return glob[(*i)++] == c;
  }
}

}  // namespace

// After a mismatch only the last star can take more.
bool matches_glob(std::string_view glob, std::string_view text) {
  size_t g = 0, t = 0;
  size_t after_star = std::string_view::npos, star_took_to = 0;
  while (t < text.size() || g < glob.size()) {
    if (g < glob.size() && glob[g] == '*') {
      after_star = ++g;
      star_took_to = t;
      continue;
    }
    if (g < glob.size() && t < text.size() && matches_one(glob, &g, text[t])) {
      ++t;
      continue;
    }
    if (after_star == std::string_view::npos || star_took_to == text.size()) return false;
    g = after_star;
    t = ++star_took_to;
  }
  return true;
}

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
