// SPDX-License-Identifier: Apache-2.0
// The operator names of FLAGS_enable_inplace_whitelist.
#pragma once

#include <string_view>

namespace cistern::shim {

// The operators of the inplace whitelist, as words: "batch_norm" stands for batch_norm, BatchNorm
// and batchNorm.
inline constexpr std::string_view kInplaceOperators[] = {
    "sigmoid",
    "exp",
    "relu",
    "tanh",
    "sqrt",
    "ceil",
    "floor",
    "reciprocal",
    "relu6",
    "soft_relu",
    "hard_sigmoid",
    "batch_norm",
    "batch_norm_grad",
    "sum",
    "sum_grad",
    "scale",
    "reshape",
    "elementwise_add",
    "elementwise_add_grad",
};

// Whether `text` names the operator: the operator's words follow each other in it as whole words. A
// word is letters and digits; it ends before anything else, and before a capital after a small
// letter or a digit. Capitals do not matter.
bool names_operator(std::string_view text, std::string_view op);

}  // namespace cistern::shim
