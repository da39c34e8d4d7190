// The kernel's log, each record once: /dev/kmsg without waiting, from where the last agent of this boot stopped.
//
// A plain file in its place works the same (recorded trees, tests): its lines are records, appended ones are seen
// later, and a file that is replaced is read from its start. Which of its records were there before is told by
// their numbers; a file that does not hold the record that was read last is another log and begins anew.
//
// The place is kept as "BOOT_ID SEQUENCE MICROSECONDS" in a state file, written rarely and as a whole: after a crash
// the last seconds may be read twice, never skipped. Another boot begins anew.
//
// Thread rule: Confined.
// Limits:      kKernelRecordsPerRead records and kKernelReadNs of time per read(), the rest comes next time; a record
// of
//              more than kKernelRecordMax bytes is counted as malformed.
// On error:    read() returns; problem() says why, once it has a reason that lasts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"

namespace lockstep {

inline constexpr size_t kKernelRecordMax = 16 * 1024;  // the kernel's own limit is below 9 KiB
inline constexpr int64_t kKernelRecordsPerRead = 20'000;
inline constexpr int64_t kKernelReadNs = 20'000'000;

struct KernelRecord {
  int64_t seq = 0;
  int64_t stamp_us = 0;  // since boot
  int64_t time_unix_ns = 0;
  int priority = 0;       // 0 emergency … 7 debug
  std::string_view text;  // escapes taken back, without the lines of key and value behind it
};

// "priority,seq,us,flags[,more];text": nullopt where it is not of that form. `text` keeps its escapes; continuation
// lines (" KEY=value") are left off.
std::optional<KernelRecord> parse_kernel_record(std::string_view bytes);
// Takes "\x0a" and the like back into `out`.
void unescape_kernel_text(std::string_view text, std::string& out);

struct KernelLogOptions {
  std::string path;          // "/dev/kmsg"
  std::string boot_id_path;  // "/proc/sys/kernel/random/boot_id"; one that is not there counts as a boot of its own
  std::string state_file;    // empty: nothing is kept
};

class KernelLog {
 public:
  // Opens at once, so that privileges may be dropped behind it. Where that fails, read() tries again now and then.
  explicit KernelLog(KernelLogOptions options);
  ~KernelLog();  // writes the place
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;

  // Hands over what is new. true: everything there is has been read.
  bool read(int64_t monotonic_ns, int64_t unix_ns, const std::function<void(const KernelRecord&)>& record);
  // What was handed over so far need not come again after a restart. Writes the place once a minute, or within 5 s if
  // `soon`; true: it has been written.
  bool done(int64_t monotonic_ns, bool soon);

  bool is_open() const { return file_.valid(); }
  const std::string& path() const { return options_.path; }
  // Why the log cannot be read, as errno; 0: it can.
  int open_error() const { return open_error_; }
  // Something the person who runs the agent should know; empty: nothing new.
  std::string take_note();

  int64_t records() const { return records_; }
  int64_t lost() const { return lost_; }            // overwritten by the kernel before they were read
  int64_t malformed() const { return malformed_; }  // not of the form of a record

 private:
  struct Place {
    int64_t seq = -1;
    int64_t stamp_us = -1;
    bool operator==(const Place&) const = default;
  };
  void open_file();
  void load_state();
  void write_state();
  void look_for_replacement();
  void rewind();
  // Both: true when nothing more is there.
  bool read_device(int64_t deadline_ns, const std::function<void(const KernelRecord&)>& record);
  bool read_plain(int64_t deadline_ns, const std::function<void(const KernelRecord&)>& record);
  void take(std::string_view bytes, const std::function<void(const KernelRecord&)>& record);
  bool is_another_log() const;
  int64_t unix_of(int64_t stamp_us) const;

  KernelLogOptions options_;
  UniqueFd file_;
  bool plain_ = false;
  int open_error_ = 0;
  int64_t tried_ns_ = 0;
  std::string note_;
  std::string boot_id_;

  Place last_;  // newest record handed over
  Place done_;  // newest that need not come again
  Place kept_;  // what the state file says
  int64_t kept_ns_ = 0;
  bool state_said_ = false;  // that it cannot be written
  bool resuming_ = false;    // records up to last_ are passed over
  bool passed_any_ = false;
  bool another_log_ = false;  // found while passing over: last_ is not of this log

  off_t offset_ = 0;  // plain file
  ino_t inode_ = 0;
  std::string buffer_;
  std::string text_;

  int64_t now_monotonic_ns_ = 0;
  int64_t now_unix_ns_ = 0;
  int64_t drained_unix_ns_ = 0;  // when everything had been read; 0: not yet
  int64_t handed_ = 0;           // records in this read()
  int64_t records_ = 0;
  int64_t lost_ = 0;
  int64_t malformed_ = 0;
};

}  // namespace lockstep
