// SPDX-License-Identifier: Apache-2.0
//
// What people read of the table: the list with the values in force, one setting in full, and the
// page SETTINGS.md.
#include <cstdio>
#include <cstring>

#include "config/tool/tool.h"

namespace cistern::config::tool {
namespace {

constexpr size_t kValueWidth = 14;

const char* origin_word(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kEnv:
      return "env";
    case Origin::kFile:
      return "file";
    case Origin::kLauncher:
      return "launcher";
  }
  return "";
}

const char* default_word(const Row& row) {
  return row.default_text == nullptr ? "unset" : row.default_text;
}

std::string shortened(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

bool begins_group(const Row& row, const Row* last) {
  return last == nullptr || last->group != row.group;
}

std::string allowed(const Row& row) {
  Line line;
  LineWriter writer(line);
  write_allowed(row, writer);
  return line.text;
}

// What is in force.
std::string value_word(const Row& row, const Given& given) {
  if (given.text != nullptr) return shown(given.text);
  return row.counts_once_set ? "unset" : shown(default_word(row));
}

void print_line(const std::string& name, const Row& row, const Given& given) {
  const std::string value = value_word(row, given);
  std::printf("%-48s%-*s %-9s", name.c_str(), static_cast<int>(kValueWidth),
              shortened(value, kValueWidth).c_str(), origin_word(given.origin));
  std::puts(default_word(row));
}

void print_row(const Loaded& loaded, size_t index) {
  const Row& row = kTable[index];
  if (row.store != nullptr) return print_line(row.name, row, loaded.given[index]);
  bool any = false;
  for (unsigned device = 0; device < kMaxDevices; ++device) {
    const Given& given = loaded.given_device[device];
    if (given.text == nullptr) continue;
    print_line(row_name(row, device), row, given);
    any = true;
  }
  if (!any) print_line(row.name, row, {});
}

int print_table(const Loaded& loaded) {
  std::printf("%-48s%-*s %-9s%s\n", "SETTING", static_cast<int>(kValueWidth), "VALUE", "FROM",
              "DEFAULT");
  const Row* last = nullptr;
  for (size_t i = 0; i < kTable.size(); ++i) {
    const Row& row = kTable[i];
    if (begins_group(row, last)) std::printf("\n%s\n", group_title(row.group));
    print_row(loaded, i);
    last = &row;
  }
  std::puts("\ncistern flags NAME tells what a setting does.");
  return kDone;
}

int print_detail(const Loaded& loaded, const std::string& asked) {
  unsigned device = kNoDevice;
  std::string name = asked;
  const Row* row = find_row(name, device);
  if (row == nullptr) row = row_of_option(name);
  if (row == nullptr) {
    const char* nearest = nearest_name(asked);
    if (nearest == nullptr) nearest = nearest_name(name);
    const std::string hint =
        nearest == nullptr ? "" : std::string("did you mean ") + nearest + "; ";
    return fail(kUsage,
                "unknown setting; value seen \"" + asked + "\"; " + hint + "try: cistern flags");
  }
  const Given given = given_for(loaded, name.c_str());
  std::printf("%s\n  %s\n", name.c_str(), row->meaning);
  std::printf("  value:    %s (%s)\n", value_word(*row, given).c_str(), origin_word(given.origin));
  std::printf("  default:  %s\n  allowed:  %s\n", default_word(*row), allowed(*row).c_str());
  std::printf("  example:  %s=%s\n", name.c_str(), row->example);
  return kDone;
}

int print_names() {
  for (const Row& row : kTable) std::puts(row.name);
  return kDone;
}

constexpr char kPageHead[] = R"(# Settings

<!-- Written by `cistern-config flags --markdown` from config/table.cc; change it there. -->

Environment variables configure Cistern. It sees the calls of an unmodified program with their call stacks and NVTX ranges,
but no operators, shapes or variables. If a setting is about those elsewhere, its row says what takes their place here.

**Where a value comes from.** First the environment (`env`), then the file that `CISTERN_CONFIG` names (`file`), then the
default. An option of `cistern run` is an environment variable too, shown as `launcher`. Cistern reads all of them once, before
`main`. `cistern flags` shows each value in force and where it came from. `cistern flags NAME` describes one setting in full.

**The file** has lines `NAME=value` or `--FLAGS_name=value`. Blanks around names and values do not count. `#` at the start of
a line or after a blank begins a comment. A name may occur once. The whole file may have 32 KiB.

**As options.** Each setting is an option of `cistern run`: its name without `CISTERN_`, `FLAGS_` or `GE_`, in lower case, with
dashes: `--gpu-limit 8G`, `--free-idle-memory true`.

**Values.** The whole value must parse. An empty value, trailing characters, an overflow and a value out of range are
refused. Numbers are decimal; integers may also be `0x` hexadecimal. Yes-or-no values are `1 t true y yes` or
`0 f false n no` in any case.

**Bad values.** One bad value, or two settings that conflict, makes Cistern inactive as a whole. One line on stderr names the
value and what is allowed, and the program runs as without Cistern. `cistern run` checks first and starts nothing (exit
code 2). `CISTERN_ON_ERROR=abort` ends the program with status 78.

**Unknown names** that begin with `CISTERN_` get a warning with the nearest known name. Unknown `FLAGS_` and `GE_` names
belong to other programs and are ignored. Most settings that depend on another one get a warning if that one is not set:
they change nothing then.
)";

constexpr char kConflicts[] = R"(
## Settings that conflict

- `FLAGS_gpu_memory_limit_mb` with `CISTERN_GPU_LIMIT` or `CISTERN_GPU_LIMIT_<n>`
- a limit below `FLAGS_initial_gpu_memory_in_mb`
- `FLAGS_alloc_fill_value` of 0 or more with `FLAGS_init_allocated_mem=false`
- `GE_USE_STATIC_MEMORY` and `CISTERN_STATIC_MEMORY_POLICY` with different modes (1 is 2)
- static memory modes 1 to 4 with `FLAGS_allocator_strategy` or `CISTERN_MEMORY_OPTIMIZE`
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '<') out += '\\';
    out += c;
  }
  return out;
}

// Group by group.
void print_rows() {
  const Row* last = nullptr;
  for (const Row& row : kTable) {
    if (begins_group(row, last)) {
      std::printf("\n## %s\n\n", group_title(row.group));
      std::fputs("| setting | allowed | default | meaning |\n|---|---|---|---|\n", stdout);
    }
    std::printf("| `%s` | %s | %s | %s Example: `%s=%s` |\n", row.name,
                escaped(allowed(row)).c_str(), default_word(row), escaped(row.meaning).c_str(),
                row.store == nullptr ? "CISTERN_GPU_LIMIT_0" : row.name, row.example);
    last = &row;
  }
}

int print_markdown() {
  std::fputs(kPageHead, stdout);
  print_rows();
  std::fputs(kConflicts, stdout);
  return kDone;
}

}  // namespace

int flags(int argc, char** argv) {
  if (argc == 1 && std::strcmp(argv[0], "--markdown") == 0) return print_markdown();
  if (argc == 1 && std::strcmp(argv[0], "--names") == 0) return print_names();
  const Loaded& loaded = settings();
  if (loaded.status == Status::kBad) return complain(loaded.error.text), kUsage;
  if (argc == 0) return print_table(loaded);
  for (int i = 0; i < argc; ++i) {
    const int code = print_detail(loaded, argv[i]);
    if (code != kDone) return code;
  }
  return kDone;
}

}  // namespace cistern::config::tool
