// SPDX-License-Identifier: Apache-2.0
//
// cistern-config answers the questions of scripts/cistern before a program starts. It reads
// settings with the same code as the preloaded object, so that both print the same line for the
// same mistake. It is an ordinary program: single-threaded, may use the C++ library.
#pragma once

#include <string>
#include <string_view>

#include "config/load.h"

namespace cistern::config::tool {

// Exit codes; the last two are env(1)'s.
inline constexpr int kDone = 0;
inline constexpr int kNotHere = 1;  // doctor: it would not work on this machine
inline constexpr int kUsage = 2;    // bad usage, bad setting, or a program out of our reach
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

// The settings of this process, loaded once.
const Loaded& settings();

// "NAME" for a row, "CISTERN_GPU_LIMIT_0" for the row per device and device 0.
std::string row_name(const Row& row, unsigned device);

// The row of a setting by the name that it has as an option: without prefix, in lower case and with
// dashes. One rule in place of a list that would have to follow the table. `option` becomes the
// setting's name, or if there is none (nullptr) what it would be as one of Cistern's own.
const Row* row_of_option(std::string& option);

// A complete line to stderr, as people are shown it.
void complain(std::string_view line);
// Complains of "cistern: error: ..." and returns `code`.
int fail(int code, const std::string& what);

// With '?' for what people are not shown (config/text.h).
std::string shown(std::string_view text);

// A line of doctor's.
void say(const char* what, const std::string& value);

// --- One function per subcommand; `argv` begins with the first argument after it.
int flags(int argc, char** argv);
int doctor(int argc, char** argv);
int start(int argc, char** argv);  // returns only when the program could not be started

}  // namespace cistern::config::tool
