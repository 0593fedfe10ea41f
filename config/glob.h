// SPDX-License-Identifier: Apache-2.0
// Globs of settings, and the built-in ones of CISTERN_SKIP_GRADS and `cistern plan --skip-grads`.
// A glob is as in the shell: * and ?, [abc], [a-z], [!a] or [^a], and \ before a literal character.
// It matches bytes, not characters, and a / is like any other byte. Only globs that the table
// accepted (parse.h) may be matched. Pure; any thread.
#pragma once

#include <string_view>

namespace cistern::config {

bool matches_glob(std::string_view glob, std::string_view text);

// Whether a name belongs to the backward part of a training step. `function`: the text names a
// range or a function, else a file. Some words count only in ranges and functions, because users'
// folders may happen to contain them.
bool names_backward(std::string_view text, bool function);

}  // namespace cistern::config
