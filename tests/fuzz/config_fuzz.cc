// SPDX-License-Identifier: Apache-2.0
//
// Settings from hostile text: the input is split at NUL bytes into environment entries; an entry
// that begins with '@' goes into a settings file instead. Whatever comes in, load() must stay
// inside its buffers, and what comes out must be whole: one line of error when and only when the
// outcome is bad.
//
// With clang: clang++ -fsanitize=fuzzer,address -DCISTERN_LIBFUZZER; without: a program that runs
// made-up inputs (seed and number as arguments) or the files it is given.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "config/load.h"

namespace {

using cistern::config::Loaded;
using cistern::config::Status;

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "config_fuzz: %s\n", what);
  std::abort();
}

bool one_line(const char* text) { return std::strchr(text, '\n') == nullptr; }

void check_outcome(const Loaded& loaded) {
  const bool bad = loaded.status == Status::kBad;
  if (bad != (loaded.error.text[0] != '\0')) broken("an error without its line, or a line without");
  if (bad && loaded.policy.pool) broken("half a policy");
  if (std::memchr(loaded.error.text, '\0', sizeof loaded.error.text) == nullptr) broken("no end");
  if (!one_line(loaded.error.text)) broken("an error of two lines");
  for (size_t i = 0; i < loaded.warning_count; ++i) {
    if (!one_line(loaded.warnings[i].text)) broken("a warning of two lines");
  }
  if (loaded.storage_used > cistern::config::kStorageBytes) broken("storage overrun");
  char line[256];
  if (format_policy_line(loaded, line, sizeof line) != std::strlen(line)) broken("policy line");
}

// One file for the whole run, rewritten for each input. It is in memory: a file system may write a
// file out each time that it is truncated and closed.
class ScratchFile {
 public:
  ScratchFile() : fd_(::memfd_create("cistern-fuzz", 0)) {
    if (fd_ < 0) broken("no temporary file");
    path_ = "/proc/self/fd/" + std::to_string(fd_);
  }
  ~ScratchFile() { ::close(fd_); }
  const std::string& write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    return path_;
  }

 private:
  const int fd_;
  std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFile scratch;
  static Loaded loaded;
  std::vector<std::string> entries;
  std::string file;
  const std::string input(reinterpret_cast<const char*>(data), size);
  for (size_t at = 0; at < size;) {
    const size_t end = input.find('\0', at) == std::string::npos ? size : input.find('\0', at);
    const std::string entry = input.substr(at, end - at);
    if (!entry.empty() && entry[0] == '@') {
      file += entry.substr(1) + "\n";
    } else if (entry.rfind("CISTERN_CONFIG=", 0) != 0) {  // reads nothing but our file
      entries.push_back(entry);
    }
    at = end + 1;
  }
  if (!file.empty()) entries.push_back(std::string("CISTERN_CONFIG=") + scratch.write(file));
  std::vector<const char*> envp;
  for (const std::string& entry : entries) envp.push_back(entry.c_str());
  envp.push_back(nullptr);
  cistern::config::load(envp.data(), loaded);
  check_outcome(loaded);
  return 0;
}

#ifndef CISTERN_LIBFUZZER

namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }

std::string made_up_value(Random& random) {
  static const char* const kPieces[] = {"1",
                                        "0",
                                        "-",
                                        "+",
                                        "0x",
                                        ".",
                                        "e9",
                                        "%",
                                        "true",
                                        "off",
                                        "1M-",
                                        "2G",
                                        ",",
                                        "[",
                                        "*",
                                        "\\",
                                        " ",
                                        "#",
                                        "99999999999999999999",
                                        "legacy",
                                        "\xff",
                                        "'"};
  std::string value;
  for (size_t n = below(random, 5); n > 0; --n) value += kPieces[below(random, std::size(kPieces))];
  if (below(random, 200) == 0) value.append(below(random, 6000), 'x');
  return value;
}

// Mostly real names with nearly good values: random bytes would never get past the first letter.
std::string made_up_entry(Random& random) {
  const auto& row = cistern::config::kTable[below(random, cistern::config::kTable.size())];
  std::string name = row.name;
  if (name.ends_with("<n>")) name.replace(name.size() - 3, 3, std::to_string(below(random, 70)));
  if (below(random, 8) == 0)
    name[below(random, name.size())] = static_cast<char>(32 + below(random, 95));
  std::string value = below(random, 2) == 0 ? row.example : made_up_value(random);
  if (!value.empty() && below(random, 4) == 0) {
    value[below(random, value.size())] = static_cast<char>(1 + below(random, 255));
  }
  const char* prefix = below(random, 3) == 0 ? (below(random, 2) == 0 ? "@" : "@--") : "";
  return prefix + name + (below(random, 20) == 0 ? " " : "=") + value;
}

std::string made_up_input(Random& random) {
  std::string input;
  for (size_t n = 1 + below(random, 6); n > 0; --n) input += made_up_entry(random) + '\0';
  return input;
}

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && ::access(argv[1], R_OK) == 0) {
    for (int i = 1; i < argc; ++i) {
      std::ifstream file(argv[i], std::ios::binary);
      run({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    }
    return 0;
  }
  const unsigned long seed = argc > 1 ? std::strtoul(argv[1], nullptr, 0) : 1;
  const unsigned long count = argc > 2 ? std::strtoul(argv[2], nullptr, 0) : 20000;
  Random random(seed);
  for (unsigned long i = 0; i < count; ++i) run(made_up_input(random));
  std::printf("config_fuzz: %lu inputs from seed %lu\n", count, seed);
  return 0;
}

#endif
