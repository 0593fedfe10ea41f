// SPDX-License-Identifier: Apache-2.0
// Subcommands of cistern-config and the small ones among them.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "config/known.h"
#include "config/text.h"
#include "config/tool/tool.h"

namespace cistern::config::tool {
namespace {

constexpr char kUsageText[] =
    "usage: cistern-config check [--named NAME...] [--object FILE [--host-off] [--anyway]\n"
    "                             [--program NAME]]\n"
    "       cistern-config flags [--markdown | --names | NAME...]\n"
    "       cistern-config print-env\n"
    "       cistern-config option --NAME\n"
    "       cistern-config setting NAME\n"
    "       cistern-config stands-alone --NAME [NEXT]\n"
    "       cistern-config doctor --object FILE [PROGRAM]\n"
    "       cistern-config inspect FILE\n"
    "       cistern-config start COUNT ENTRY... NAME=VALUE... -- PROGRAM [ARGUMENT...]\n"
    "       cistern-config version\n";

int usage() {
  std::fputs(kUsageText, stderr);
  return kUsage;
}

int report(const Problem& problem) {
  return problem.code == kDone ? kDone : fail(problem.code, problem.text);
}

// What the object without a malloc of its own would pass over in silence: settings of malloc. (The
// group of host memory has those of pinned memory, too.)
int refuse_host_settings(const Loaded& loaded) {
  for (const char* name :
       {"CISTERN_MALLOC_CONF", "FLAGS_initial_cpu_memory_in_mb",
        "FLAGS_fraction_of_cpu_memory_to_use", "FLAGS_use_pinned_memory", "CISTERN_PIN_EAGER"}) {
    const Given given = given_for(loaded, name);
    if (given.text == nullptr) continue;
    return fail(kUsage, "--host off leaves malloc alone, and a setting is for it; value seen \"" +
                            std::string(name) + "=" + given.text +
                            "\"; allowed: --host on, or no setting of host memory; try: unset " +
                            name);
  }
  return kDone;
}

// Of names that somebody typed as settings', those that are none; in one line. The ones that begin
// as ours do are told of when the environment is read.
void warn_of_no_settings(const std::vector<std::string>& named) {
  std::string none, meant;
  for (auto name = named.begin(); name != named.end(); ++name) {
    unsigned device = kNoDevice;
    const bool again = std::find(named.begin(), name, *name) != name;
    if (again || find_row(*name, device) != nullptr || name->rfind("CISTERN_", 0) == 0) continue;
    none += (none.empty() ? "" : ", ") + *name;
    std::string option = *name;
    const Row* row = row_of_option(option);
    const char* nearest = row == nullptr ? nearest_name("CISTERN_" + *name) : option.c_str();
    if (meant.empty() && nearest != nullptr) meant = std::string("did you mean ") + nearest + "? ";
  }
  if (none.empty()) return;
  complain("cistern: warn: --set names no setting of Cistern's; value seen \"" + none + "\"; " +
           meant + "The program finds it in its environment; see cistern flags");
}

// What `cistern run` asks before exec: settings, then the object, then the program. Prints, each on
// a line, what the program needs beside the object: "first=LIBRARY", to be preloaded before it, and
// "audited", more room for thread-local storage.
int check(int argc, char** argv) {
  const char* object = nullptr;
  const char* program = nullptr;
  std::vector<std::string> named;
  bool anyway = false, host_off = false;
  for (int i = 0; i < argc; i += 2) {
    const bool is_anyway = std::strcmp(argv[i], "--anyway") == 0;
    if (is_anyway || std::strcmp(argv[i], "--host-off") == 0) {
      (is_anyway ? anyway : host_off) = true;
      --i;
      continue;
    }
    if (i + 1 == argc) return usage();
    if (std::strcmp(argv[i], "--object") == 0) {
      object = argv[i + 1];
    } else if (std::strcmp(argv[i], "--named") == 0) {
      named.emplace_back(argv[i + 1]);
    } else if (std::strcmp(argv[i], "--program") == 0) {
      program = argv[i + 1];
    } else {
      return usage();
    }
  }
  const Loaded& loaded = settings();
  if (loaded.status == Status::kBad) return complain(loaded.error.text), kUsage;
  if (host_off && refuse_host_settings(loaded) != kDone) return kUsage;
  if (loaded.policy.log >= LogLevel::kWarn) {
    for (size_t i = 0; i < loaded.warning_count; ++i) {
      complain(loaded.warnings[i].text);
    }
    warn_of_no_settings(named);
  }
  if (object == nullptr) return kDone;
  Elf object_elf;
  if (const int code = report(check_object(object, object_elf)); code != kDone) return code;
  if (program == nullptr) return kDone;
  Program found;
  const Problem problem = check_program(program, anyway ? nullptr : &object_elf, found);
  if (problem.code != kDone) return report(problem);
  if (const std::string runtime = sanitizer_of(found.elf); !runtime.empty()) {
    std::printf("first=%s\n", runtime.c_str());
  }
  if (is_audited(found.elf)) std::puts("audited");
  return kDone;
}

void print_assignment(const std::string& name, const Given& given) {
  if (given.text == nullptr) return;
  std::printf("export %s='", name.c_str());
  for (const char* c = given.text; *c != '\0'; ++c) {
    if (*c == '\'') {
      std::fputs("'\\''", stdout);
    } else {
      std::putchar(*c);
    }
  }
  std::puts("'");
}

// The settings in force as lines for a shell, those of the file among them.
int print_env() {
  const Loaded& loaded = settings();
  if (loaded.status == Status::kBad) return complain(loaded.error.text), kUsage;
  for (size_t i = 0; i < kTable.size(); ++i) {
    print_assignment(kTable[i].name, loaded.given[i]);
    if (kTable[i].store != nullptr) continue;
    for (unsigned device = 0; device < kMaxDevices; ++device) {
      print_assignment(row_name(kTable[i], device), loaded.given_device[device]);
    }
  }
  return kDone;
}

int option(const char* text) {
  std::string name = text;
  if (row_of_option(name) != nullptr) return std::puts(name.c_str()), kDone;
  std::string line = "unknown option; value seen \"" + std::string(text) + "\"; ";
  const char* nearest = nearest_name(name);
  if (nearest != nullptr) {
    std::string meant = nearest + std::strlen("CISTERN_");
    for (char& c : meant) c = c == '_' ? '-' : static_cast<char>(std::tolower(c));
    line += "did you mean --" + meant + "; ";
  }
  return fail(kUsage, line +
                          "allowed: --sim, --host, --set, --print-env, --verbose and each setting "
                          "by its name; try: cistern help");
}

// The variable that --set sets: the setting that has this name elsewhere, or the name itself.
int setting(const char* name) {
  const Row* row = find_elsewhere(name);
  std::puts(row == nullptr ? name : row->name);
  return kDone;
}

// Says "alone" of an option that is yes or no where no word follows, or another option. `next`:
// nullptr, or that word; it must be a value of such an option, for it might be meant as one.
int stands_alone(const std::string& option, const char* next) {
  std::string name = option;
  const Row* row = row_of_option(name);
  bool value;
  if (row == nullptr || row->type.kind != Kind::kBool) return kDone;
  if (next == nullptr || next[0] == '-') return std::puts("alone"), kDone;
  if (parse_bool(next, value)) return kDone;
  return fail(kUsage, option + " is yes or no; value seen \"" + next +
                          "\"; allowed: true or false, or no word before the next option or --; " +
                          "try: " + option + "=true");
}

int inspect(const char* path) {
  const Elf elf = read_elf(path);
  if (!elf.valid) return fail(kUsage, "not an ELF file; value seen \"" + std::string(path) + "\"");
  std::printf("format %s\n", describe(elf).c_str());
  std::printf("interpreter %s\n",
              elf.interpreter.empty() ? "none" : shown(elf.interpreter).c_str());
  for (const std::string& name : elf.needed) std::printf("needed %s\n", shown(name).c_str());
  return kDone;
}

int run(int argc, char** argv) {
  if (argc < 2) return usage();
  const std::string_view command = argv[1];
  if (command == "check") return check(argc - 2, argv + 2);
  if (command == "flags") return flags(argc - 2, argv + 2);
  if (command == "doctor") return doctor(argc - 2, argv + 2);
  if (command == "start") return start(argc - 2, argv + 2);
  if (command == "print-env" && argc == 2) return print_env();
  if (command == "option" && argc == 3) return option(argv[2]);
  if (command == "setting" && argc == 3) return setting(argv[2]);
  if (command == "stands-alone" && (argc == 3 || argc == 4)) return stands_alone(argv[2], argv[3]);
  if (command == "inspect" && argc == 3) return inspect(argv[2]);
  if (command == "version" && argc == 2) return std::printf("cistern %s\n", kVersion), kDone;
  return usage();
}

}  // namespace

const Loaded& settings() {
  static Loaded loaded;
  static const bool once = (load(environ, loaded), true);
  static_cast<void>(once);
  return loaded;
}

const Row* row_of_option(std::string& option) {
  std::string name = option;
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  if (const Row* row = find_elsewhere(name)) return option = row->name, row;
  for (char& c : name) c = c == '-' ? '_' : c;
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  option = "CISTERN_" + upper;
  for (const std::string& candidate : {name, option, "FLAGS_" + name, "GE_" + upper}) {
    unsigned device = kNoDevice;
    if (const Row* row = find_row(candidate, device)) return option = candidate, row;
  }
  return nullptr;
}

std::string row_name(const Row& row, unsigned device) {
  std::string name = row.name;
  if (row.store == nullptr) name.replace(name.find("<n>"), 3, std::to_string(device));
  return name;
}

void complain(std::string_view line) { std::fprintf(stderr, "%s\n", shown(line).c_str()); }

int fail(int code, const std::string& what) {
  complain("cistern: error: " + what);
  return code;
}

// The last step of the launcher: an environment, the changes to it, and exec. It is taken here and
// not in the launcher's shell, because no shell hands on what it was given: it sets variables of
// its own, drops names that it cannot hold and carries its options down.

namespace {

int bad_usage() {
  return fail(kUsage,
              "bad usage; allowed: start COUNT ENTRY... NAME=VALUE... -- PROGRAM [ARGUMENT...]; "
              "try: cistern run");
}

// The check that went before names what it can; this is for what only the kernel knows.
int cannot_start(const char* program) {
  const int why = errno;
  Line seen;
  LineWriter(seen).quoted(program, 300);
  return fail(why == ENOENT ? kNotFound : kCannotRun,
              std::string(strerror(why)) + "; value seen " + seen.text +
                  "; allowed: a program that env(1) can start; try: env " + program);
}

}  // namespace

int start(int argc, char** argv) {
  char** const end = argv + argc;
  uint64_t count = 0;
  if (argc == 0 || !parse_unsigned(argv[0], count) || count >= static_cast<uint64_t>(argc)) {
    return bad_usage();
  }
  char** word = argv + 1 + count;
  // As they are, also entries that are no NAME=VALUE.
  std::vector<char*> entries(argv + 1, word);
  entries.push_back(nullptr);
  environ = entries.data();
  for (; word != end && std::strcmp(*word, "--") != 0; ++word) {
    if (std::strchr(*word, '=') == nullptr || ::putenv(*word) != 0) return bad_usage();
  }
  if (end - word < 2) return bad_usage();
  char** const program = word + 1;
  ::execvp(program[0], program);
  return cannot_start(program[0]);
}

}  // namespace cistern::config::tool

int main(int argc, char** argv) {
  const int code = cistern::config::tool::run(argc, argv);
  // Output that did not arrive (a full disk, a closed pipe) is no success.
  return std::fflush(stdout) == 0 ? code : cistern::config::tool::kUsage;
}
