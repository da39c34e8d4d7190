// From lines and numbers to few events. An XID reaches us twice: as a line in the kernel's log, with its text and often
// its process, and as a bare number from the driver; either may come first, or alone. And one fault may write a line
// hundreds of thousands of times.
//
//   one thing, one event   a line and a number of the same GPU and XID within 5 s are one ("kmsg+driver"). The first to
//                          come waits for the other for at most one second, and is told without it then; the other is
//                          no event of its own any more.
//   alike lines, one event what differs in numbers and addresses only is alike. It is told at once, then with its count
//                          after a minute, ten minutes and every hour. How a link or a server stands is told at least
//                          every minute while it changes. An hour without any, and the next is told at once again.
//   one primary            of the events of one GPU within 5 s: the worst that is no mere consequence, the earliest of
//                          several. The others are secondary. What turns out worse later is not.
//   the driver's word      a recovery action told within 5 s raises the severity of the primary (xid_table.h).
//   whose                  the process's job and rank, else those of who holds the GPU.
//   hardware after all     XID 13 and 31 are a program's fault, until two jobs have them on one GPU within a day.
//
// Thread rule: Confined.
// Limits:      kGpusMax GPUs, kXidsPerGpuMax XIDs each, kAlikeXidMax kinds of XID lines and kAlikeMax of each other
//              event; what is beyond is counted together with others of its name, and said so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sources/kernel/kernel_lines.h"
#include "sources/kernel/kernel_log.h"
#include "sources/node_source.h"

namespace lockstep {

class EventFusion {
 public:
  static constexpr size_t kGpusMax = 128;
  static constexpr size_t kXidsPerGpuMax = 64;
  static constexpr int64_t kAlikeXidMax = 512;
  static constexpr int64_t kAlikeMax = 64;
  static constexpr int64_t kLastXidNs = 300'000'000'000;  // how long the last XID is shown

  // A tick: begin(), then every line and number in any order, then finish(). kernel_log: lines can come at all.
  void begin(const Tick& tick, bool kernel_log);
  void line(const KernelLine& line, const KernelRecord& record);
  void driver(const GpuEvent& event);
  // Adds what is to be told now, in order of time.
  void finish(std::vector<NodeEvent>& out);
  // Something has come and is not told yet.
  bool holding() const { return holding_; }

  // Counters, exact whatever is told.
  void add_readings(NodeReadings& out);

 private:
  // Numbers that wait for their line, or lines for their number, in stretches of 5 s.
  class Unmatched {
   public:
    void add(int64_t time_unix_ns);
    bool take(int64_t time_unix_ns);

   private:
    void move_to(int64_t stretch);
    int64_t stretch_ = 0;
    int64_t older_ = 0;
    int64_t newer_ = 0;
  };
  struct Xid {
    int64_t code = 0;
    int64_t total = 0;
    Unmatched lines, numbers;
    uint64_t line_key = 0, number_key = 0;  // entries that they went to last
    LabelSet labels;
  };
  struct JobFault {
    int64_t code = 0;
    std::string job_id;
    int64_t time_unix_ns = 0;
  };
  struct Gpu {
    std::string pci;
    std::string uuid;
    int driver_major = 0;
    const Owner* owner = nullptr;  // this tick
    bool in_owners = false;        // this tick
    std::vector<Xid> xids;
    int64_t last_xid = 0;
    int64_t last_xid_unix_ns = 0;
    int64_t incident_unix_ns = 0;  // of the last primary that was told; 0: none
    EventSeverity incident_severity = EventSeverity::kInfo;
    int64_t recovery = -1;
    int64_t recovery_unix_ns = 0;
    uint64_t recovery_key = 0;  // the entry of a recovery action without its line
    std::vector<JobFault> faults;
    LabelSet labels;
    std::string labels_of;  // the identity that labels were made for
  };
  struct Entry {
    NodeEvent event;
    int gpu = -1;
    XidRole role = XidRole::kCause;
    bool has_partner = false;  // comes both ways
    bool by_line = false, by_number = false;
    bool announced = false;
    bool is_state = false;
    bool reported = false;
    bool promoted = false;
    bool together = false;  // many different lines, counted as one
    int64_t pending = 0;    // since it was last told
    int64_t order = 0;      // of its first coming
    int64_t first_ns = 0, seen_ns = 0, reported_ns = 0;
    int64_t seen_unix_ns = 0;
    int times_reported = 0;
  };
  struct Kind {
    std::string name;
    int64_t total = 0;
    int64_t alike = 0;  // entries
    LabelSet labels;
  };

  // Index, or -1. The first two look only, the others make one where there is room.
  int find_at(const std::string& pci) const;
  int find_of(const std::string& uuid) const;
  int gpu_at(std::string_view pci);
  int gpu_of(const std::string& uuid);
  Gpu& at(int gpu) { return gpus_[static_cast<size_t>(gpu)]; }
  const Gpu& at(int gpu) const { return gpus_[static_cast<size_t>(gpu)]; }
  void learn(const GpuInfo& info);
  Xid& xid_of(Gpu& gpu, int64_t code);
  Kind& kind_of(std::string_view name);
  Entry* find(uint64_t key);
  // Takes the place of lines that are alike; where there are too many, of those that are counted together.
  Entry& make(uint64_t& key, NodeEvent event, int gpu);
  void erase(uint64_t key);
  const Owner* owner_of(const KernelLine& line, int gpu) const;
  NodeEvent event_of(const KernelLine& line, const KernelRecord& record, int gpu, const Owner* owner) const;
  uint64_t key_of(const KernelLine& line, const KernelRecord& record, int gpu, const Owner* owner) const;
  std::string whole_gpu(const std::string& uuid) const;
  bool counted_before(const GpuEvent& event, int gpu, int64_t time_unix_ns);
  Entry* merge_with_number(const KernelLine& line, const KernelRecord& record, uint64_t& key, int gpu,
                           const Owner* owner);
  void saw_xid(int gpu, int64_t code, int64_t time_unix_ns);
  void recovery(int gpu, int64_t value, int64_t time_unix_ns);
  bool same_as_xid_154(int gpu, int64_t time_unix_ns);
  bool drop_bare_recovery(int gpu, int64_t time_unix_ns);
  void end_smoothing_off(int gpu);
  bool may_tell(const Entry& entry) const;
  void elect(std::vector<Entry*>& of_one_gpu);
  void suspect_hardware(Entry& entry);
  void emit(Entry& entry, std::vector<NodeEvent>& out);

  Tick tick_;
  bool kernel_log_ = false;
  bool holding_ = false;
  int64_t next_order_ = 0;
  std::vector<Gpu> gpus_;
  std::vector<Kind> kinds_;
  std::unordered_map<uint64_t, Entry> entries_;
};

}  // namespace lockstep
