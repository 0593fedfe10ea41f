// SPDX-License-Identifier: Apache-2.0
//
// The last step of the launcher: an environment, the changes to it, and exec. It is taken here and
// not in the launcher's shell, because no shell hands on what it was given: it sets variables of
// its own, drops names that it cannot hold and carries its options down.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "config/parse.h"
#include "config/tool/tool.h"

namespace cistern::config::tool {
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
