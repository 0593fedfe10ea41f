// SPDX-License-Identifier: Apache-2.0
//
// Subcommands of cistern-config and the small ones among them.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "config/parse.h"
#include "config/tool/program.h"
#include "config/tool/tool.h"
#include "config/version.h"

extern char** environ;

namespace cistern::config::tool {
namespace {

constexpr char kUsageText[] =
    "usage: cistern-config check [--object FILE [--program NAME]]\n"
    "       cistern-config flags [--markdown | --names | --all | NAME...]\n"
    "       cistern-config print-env\n"
    "       cistern-config option --NAME\n"
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

// What `cistern run` asks before exec: settings, then the object, then the program.
int check(int argc, char** argv) {
  const char* object = nullptr;
  const char* program = nullptr;
  for (int i = 0; i < argc; i += 2) {
    if (i + 1 == argc) return usage();
    if (std::strcmp(argv[i], "--object") == 0) {
      object = argv[i + 1];
    } else if (std::strcmp(argv[i], "--program") == 0) {
      program = argv[i + 1];
    } else {
      return usage();
    }
  }
  const Loaded& loaded = settings();
  if (loaded.status == Status::kBad) return std::fprintf(stderr, "%s\n", loaded.error.text), kUsage;
  if (loaded.status == Status::kOk && loaded.policy.log >= LogLevel::kWarn) {
    for (size_t i = 0; i < loaded.warning_count; ++i) {
      std::fprintf(stderr, "%s\n", loaded.warnings[i].text);
    }
  }
  if (object == nullptr) return kDone;
  Elf object_elf;
  if (const int code = report(check_object(object, object_elf)); code != kDone) return code;
  if (program == nullptr) return kDone;
  Program found;
  return report(check_program(program, object_elf, found));
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
  if (loaded.status == Status::kBad) return std::fprintf(stderr, "%s\n", loaded.error.text), kUsage;
  for (size_t i = 0; i < kTable.size(); ++i) {
    print_assignment(kTable[i].name, loaded.given[i]);
    if (kTable[i].store != nullptr) continue;
    for (unsigned device = 0; device < kMaxDevices; ++device) {
      print_assignment(row_name(kTable[i], device), loaded.given_device[device]);
    }
  }
  return kDone;
}

// The setting behind one of the launcher's options: its name without prefix, in lower case and with
// dashes. One rule in place of a list that would have to follow the table.
int option(const char* text) {
  std::string name = text;
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  for (char& c : name) c = c == '-' ? '_' : c;
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const std::string& candidate : {"CISTERN_" + upper, "FLAGS_" + name, "GE_" + upper}) {
    unsigned device = kNoDevice;
    if (find_row(candidate, device) != nullptr) return std::puts(candidate.c_str()), kDone;
  }
  std::string line = "unknown option; value seen \"" + std::string(text) + "\"; ";
  const char* nearest = nearest_name("CISTERN_" + upper);
  if (nearest != nullptr) {
    std::string meant = nearest + std::strlen("CISTERN_");
    for (char& c : meant) c = c == '_' ? '-' : static_cast<char>(std::tolower(c));
    line += "did you mean --" + meant + "; ";
  }
  return fail(kUsage, line +
                          "allowed: --sim, --host, --set, --print-env, --verbose and each setting "
                          "by its name; try: cistern help");
}

int inspect(const char* path) {
  const Elf elf = read_elf(path);
  if (!elf.valid) return fail(kUsage, "not an ELF file; value seen \"" + std::string(path) + "\"");
  std::printf("format %s\n", describe(elf).c_str());
  std::printf("interpreter %s\n", elf.interpreter.empty() ? "none" : elf.interpreter.c_str());
  for (const std::string& name : elf.needed) std::printf("needed %s\n", name.c_str());
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

std::string row_name(const Row& row, unsigned device) {
  std::string name = row.name;
  if (row.store == nullptr) name.replace(name.find("<n>"), 3, std::to_string(device));
  return name;
}

int fail(int code, const std::string& what) {
  std::fprintf(stderr, "cistern: error: %s\n", what.c_str());
  return code;
}

}  // namespace cistern::config::tool

int main(int argc, char** argv) {
  const int code = cistern::config::tool::run(argc, argv);
  // Output that did not arrive (a full disk, a closed pipe) is no success.
  return std::fflush(stdout) == 0 ? code : cistern::config::tool::kUsage;
}
