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
inline constexpr int kUsage = 2;    // bad usage, bad setting, or a program that no preload reaches
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

// The settings of this process, loaded once.
const Loaded& settings();

// "NAME" for a row, "CISTERN_GPU_LIMIT_0" for the row per device and device 0.
std::string row_name(const Row& row, unsigned device);

// The row of a setting by its option's name: without prefix, in lower case, with dashes. `option`
// becomes the setting's name. If there is no such setting, returns nullptr and `option` becomes the
// name that it would have with Cistern's prefix.
const Row* row_of_option(std::string& option);

// Writes a complete line to stderr, with unprintable characters replaced (config/text.h).
void complain(std::string_view line);
// Writes "cistern: error: " and `what` to stderr; returns `code`.
int fail(int code, const std::string& what);

// `text` with '?' for each unprintable character (config/text.h).
std::string shown(std::string_view text);

// Prints a line of doctor's report.
void say(const char* what, const std::string& value);

// --- One function per subcommand; `argv` begins with the first argument after it.
int flags(int argc, char** argv);
int doctor(int argc, char** argv);
int start(int argc, char** argv);  // returns only when the program could not be started

}  // namespace cistern::config::tool
