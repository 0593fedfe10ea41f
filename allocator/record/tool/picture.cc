// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/picture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "allocator/record/tool/text.h"

namespace cistern::alloc::tool {
namespace {

// A new file, whatever has its name: in a folder of several users somebody may have put a link
// there, which would choose the file that is written.
std::FILE* create_new(const std::string& path) {
  ::unlink(path.c_str());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  return file < 0 ? nullptr : ::fdopen(file, "wb");
}

}  // namespace

// Under another name first: whoever reads the old file meanwhile has a whole one.
bool write_file(const std::string& path, const std::string& text, const char* what,
                std::string& problem) {
  struct stat status;
  const bool replaces = ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
  const std::string written = replaces ? path + ".new" : path;
  std::FILE* file = replaces ? create_new(written) : std::fopen(written.c_str(), "wb");
  bool whole = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) whole &= std::fclose(file) == 0;
  if (whole && replaces) whole = std::rename(written.c_str(), path.c_str()) == 0;
  if (whole) return true;
  problem = std::string(what) + " cannot be written: " + std::string(std::strerror(errno)) +
            "; value seen \"" + path + "\"; try: another file, or df";
  if (replaces) ::unlink(written.c_str());
  return false;
}

std::string begin_picture(double width, double height) {
  std::string text;
  append(text, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\">\n", width, height);
  append(text, "<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n", width, height);
  return text;
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    const char* written = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : nullptr;
    written == nullptr ? out.push_back(c) : void(out.append(written));
  }
  return out;
}

}  // namespace cistern::alloc::tool
