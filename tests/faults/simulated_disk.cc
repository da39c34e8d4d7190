#include "tests/faults/simulated_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

namespace lockstep {
namespace {

using disk::Call;
constexpr uint64_t kSectorBytes = 512;  // written whole or not at all

std::string parent_of(std::string_view path) {
  return std::string(path.substr(0, path.rfind('/')));
}
std::string name_of(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

bool is_change(const Call& call) {
  return call.kind != Call::Kind::kRead && call.kind != Call::Kind::kList &&
         !(call.kind == Call::Kind::kOpen && call.how == disk::Open::kRead);
}

}  // namespace

SimulatedDisk::SimulatedDisk(std::string root, uint64_t seed)
    : root_(std::move(root) + "/"), seed_(seed), random_(seed) {
  load(root_.substr(0, root_.size() - 1));
  disk::set_hook(this);
}

SimulatedDisk::~SimulatedDisk() {
  disk::set_hook(nullptr);
}

void SimulatedDisk::load(const std::string& folder) {
  Folder& entries = folders_[folder];
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string(), name = entry.path().filename().string();
    if (entry.is_directory()) {
      entries.durable[name] = nullptr;
      load(path);
    } else {
      std::ostringstream content;
      content << std::ifstream(path, std::ios::binary).rdbuf();
      auto file = std::make_shared<File>();
      file->durable = content.str();
      files_[path] = entries.durable[name] = file;
    }
  }
}

void SimulatedDisk::set_odds(const Odds& odds) {
  MutexLock lock(mutex_);
  odds_ = odds;
  full_for_ = 0;
}

void SimulatedDisk::stop_after(uint64_t changes) {
  MutexLock lock(mutex_);
  changes_left_ = changes;
}

void SimulatedDisk::stop() {
  stop_after(0);
}

bool SimulatedDisk::is_stopped() const {
  MutexLock lock(mutex_);
  return changes_left_ == 0;
}

uint64_t SimulatedDisk::faults() const {
  MutexLock lock(mutex_);
  return faults_;
}

// The model.

void SimulatedDisk::apply(std::string& content, const Change& change) {
  if (change.is_truncate) {
    content.resize(change.offset, '\0');
    return;
  }
  if (content.size() < change.offset + change.bytes.size()) content.resize(change.offset + change.bytes.size(), '\0');
  content.replace(change.offset, change.bytes.size(), change.bytes);
}

void SimulatedDisk::apply(std::map<std::string, Handle>& entries, const EntryChange& change) {
  if (!change.removed.empty()) entries.erase(change.removed);
  if (!change.added.empty()) entries[change.added] = change.file;
}

SimulatedDisk::Handle SimulatedDisk::file_of(const Call& call) {
  if (call.fd < 0) {
    auto known = files_.find(std::string(call.path));
    return known == files_.end() ? nullptr : known->second;
  }
  auto known = descriptors_.find(call.fd);
  return known == descriptors_.end() ? nullptr : known->second.file;
}

void SimulatedDisk::enter(std::string_view path, Handle file) {
  if (file != nullptr) files_[std::string(path)] = file;
  folders_[parent_of(path)].unsynced.push_back({"", name_of(path), std::move(file)});
}

void SimulatedDisk::leave(std::string_view path) {
  files_.erase(std::string(path));
  folders_[parent_of(path)].unsynced.push_back({name_of(path), "", nullptr});
}

void SimulatedDisk::fail_sync(File& file) {
  for (const Change& change : file.unsynced) {
    if (below(2) == 0) {
      apply(file.durable, change);
    } else if (!change.is_truncate && below(2) == 0) {  // its size, and not its bytes
      file.durable.resize(std::max<size_t>(file.durable.size(), change.offset + change.bytes.size()), '\0');
    }
  }
  file.unsynced.clear();
}

std::string SimulatedDisk::after_power_loss(const File& file) {
  std::string content = file.durable;
  const uint64_t kept = below(5);  // 0: none of it, 1: all of it, else any
  for (const Change& change : file.unsynced) {
    if (kept == 0 || (kept > 1 && below(2) == 0)) continue;
    if (kept == 1 || change.is_truncate || below(2) == 0) {
      apply(content, change);
      continue;
    }
    for (uint64_t at = 0; at < change.bytes.size();) {
      const uint64_t end =
          std::min<uint64_t>(change.bytes.size(), at + kSectorBytes - (change.offset + at) % kSectorBytes);
      if (below(2) == 0) apply(content, {false, change.offset + at, change.bytes.substr(at, end - at)});
      at = end;
    }
  }
  return content;
}

void SimulatedDisk::restart_process() {
  MutexLock lock(mutex_);
  descriptors_.clear();
  changes_left_ = UINT64_MAX;
}

void SimulatedDisk::lose_power() {
  MutexLock lock(mutex_);
  std::map<std::string, std::map<std::string, Handle>> entries;
  for (const auto& [path, folder] : folders_) {
    entries[path] = folder.durable;
    const uint64_t kept = below(3);  // 0: the first of them, else any
    const uint64_t first = below(folder.unsynced.size() + 1);
    for (size_t i = 0; i < folder.unsynced.size(); ++i) {
      if (kept == 0 ? i < first : below(2) == 0) apply(entries[path], folder.unsynced[i]);
    }
  }
  const std::string root = root_.substr(0, root_.size() - 1);
  for (const auto& entry : std::filesystem::directory_iterator(root)) std::filesystem::remove_all(entry.path());
  std::map<Handle, std::string> written;
  write_out(root, entries, written);
  files_.clear();
  folders_.clear();
  descriptors_.clear();
  load(root);
  changes_left_ = UINT64_MAX;
}

// A folder that its parent does not know is gone with everything in it.
void SimulatedDisk::write_out(const std::string& folder,
                              const std::map<std::string, std::map<std::string, Handle>>& entries,
                              std::map<Handle, std::string>& written) {
  std::filesystem::create_directories(folder);
  auto known = entries.find(folder);
  if (known == entries.end()) return;
  for (const auto& [name, file] : known->second) {
    const std::string path = folder + "/" + name;
    if (file == nullptr) {
      write_out(path, entries, written);
      continue;
    }
    auto content = written.find(file);
    if (content == written.end()) content = written.emplace(file, after_power_loss(*file)).first;
    std::ofstream(path, std::ios::binary) << content->second;
  }
}

// Calls.

int SimulatedDisk::before(const Call& call, size_t& bytes_max) {
  MutexLock lock(mutex_);
  auto descriptor = descriptors_.find(call.fd);
  if (call.fd < 0 ? !is_ours(std::string(call.path) + "/") : descriptor == descriptors_.end()) return 0;
  if (changes_left_ == 0) return EIO;
  auto failed = [&](int error) LOCKSTEP_REQUIRES(mutex_) {
    ++faults_;
    return error;
  };
  if (!is_change(call)) {
    // By path and count, not by turn: several threads read.
    const std::string path = call.fd < 0 ? std::string(call.path) : descriptor->second.path;
    const size_t draw =
        std::hash<std::string>{}(path + "/" + std::to_string(++reads_[path]) + "/" + std::to_string(seed_));
    return odds_.read > 0 && static_cast<double>(draw % 100'000) < odds_.read * 100'000 ? failed(EIO) : 0;
  }
  if (changes_left_ != UINT64_MAX && --changes_left_ == 0) {
    // The last thing that happens may happen in part.
    if (call.kind != Call::Kind::kWrite || call.bytes == 0) return EIO;
    bytes_max = below(call.bytes) + 1;
    return 0;
  }
  if (full_for_ > 0) {
    --full_for_;
  } else if (happens(odds_.full)) {
    full_for_ = 1 + below(20);
  }
  switch (call.kind) {
    case Call::Kind::kSync:
      if (!happens(odds_.sync)) return 0;
      if (Handle file = file_of(call)) fail_sync(*file);
      return failed(EIO);
    case Call::Kind::kSyncFolder:
      if (!happens(odds_.sync)) return 0;
      return failed(EIO);
    case Call::Kind::kWrite:
      if (full_for_ == 0 && !happens(odds_.write)) return 0;
      ++faults_;
      if (below(2) == 0 || call.bytes < 2) return full_for_ > 0 || below(2) == 0 ? ENOSPC : EIO;
      bytes_max = below(call.bytes - 1) + 1;
      return 0;
    case Call::Kind::kOpen:
      return full_for_ > 0 && call.how != disk::Open::kWrite && call.how != disk::Open::kReadWrite ? failed(ENOSPC)
             : happens(odds_.other)                                                                ? failed(EIO)
                                                                                                   : 0;
    default:
      return happens(odds_.other) ? failed(EIO) : 0;
  }
}

void SimulatedDisk::after(const Call& call, int64_t outcome) {
  if (outcome < 0) return;
  MutexLock lock(mutex_);
  if (call.fd < 0 ? !is_ours(std::string(call.path) + "/") : !descriptors_.contains(call.fd)) return;
  switch (call.kind) {
    case Call::Kind::kOpen: {
      const std::string path(call.path);
      Handle file = files_.contains(path) ? files_[path] : nullptr;
      if (file == nullptr && call.how == disk::Open::kRead) return;
      if (file == nullptr) {
        file = std::make_shared<File>();
        enter(path, file);
      } else if (call.how == disk::Open::kReplace) {
        file->unsynced.push_back({true, 0, ""});
      }
      if (outcome > 0) descriptors_[static_cast<int>(outcome)] = {file, path, 0};
      return;
    }
    case Call::Kind::kWrite: {
      Handle file = file_of(call);
      if (file == nullptr) return;
      Change change;
      for (const iovec& piece : call.pieces)
        change.bytes.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      change.bytes.resize(static_cast<size_t>(outcome));
      change.offset = static_cast<uint64_t>(call.offset);
      if (call.offset < 0) {
        uint64_t& position = descriptors_[call.fd].position;
        change.offset = position;
        position += change.bytes.size();
      }
      file->unsynced.push_back(std::move(change));
      return;
    }
    case Call::Kind::kTruncate:
      if (Handle file = file_of(call)) file->unsynced.push_back({true, static_cast<uint64_t>(call.offset), ""});
      return;
    case Call::Kind::kSync:
      if (Handle file = file_of(call)) {
        for (const Change& change : file->unsynced) apply(file->durable, change);
        file->unsynced.clear();
      }
      return;
    case Call::Kind::kSyncFolder: {
      Folder& folder = folders_[std::string(call.path)];
      for (const EntryChange& change : folder.unsynced) apply(folder.durable, change);
      folder.unsynced.clear();
      return;
    }
    case Call::Kind::kRename: {
      Handle file = files_[std::string(call.path)];
      files_.erase(std::string(call.path));
      files_[std::string(call.to)] = file;
      if (parent_of(call.path) != parent_of(call.to)) std::abort();  // not modelled: nobody does it
      folders_[parent_of(call.path)].unsynced.push_back({name_of(call.path), name_of(call.to), file});
      return;
    }
    case Call::Kind::kLink:
      enter(call.to, files_[std::string(call.path)]);
      return;
    case Call::Kind::kUnlink:
    case Call::Kind::kRemoveFolder:
      leave(call.path);
      return;
    case Call::Kind::kMakeFolder:
      enter(call.path, nullptr);
      return;
    case Call::Kind::kRead:
    case Call::Kind::kList:
      return;
  }
}

}  // namespace lockstep
