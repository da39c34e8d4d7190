#include "backup/take.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace lockstep::backup {
namespace {

struct ReleaseOnReturn {
  HeldFiles& server;
  const std::string& id;
  ~ReleaseOnReturn() { server.release(id); }
};

// Files of the newest generation that can be read; what cannot be costs reading it all again.
std::map<std::string, File> known_files(const Repository& repository, const std::vector<uint64_t>& generations) {
  std::map<std::string, File> known;
  for (size_t i = generations.size(); i-- > 0 && known.empty();) {
    Result<Manifest> manifest = find_generation(repository, generations[i]);
    if (!manifest.ok()) continue;
    for (File& file : manifest->files) {
      std::string name = file.name;
      known.emplace(std::move(name), std::move(file));
    }
  }
  return known;
}

// Pieces of `now` that are those of `before`, from the first on.
size_t same_pieces(const File& before, const File& now) {
  if (before.stamp != now.stamp || before.grows != now.grows) return 0;
  if (before.bytes == now.bytes) return before.pieces.size();
  return now.grows ? static_cast<size_t>(std::min(before.bytes, now.bytes) / kPieceBytes) : 0;
}

class Taking {
 public:
  Taking(HeldFiles& server, Repository& repository, const Progress& progress)
      : server_(server), repository_(repository), progress_(progress) {}

  Result<Taken> run() {
    const std::vector<uint64_t> generations = LOCKSTEP_TRY(repository_.generations());
    known_ = known_files(repository_, generations);
    const std::string listing = LOCKSTEP_TRY(server_.hold());
    taken_.manifest = LOCKSTEP_TRY(read_listing(listing));
    const std::string id = taken_.manifest.id;
    const ReleaseOnReturn release{server_, id};
    taken_.bytes = taken_.manifest.bytes();
    for (File& file : taken_.manifest.files) LOCKSTEP_TRY(take(id, file));
    taken_.manifest.generation = generations.empty() ? 1 : generations.back() + 1;
    LOCKSTEP_TRY(repository_.write_generation(taken_.manifest.generation, write_manifest(taken_.manifest)));
    return std::move(taken_);
  }

 private:
  Result<void> take(const std::string& id, File& file) {
    if (auto before = known_.find(file.name); before != known_.end()) {
      const size_t same = same_pieces(before->second, file);
      for (size_t i = 0; i < same; ++i) {
        const bool is_there = LOCKSTEP_TRY(repository_.has_piece(before->second.pieces[i], piece_bytes(file, i)));
        if (!is_there) break;
        file.pieces.push_back(before->second.pieces[i]);
        done(piece_bytes(file, i));
      }
    }
    while (file.pieces.size() < pieces_of(file.bytes)) {
      const size_t number = file.pieces.size();
      const uint64_t bytes = piece_bytes(file, number);
      const std::string content = LOCKSTEP_TRY(server_.read(id, file.name, number * kPieceBytes, bytes));
      if (content.size() != bytes)
        return Error{format("%s: the server gave %zu bytes where it has %llu", file.name.c_str(), content.size(),
                            static_cast<unsigned long long>(bytes))};
      taken_.bytes_read += bytes;
      std::string sha256 = sha256_hex(content);
      const bool is_there = LOCKSTEP_TRY(repository_.has_piece(sha256, bytes));
      if (!is_there) {
        LOCKSTEP_TRY(repository_.write_piece(sha256, content));
        taken_.bytes_written += bytes;
      }
      file.pieces.push_back(std::move(sha256));
      done(bytes);
    }
    return {};
  }
  void done(uint64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, taken_.bytes);
  }

  HeldFiles& server_;
  Repository& repository_;
  const Progress& progress_;
  std::map<std::string, File> known_;
  Taken taken_;
  uint64_t done_ = 0;
};

}  // namespace

Result<Taken> take_backup(HeldFiles& server, Repository& repository, const Progress& progress) {
  return Taking(server, repository, progress).run();
}

}  // namespace lockstep::backup
