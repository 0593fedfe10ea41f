// SPDX-License-Identifier: Apache-2.0
// The patterns of CISTERN_SKIP_GRADS and `cistern plan --skip-grads`. Any thread.
#pragma once

#include <string_view>

namespace cistern::config {

// Whether the text says that something belongs to the backward part of a training step. `function`:
// it is a range or a function, else a file. Some words count in the former alone: folders of people
// have names, too.
bool names_backward(std::string_view text, bool function);

}  // namespace cistern::config
