#include "base/secret_file.h"

#include <algorithm>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {

namespace {
constexpr size_t kSecretBytesMax = 16 * 1024;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Result<std::string> read_secret_file(const std::string& path) {
  std::string content = LOCKSTEP_TRY(read_file(path, kSecretBytesMax));
  std::string secret(trim(content));
  if (secret.empty()) return Error{path + " is empty"};
  if (!is_printable(secret)) return Error{path + " holds more than one line of printable text"};
  return secret;
}

}  // namespace lockstep
