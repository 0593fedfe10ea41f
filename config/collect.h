// SPDX-License-Identifier: Apache-2.0
//
// The steps of load(): gathering texts, and checking them together. Private to config/. Each step
// returns false after it has written the one error line.
#pragma once

#include "config/loaded.h"

namespace cistern::config {

// Settings in the environment; names nobody knows become warnings.
bool collect_environment(const char* const* envp, Loaded& out);

// Settings in the file at `path` that the environment left unset. Of what stands behind a bad line
// only CISTERN_ON_ERROR is taken.
bool collect_file(const char* path, Loaded& out);

// The slot of a name, or nullptr when there is no such setting. False: a device number too high.
bool find_slot(std::string_view name, Loaded& out, Given*& slot);

// Copies into out.storage. nullptr: no room, and the error line is written.
const char* keep_text(std::string_view name, std::string_view text, Loaded& out);

// A warning for a name without a row. `where` is "" or "file:line: ".
void warn_unknown(const char* where, std::string_view name, Loaded& out);

// The next free line for a warning. When all are taken the last one says that there are more.
Line& next_warning(Loaded& out);

// Settings that conflict, after each is known to be good by itself.
bool check_conflicts(Loaded& out);

}  // namespace cistern::config
