#include "backup/repository.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::backup {
namespace {

constexpr std::string_view kManifestEnd = ".manifest";
constexpr std::string_view kPartEnd = ".part";

class FolderRepository final : public Repository {
 public:
  FolderRepository(std::string place, UniqueFd lock) : place_(std::move(place)), lock_(std::move(lock)) {}

  const std::string& place() const override { return place_; }

  Result<std::vector<uint64_t>> generations() const override {
    std::vector<std::string> names = LOCKSTEP_TRY(list_directory(place_ + "/generations"));
    std::vector<uint64_t> numbers;
    for (std::string_view name : names) {
      if (!name.ends_with(kManifestEnd)) continue;
      const std::optional<uint64_t> number = parse_uint(name.substr(0, name.size() - kManifestEnd.size()));
      if (number && *number > 0) numbers.push_back(*number);
    }
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }
  Result<std::string> read_generation(uint64_t generation) const override {
    return read_file(generation_path(generation), kManifestBytesMax);
  }
  Result<void> write_generation(uint64_t generation, std::string_view manifest) override {
    const UniqueFd folder(::open(place_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid() || ::syncfs(folder.get()) != 0) return failed("cannot sync", place_);
    return write_file_atomically(generation_path(generation), manifest);
  }
  Result<void> remove_generation(uint64_t generation) override {
    const std::string path = generation_path(generation);
    if (::unlink(path.c_str()) != 0) return failed("cannot remove", path);
    return sync_directory(place_ + "/generations");
  }

  bool has_piece(const std::string& sha256, uint64_t bytes) const override {
    struct stat info {};
    return stat(piece_path(sha256).c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           static_cast<uint64_t>(info.st_size) == bytes;
  }
  Result<std::string> read_piece(const std::string& sha256) const override {
    const std::string path = piece_path(sha256);
    if (::access(path.c_str(), F_OK) != 0) return Error{path + " is missing", ErrorCode::kNotFound};
    std::string content = LOCKSTEP_TRY(read_file(path, kPieceBytes));
    if (sha256_hex(content) != sha256) return Error{path + " is damaged: its checksum does not match its name"};
    return content;
  }
  Result<void> write_piece(const std::string& sha256, std::string_view content) override {
    const std::string path = piece_path(sha256), part = path + std::string(kPartEnd);
    LOCKSTEP_TRY(make_directories(path.substr(0, path.rfind('/'))));
    const UniqueFd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid()) return failed("cannot create", part);
    Result<void> written = write_all(file.get(), content);
    if (!written.ok()) return Error{part + ": " + written.error()};
    // Before it has its name: a later backup takes what has a name for whole.
    if (::fdatasync(file.get()) != 0) return failed("cannot sync", part);
    if (::rename(part.c_str(), path.c_str()) != 0) return failed("cannot rename to", path);
    return {};
  }
  Result<void> remove_piece(const std::string& sha256) override {
    const std::string path = piece_path(sha256);
    if (::unlink(path.c_str()) != 0) return failed("cannot remove", path);
    return {};
  }
  Result<std::vector<Piece>> pieces() const override {
    std::vector<Piece> found;
    std::error_code error;
    const std::filesystem::recursive_directory_iterator end;
    for (std::filesystem::recursive_directory_iterator at(place_ + "/pieces", error); !error && at != end;
         at.increment(error)) {
      if (!at->is_regular_file()) continue;
      const std::string name = at->path().filename().string();
      if (name.ends_with(kPartEnd)) {
        std::error_code ignored;
        std::filesystem::remove(at->path(), ignored);  // the lock is ours: nobody writes it
      } else if (is_sha256(name)) {
        std::error_code ignored;
        found.push_back({name, at->file_size(ignored)});
      }
    }
    if (error) return Error{format("cannot list %s/pieces: %s", place_.c_str(), error.message().c_str())};
    return found;
  }

 private:
  static Error failed(const char* what, const std::string& path) {
    return Error{format("%s %s: %s", what, path.c_str(), std::strerror(errno))};
  }
  std::string generation_path(uint64_t generation) const {
    return format("%s/generations/%08llu%s", place_.c_str(), static_cast<unsigned long long>(generation),
                  std::string(kManifestEnd).c_str());
  }
  std::string piece_path(const std::string& sha256) const {
    return place_ + "/pieces/" + sha256.substr(0, 2) + "/" + sha256;
  }

  const std::string place_;
  const UniqueFd lock_;
};

}  // namespace

Result<std::unique_ptr<Repository>> open_repository(const std::string& place, Access access) {
  if (place.starts_with("s3://"))
    return Error{"backups to S3 are not there yet: take a folder, and copy that (its files never change once written)"};
  if (access == Access::kRead) {
    if (::access((place + "/generations").c_str(), R_OK | X_OK) != 0)
      return Error{format("%s holds no backup: %s", place.c_str(), std::strerror(errno)), ErrorCode::kNotFound};
    return std::unique_ptr<Repository>(std::make_unique<FolderRepository>(place, UniqueFd()));
  }
  // A folder of something else is not written into: the first backup makes it, or finds it empty.
  const bool is_new = ::access((place + "/generations").c_str(), F_OK) != 0;
  if (is_new && ::access(place.c_str(), F_OK) == 0) {
    const std::vector<std::string> names = LOCKSTEP_TRY(list_directory(place));
    if (std::any_of(names.begin(), names.end(), [](const std::string& name) { return name != "lock"; }))
      return Error{format("%s is neither empty nor a folder of backups: choose another", place.c_str())};
  }
  UniqueFd lock = LOCKSTEP_TRY(lock_folder(place, "lockstep backup"));
  if (is_new) {
    if (::chmod(place.c_str(), 0700) != 0)
      return Error{format("cannot make %s private: %s", place.c_str(), std::strerror(errno))};
    LOCKSTEP_TRY(make_directories(place + "/pieces"));
    LOCKSTEP_TRY(make_directories(place + "/generations"));
  }
  return std::unique_ptr<Repository>(std::make_unique<FolderRepository>(place, std::move(lock)));
}

Result<Manifest> find_generation(const Repository& repository, uint64_t generation) {
  const std::vector<uint64_t> numbers = LOCKSTEP_TRY(repository.generations());
  if (numbers.empty()) return Error{repository.place() + " holds no whole backup", ErrorCode::kNotFound};
  if (generation != 0 && !std::binary_search(numbers.begin(), numbers.end(), generation))
    return Error{
        format("%s has no generation %llu; it has %llu to %llu (lockstep backup list)", repository.place().c_str(),
               static_cast<unsigned long long>(generation), static_cast<unsigned long long>(numbers.front()),
               static_cast<unsigned long long>(numbers.back())),
        ErrorCode::kNotFound};
  const uint64_t number = generation == 0 ? numbers.back() : generation;
  const std::string text = LOCKSTEP_TRY(repository.read_generation(number));
  Result<Manifest> manifest = read_manifest(text);
  if (!manifest.ok())
    return Error{format("%s, generation %llu: %s", repository.place().c_str(), static_cast<unsigned long long>(number),
                        manifest.error().c_str())};
  return manifest;
}

Result<Pruned> prune(Repository& repository, size_t keep) {
  const std::vector<uint64_t> numbers = LOCKSTEP_TRY(repository.generations());
  const size_t gone = numbers.size() > keep ? numbers.size() - keep : 0;
  std::set<std::string> needed;
  for (size_t i = gone; i < numbers.size(); ++i) {
    const Manifest manifest = LOCKSTEP_TRY(find_generation(repository, numbers[i]));
    for (const File& file : manifest.files) needed.insert(file.pieces.begin(), file.pieces.end());
  }
  Pruned pruned;
  for (; pruned.generations < gone; ++pruned.generations)
    LOCKSTEP_TRY(repository.remove_generation(numbers[pruned.generations]));
  const std::vector<Repository::Piece> pieces = LOCKSTEP_TRY(repository.pieces());
  for (const Repository::Piece& piece : pieces) {
    if (needed.contains(piece.sha256)) continue;
    LOCKSTEP_TRY(repository.remove_piece(piece.sha256));
    ++pruned.pieces;
    pruned.bytes += piece.bytes;
  }
  return pruned;
}

}  // namespace lockstep::backup
