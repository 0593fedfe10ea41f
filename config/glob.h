// SPDX-License-Identifier: Apache-2.0
//
// Whether a text matches a glob that the table accepted (parse.h): * and ? as in the shell, [abc],
// [a-z], [!a] or [^a], and \ before a literal character. Bytes, not characters; a / is like any
// other. Pure; any thread.
#pragma once

#include <string_view>

namespace cistern::config {

bool matches_glob(std::string_view glob, std::string_view text);

}  // namespace cistern::config
