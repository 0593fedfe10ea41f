// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/site_words.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "config/glob.h"

namespace cistern::shim {
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
                     [=](std::string_view glob) { return config::matches_glob(glob, text); });
}

bool is_small(char c) { return ('a' <= c && c <= 'z') || ('0' <= c && c <= '9'); }
bool is_capital(char c) { return 'A' <= c && c <= 'Z'; }
bool in_word(char c) { return is_small(c) || is_capital(c); }
char small(char c) { return is_capital(c) ? static_cast<char>(c - 'A' + 'a') : c; }

// Whether a word begins, or ends, at text[at].
bool is_boundary(std::string_view text, size_t at) {
  if (at == 0 || at == text.size()) return true;
  const char before = text[at - 1], behind = text[at];
  return !in_word(before) || !in_word(behind) || (is_small(before) && is_capital(behind));
}

// Between two words of an operator the text has one other character, or none.
bool named_at(std::string_view text, size_t at, std::string_view op) {
  if (!is_boundary(text, at)) return false;
  for (const char c : op) {
    if (c == '_') {
      if (at < text.size() && !in_word(text[at])) {
        ++at;
      } else if (!is_boundary(text, at)) {
        return false;
      }
    } else {
      if (at == text.size() || small(text[at]) != c) return false;
      ++at;
    }
  }
  return is_boundary(text, at);
}

}  // namespace

bool names_backward(std::string_view text, bool function) {
  return fits_one(kBackward, text) || (function && fits_one(kBackwardFunctions, text));
}

bool names_operator(std::string_view text, std::string_view op) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (named_at(text, at, op)) return true;
  }
  return false;
}

}  // namespace cistern::shim
