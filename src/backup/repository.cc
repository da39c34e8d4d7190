#include "backup/repository.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "backup/folder_objects.h"
#include "backup/s3/s3_objects.h"
#include "base/text.h"
#include "s3/s3_settings.h"

namespace lockstep::backup {
namespace {

constexpr std::string_view kGenerations = "generations/";
constexpr std::string_view kManifestEnd = ".manifest";
constexpr std::string_view kPieces = "pieces/";

std::string generation_name(uint64_t generation) {
  return format("generations/%08llu.manifest", static_cast<unsigned long long>(generation));
}

std::string piece_name(const std::string& sha256) {
  return std::string(kPieces) + sha256.substr(0, 2) + "/" + sha256;
}

}  // namespace

Result<std::vector<uint64_t>> Repository::generations() const {
  const std::vector<Objects::Entry> entries = LOCKSTEP_TRY(objects_->list(std::string(kGenerations)));
  std::vector<uint64_t> numbers;
  for (const Objects::Entry& entry : entries) {
    std::string_view name = entry.name;
    if (!name.starts_with(kGenerations) || !name.ends_with(kManifestEnd)) continue;
    name.remove_prefix(kGenerations.size());
    name.remove_suffix(kManifestEnd.size());
    const std::optional<uint64_t> number = parse_uint(name);
    if (number && *number > 0) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Result<std::string> Repository::read_generation(uint64_t generation) const {
  return objects_->read(generation_name(generation), kManifestBytesMax);
}

Result<void> Repository::write_generation(uint64_t generation, std::string_view manifest) {
  LOCKSTEP_TRY(objects_->sync());
  LOCKSTEP_TRY(objects_->write(generation_name(generation), manifest, sha256_hex(manifest)));
  return objects_->sync();
}

Result<void> Repository::remove_generation(uint64_t generation) {
  LOCKSTEP_TRY(objects_->remove(generation_name(generation)));
  return objects_->sync();  // before its pieces go
}

Result<void> Repository::list_pieces() {
  if (pieces_) return {};
  const std::vector<Objects::Entry> entries = LOCKSTEP_TRY(objects_->list(std::string(kPieces)));
  pieces_.emplace();
  for (const Objects::Entry& entry : entries) {
    std::string sha256 = entry.name.substr(entry.name.rfind('/') + 1);
    if (is_sha256(sha256) && entry.name == piece_name(sha256)) pieces_->emplace(std::move(sha256), entry.bytes);
  }
  return {};
}

Result<bool> Repository::has_piece(const std::string& sha256, uint64_t bytes) {
  LOCKSTEP_TRY(list_pieces());
  const auto found = pieces_->find(sha256);
  return found != pieces_->end() && found->second == bytes;
}

Result<Repository::Pieces> Repository::pieces() {
  LOCKSTEP_TRY(list_pieces());
  return *pieces_;
}

Result<std::string> Repository::read_piece(const std::string& sha256) const {
  const std::string name = piece_name(sha256);
  std::string content = LOCKSTEP_TRY(objects_->read(name, kPieceBytes));
  if (sha256_hex(content) != sha256)
    return Error{format("%s/%s is damaged: its checksum does not match its name", place().c_str(), name.c_str())};
  return content;
}

Result<void> Repository::write_piece(const std::string& sha256, std::string_view content) {
  LOCKSTEP_TRY(objects_->write(piece_name(sha256), content, sha256));
  if (pieces_) (*pieces_)[sha256] = content.size();
  return {};
}

Result<void> Repository::remove_piece(const std::string& sha256) {
  LOCKSTEP_TRY(objects_->remove(piece_name(sha256)));
  if (pieces_) pieces_->erase(sha256);
  return {};
}

Result<std::unique_ptr<Repository>> open_repository(const std::string& place, Access access,
                                                    const std::string& s3_endpoint) {
  std::unique_ptr<Objects> objects;
  if (s3::is_s3_place(place)) {
    const auto variable = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    s3::S3Settings settings = LOCKSTEP_TRY(s3::s3_settings(s3_endpoint, variable));
    objects = LOCKSTEP_TRY(open_s3(place, access, std::move(settings)));
  } else {
    objects = LOCKSTEP_TRY(open_folder(place, access));
  }
  return std::make_unique<Repository>(std::move(objects));
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
    return prefixed(manifest.failure(), format("%s, generation %llu: ", repository.place().c_str(),
                                               static_cast<unsigned long long>(number)));
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
  const Repository::Pieces pieces = LOCKSTEP_TRY(repository.pieces());
  for (const auto& [sha256, bytes] : pieces) {
    if (needed.contains(sha256)) continue;
    LOCKSTEP_TRY(repository.remove_piece(sha256));
    ++pruned.pieces;
    pruned.bytes += bytes;
  }
  return pruned;
}

}  // namespace lockstep::backup
