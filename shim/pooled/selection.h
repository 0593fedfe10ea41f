// SPDX-License-Identifier: Apache-2.0
// Which requests are pooled: a way to find the allocation that a program uses wrongly, and to leave
// some out. Each other request gets the same as without Cistern: a driver allocation of its own,
// really freed, as long as the driver has memory.
//
// CISTERN_ONLY_SIZES and CISTERN_POOL_FIRST choose by size and by order. Other settings choose by
// the call site and the NVTX range of a request. CISTERN_SKIP_OPT_SET, CISTERN_SKIP_GRADS and
// FLAGS_enable_inplace_whitelist keep requests that match out of the pools. CISTERN_ONLY_SITES
// keeps those out that do not match. Each site and each range is matched once, and the result is
// kept. Any thread; the caller may hold no lock of Cistern's.
#pragma once

#include <cstdint>
#include <string_view>

#include "config/policy.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

// Whether a request of `bytes` is to be pooled. To be asked once for each request, because those of
// the chosen sizes are counted.
bool selected(uint64_t bytes);

// To be called at load: reads the entries of these settings. If there are any, switches call sites
// on.
void open_chosen_sites(const config::Policy& policy);

// Whether the site and the range of the calling thread let its request be pooled. To be asked once
// for each request, because those that match an entry are counted.
bool site_is_pooled();

// The entry with this index, in the order of the settings; false if there are no more.
bool chosen_sites_entry(int index, SiteEntry* out);

// --- the operator names of FLAGS_enable_inplace_whitelist ---

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
