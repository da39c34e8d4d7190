// What the tests of this folder share: a folder that stands for a machine, and ticks.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/text.h"
#include "sources/node_source.h"
#include "testing/temporary_folder.h"

namespace lockstep::kernel_test {

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr int64_t kUnix = 1'700'000'000 * kSecond;  // when the machine of the tests has run for
inline constexpr int64_t kUptime = 1'000 * kSecond;        // so long

class Machine {
 public:
  Machine() {
    for (const char* folder : {"/dev", "/proc/sys/kernel/random"}) (void)make_directories(root_.path() + folder);
    boot("11111111-2222-3333-4444-555555555555");
    replace("");
  }

  const std::string& root() const { return root_.path(); }
  std::string log() const { return root_.path() + "/dev/kmsg"; }
  std::string boot_id() const { return root_.path() + "/proc/sys/kernel/random/boot_id"; }
  std::string state() const { return root_.path() + "/kernel.state"; }
  void boot(const std::string& id) { put(boot_id(), id + "\n"); }
  void replace(const std::string& content) { (void)write_file_atomically(log(), content); }
  void append(const std::string& content) {
    UniqueFd file(open(log().c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    (void)write_all(file.get(), content);
  }
  // A record as the kernel numbers them, so many seconds after the machine's start.
  std::string record(const std::string& text, double seconds = 1'000) {
    return record_of(next_seq_++, text, static_cast<int64_t>(seconds * 1e6));
  }
  std::string records(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += record(text);
    return all;
  }
  static std::string record_of(int64_t seq, const std::string& text, int64_t us) {
    return format("4,%lld,%lld,-;%s\n", static_cast<long long>(seq), static_cast<long long>(us), text.c_str());
  }
  void skip_records(int64_t count) { next_seq_ += count; }

 private:
  static void put(const std::string& path, const std::string& content) { (void)write_file_atomically(path, content); }
  testing::TemporaryFolder root_;
  int64_t next_seq_ = 0;
};

// `seconds` after kUnix.
inline Tick tick_at(double seconds, const OwnerTable* owners = nullptr, const std::vector<GpuEvent>* events = nullptr) {
  Tick tick;
  tick.unix_ns = kUnix + static_cast<int64_t>(seconds * 1e9);
  tick.monotonic_ns = kUptime + static_cast<int64_t>(seconds * 1e9);
  tick.owners = owners;
  tick.gpu_events = events;
  return tick;
}

}  // namespace lockstep::kernel_test
