#include "base/secret_file.h"

#include <sys/stat.h>

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

Result<std::string> read_private_file(const std::string& path) {
  std::string secret = LOCKSTEP_TRY(read_secret_file(path));
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & S_IRWXO) != 0)
    return Error{path + " is open to every user of this machine: chmod o= (Kubernetes: defaultMode: 0440)"};
  return secret;
}

bool same_secret(std::string_view guess, std::string_view secret) {
  if (secret.empty()) return false;
  unsigned char differs = guess.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < guess.size(); ++i) differs |= static_cast<unsigned char>(guess[i] ^ secret[i % secret.size()]);
  return differs == 0;
}

}  // namespace lockstep
