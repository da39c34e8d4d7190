#include "agent/upload/folder_uploader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/files.h"
#include "base/sha256.h"
#include "base/text.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

constexpr size_t kPieceBytes = 4u << 20;  // a member of the gzip file each

// Of a file that nobody else writes.
Result<std::string> digest_of(int fd, size_t bytes) {
  if (bytes == 0) return to_text(sha256(""));
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return Error{format("cannot read back what was written: %s", std::strerror(errno))};
  std::string digest = to_text(sha256({static_cast<const char*>(at), bytes}));
  ::munmap(at, bytes);
  return digest;
}

}  // namespace

Result<Uploaded> FolderUploader::upload(int fd, const UploadOrder& order,
                                        const std::function<void(uint64_t)>& progress) {
  const std::string key = url_part(order.job) + "/" + url_part(order.capture) + "/" + url_part(order.file);
  const std::string path = folder_ + "/" + key, beside = path + ".part";
  LOCKSTEP_TRY(make_directories(path.substr(0, path.rfind('/'))));
  const UniqueFd out(::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!out.valid()) return Error{format("cannot write %s: %s", beside.c_str(), std::strerror(errno))};
  Uploaded done{.key = key};
  std::string piece(kPieceBytes, '\0');
  for (uint64_t at = 0; at < order.bytes_max;) {
    const size_t wanted = std::min<uint64_t>(piece.size(), order.bytes_max - at);
    const ssize_t got = ::pread(fd, piece.data(), wanted, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{format("cannot read the trace: %s", std::strerror(errno))};
    if (got == 0) break;
    at += static_cast<uint64_t>(got);
    const std::string small =
        LOCKSTEP_TRY(compress(Encoding::kGzip, std::string_view(piece).substr(0, static_cast<size_t>(got))));
    LOCKSTEP_TRY(write_all(out.get(), small));
    done.bytes += small.size();
    progress(at);
  }
  done.sha256 = LOCKSTEP_TRY(digest_of(out.get(), done.bytes));
  if (::rename(beside.c_str(), path.c_str()) != 0)
    return Error{format("cannot name %s: %s", path.c_str(), std::strerror(errno))};
  return done;
}

}  // namespace lockstep
