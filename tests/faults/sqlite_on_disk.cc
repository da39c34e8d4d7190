#include "tests/faults/sqlite_on_disk.h"

#include <sqlite3.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using disk::Call;
using Kind = disk::Call::Kind;

disk::Hook* hook = nullptr;
sqlite3_vfs* real_vfs = nullptr;

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

struct OpenFile {
  sqlite3_file base;
  sqlite3_file* real;
  std::string* path;
  bool syncs_folder;  // a new journal: the first sync of it is one of its folder too, as the real VFS does it
};
OpenFile* ours(sqlite3_file* file) {
  return reinterpret_cast<OpenFile*>(file);
}

Call call_of(Kind kind, const std::string& path) {
  return {kind, path};
}
// 0, or what SQLite is told.
int ask(const Call& call, int error_code, size_t* bytes_max = nullptr) {
  size_t most = SIZE_MAX;
  const int error = hook->before(call, most);
  if (bytes_max != nullptr) *bytes_max = most;
  return error == 0 ? SQLITE_OK : error == ENOSPC ? SQLITE_FULL : error_code;
}
template <typename System>
int hooked(const Call& call, int error_code, System system) {
  if (const int refused = ask(call, error_code); refused != SQLITE_OK) return refused;
  const int outcome = system();
  hook->after(call, outcome == SQLITE_OK ? 0 : -1);
  return outcome;
}

int close_file(sqlite3_file* file) {
  const int outcome = ours(file)->real->pMethods->xClose(ours(file)->real);
  delete ours(file)->path;
  return outcome;
}
int read_file(sqlite3_file* file, void* to, int bytes, sqlite3_int64 offset) {
  if (const int refused = ask(call_of(Kind::kRead, *ours(file)->path), SQLITE_IOERR_READ); refused != SQLITE_OK)
    return refused;
  return ours(file)->real->pMethods->xRead(ours(file)->real, to, bytes, offset);
}
int write_file(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 offset) {
  Call call = call_of(Kind::kWrite, *ours(file)->path);
  const iovec piece{const_cast<void*>(from), static_cast<size_t>(bytes)};
  call.pieces = {&piece, 1};
  call.bytes = static_cast<size_t>(bytes);
  call.offset = offset;
  size_t bytes_max = SIZE_MAX;
  if (const int refused = ask(call, SQLITE_IOERR_WRITE, &bytes_max); refused != SQLITE_OK) return refused;
  const int put = static_cast<int>(std::min<size_t>(call.bytes, bytes_max));
  const int outcome = ours(file)->real->pMethods->xWrite(ours(file)->real, from, put, offset);
  hook->after(call, outcome == SQLITE_OK ? put : -1);
  return outcome == SQLITE_OK && put < bytes ? SQLITE_FULL : outcome;
}
int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  Call call = call_of(Kind::kTruncate, *ours(file)->path);
  call.offset = size;
  return hooked(call, SQLITE_IOERR_TRUNCATE,
                [&] { return ours(file)->real->pMethods->xTruncate(ours(file)->real, size); });
}
int sync_file(sqlite3_file* file, int flags) {
  const int outcome = hooked(call_of(Kind::kSync, *ours(file)->path), SQLITE_IOERR_FSYNC,
                             [&] { return ours(file)->real->pMethods->xSync(ours(file)->real, flags); });
  if (outcome == SQLITE_OK && std::exchange(ours(file)->syncs_folder, false)) {
    const std::string folder = folder_of(*ours(file)->path);
    hook->after(call_of(Kind::kSyncFolder, folder), 0);
  }
  return outcome;
}
int file_size(sqlite3_file* file, sqlite3_int64* size) {
  return ours(file)->real->pMethods->xFileSize(ours(file)->real, size);
}
int lock(sqlite3_file* file, int level) {
  return ours(file)->real->pMethods->xLock(ours(file)->real, level);
}
int unlock(sqlite3_file* file, int level) {
  return ours(file)->real->pMethods->xUnlock(ours(file)->real, level);
}
int check_lock(sqlite3_file* file, int* is_locked) {
  return ours(file)->real->pMethods->xCheckReservedLock(ours(file)->real, is_locked);
}
int control(sqlite3_file* file, int op, void* argument) {
  return ours(file)->real->pMethods->xFileControl(ours(file)->real, op, argument);
}
int sector_size(sqlite3_file* file) {
  return ours(file)->real->pMethods->xSectorSize(ours(file)->real);
}
int characteristics(sqlite3_file* file) {
  // No more than what the simulated disk has too: a write that is cut off does not harm what lies beside it.
  return ours(file)->real->pMethods->xDeviceCharacteristics(ours(file)->real) &
         (SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN | SQLITE_IOCAP_POWERSAFE_OVERWRITE);
}
int shm_map(sqlite3_file* file, int page, int bytes, int extend, void volatile** to) {
  return ours(file)->real->pMethods->xShmMap(ours(file)->real, page, bytes, extend, to);
}
int shm_lock(sqlite3_file* file, int offset, int count, int flags) {
  return ours(file)->real->pMethods->xShmLock(ours(file)->real, offset, count, flags);
}
void shm_barrier(sqlite3_file* file) {
  ours(file)->real->pMethods->xShmBarrier(ours(file)->real);
}
int shm_unmap(sqlite3_file* file, int remove) {
  return ours(file)->real->pMethods->xShmUnmap(ours(file)->real, remove);
}

constexpr sqlite3_io_methods kMethods = {
    2,        close_file,  read_file,  write_file, truncate_file, sync_file,       file_size,
    lock,     unlock,      check_lock, control,    sector_size,   characteristics, shm_map,
    shm_lock, shm_barrier, shm_unmap,  nullptr,    nullptr};

int open_file(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  OpenFile* opened = ours(file);
  opened->base.pMethods = nullptr;
  opened->real = reinterpret_cast<sqlite3_file*>(opened + 1);
  opened->syncs_folder = false;
  const std::string path = name == nullptr ? "" : name;  // no name: a temporary file, of no hook
  Call call = call_of(Kind::kOpen, path);
  call.how = (flags & SQLITE_OPEN_CREATE) != 0 ? disk::Open::kReadWrite : disk::Open::kRead;
  const bool is_new = !path.empty() && !disk::exists(path);
  if (!path.empty()) {
    if (const int refused = ask(call, SQLITE_CANTOPEN); refused != SQLITE_OK) return refused;
  }
  const int outcome = real_vfs->xOpen(real_vfs, name, opened->real, flags, out_flags);
  if (outcome != SQLITE_OK) return outcome;
  if (!path.empty()) hook->after(call, 0);
  opened->syncs_folder = is_new && (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
  opened->path = new std::string(path);
  opened->base.pMethods = &kMethods;
  return SQLITE_OK;
}

int delete_file(sqlite3_vfs*, const char* name, int sync_folder) {
  const std::string path = name;
  if (!disk::exists(path)) return SQLITE_IOERR_DELETE_NOENT;
  const int outcome = hooked(call_of(Kind::kUnlink, path), SQLITE_IOERR_DELETE,
                             [&] { return real_vfs->xDelete(real_vfs, name, sync_folder); });
  if (outcome != SQLITE_OK || sync_folder == 0) return outcome;
  const std::string folder = folder_of(path);
  return hooked(call_of(Kind::kSyncFolder, folder), SQLITE_IOERR_DIR_FSYNC, [] { return SQLITE_OK; });
}

}  // namespace

void put_sqlite_on(disk::Hook* to) {
  static sqlite3_vfs shim;
  if (real_vfs == nullptr) real_vfs = sqlite3_vfs_find(nullptr);
  hook = to;
  if (to == nullptr) {
    sqlite3_vfs_register(real_vfs, 1);
    return;
  }
  shim = *real_vfs;
  shim.pNext = nullptr;
  shim.zName = "simulated";
  shim.szOsFile = static_cast<int>(sizeof(OpenFile)) + real_vfs->szOsFile;
  shim.xOpen = open_file;
  shim.xDelete = delete_file;
  sqlite3_vfs_register(&shim, 1);
}

}  // namespace lockstep
