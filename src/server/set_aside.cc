#include "server/set_aside.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep {

// As it lies in the file, in the machine's own byte order: no other machine reads it. All zero: nothing is being
// applied and nothing has died.
struct SetAside::Page {
  std::atomic<uint64_t> sequence;  // 0: none; set last, cleared first
  std::atomic<int64_t> received_unix_ns;
  std::atomic<uint64_t> died_sequence;  // at the last start that found one
  std::atomic<int64_t> died_received_unix_ns;
  std::atomic<uint64_t> deaths;  // of that one
};

namespace {
constexpr size_t kPageBytes = 4096;
}

SetAside::SetAside(const std::string& folder, Counters& counters) {
  const std::string list = folder + "/set_aside";
  const std::string path = folder + "/applying";
  read_list(list);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  // Room for the page now: a store to a page that the disk has no room for would be a signal.
  int failed = !fd.valid() ? errno : posix_fallocate(fd.get(), 0, kPageBytes);
  void* mapped = MAP_FAILED;
  if (failed == 0) {
    mapped = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    failed = mapped == MAP_FAILED ? errno : 0;
  }
  if (failed != 0) {
    LOCKSTEP_LOG_WARN("server", "%s: %s; a record that ends the server is not remembered", path.c_str(),
                      std::strerror(failed));
    return;
  }
  page_ = static_cast<Page*>(mapped);
  note_death(list, counters);
}

SetAside::~SetAside() {
  if (page_ != nullptr) munmap(page_, kPageBytes);
}

void SetAside::read_list(const std::string& path) {
  const Result<std::string> text = read_file(path, 1 << 20);
  if (!text.ok()) return;
  for (std::string_view line : split(*text, '\n')) {
    const std::vector<std::string_view> words = split(line, ' ');
    const std::optional<uint64_t> sequence = words.size() == 2 ? parse_uint(words[0]) : std::nullopt;
    const std::optional<int64_t> received = words.size() == 2 ? parse_int(words[1]) : std::nullopt;
    if (sequence && received && records_.size() < kListMax) records_.emplace(*sequence, *received);
  }
}

void SetAside::note_death(const std::string& path, Counters& counters) {
  const uint64_t sequence = page_->sequence;
  const int64_t received = page_->received_unix_ns;
  page_->sequence = 0;
  if (sequence == 0) return;
  const bool same = page_->died_sequence == sequence && page_->died_received_unix_ns == received;
  const uint64_t deaths = same ? page_->deaths + 1 : 1;
  page_->died_sequence = sequence;
  page_->died_received_unix_ns = received;
  page_->deaths = deaths;
  const bool over = deaths >= kDeathsMax && records_.size() < kListMax;
  const std::string what =
      sequence == kMetrics ? "metrics of " + utc_time(received / 1'000'000) + " were read back"
                           : format("record %llu of the log was applied", static_cast<unsigned long long>(sequence));
  LOCKSTEP_LOG_WARN("server", "the server ended while %s, %llu times now (limit %llu); it is %s", what.c_str(),
                    static_cast<unsigned long long>(deaths), static_cast<unsigned long long>(kDeathsMax),
                    over ? "set aside" : "tried again");
  if (!over) return;
  counters.add("lockstep_replay_records_set_aside_total");
  records_.emplace(sequence, received);
  std::string text;
  for (const auto& [one, when] : records_)
    text += format("%llu %lld\n", static_cast<unsigned long long>(one), static_cast<long long>(when));
  if (Result<void> written = write_file_atomically(path, text); !written.ok())
    LOCKSTEP_LOG_WARN("server", "%s; that record is left out this time only", written.error().c_str());
}

bool SetAside::is_set_aside(uint64_t sequence, int64_t received_unix_ns) const {
  return !records_.empty() && records_.contains({sequence, received_unix_ns});
}

void SetAside::begin(uint64_t sequence, int64_t received_unix_ns) {
  if (page_ == nullptr) return;
  page_->received_unix_ns.store(received_unix_ns, std::memory_order_relaxed);
  page_->sequence.store(sequence, std::memory_order_release);
}

void SetAside::end() {
  if (page_ != nullptr) page_->sequence.store(0, std::memory_order_release);
}

}  // namespace lockstep
