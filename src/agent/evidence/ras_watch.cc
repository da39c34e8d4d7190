#include "agent/evidence/ras_watch.h"

#include "base/log.h"

namespace lockstep {
namespace {

constexpr const char* kQueries = "lockstep_agent_ras_queries_total";
constexpr uint32_t kSafeInterface = 6;

}  // namespace

Result<RasWatchOptions> parse_ras_option(const std::string& text) {
  RasWatchOptions options;
  if (text == "off") {
    options.off = true;
  } else if (text == "always") {
    options.always = true;
  } else if (!text.empty()) {
    const size_t colon = text.rfind(':');
    if (colon == 0 || colon == std::string::npos || colon + 1 == text.size())
      return Error{"--ras takes HOST:PORT, off or always, not \"" + text + "\""};
    options.address = text;
  }
  return options;
}

bool ras_is_safe(const RecorderHeader& header) {
  if (header.nccl_version == 0) return header.nccl_interface >= kSafeInterface;
  return ras_status_is_safe(static_cast<int>(header.nccl_version));
}

int64_t launched_by(const RasReport& report, CommId comm_id, int32_t rank_in_comm) {
  if (!report.counts_reported) return -1;
  for (const RasComm& comm : report.comms) {
    if (comm.hash != comm_id.value()) continue;
    for (const RasRank& rank : comm.ranks) {
      if (rank.rank_in_comm == rank_in_comm) return static_cast<int64_t>(rank.counts.launched());
    }
  }
  return -1;
}

std::optional<CommRas> fault_class_of(const RasComm& comm, bool suspected) {
  CommRas trouble;
  trouble.comm_id = CommId{comm.hash};
  trouble.size = static_cast<int32_t>(comm.size);
  trouble.missing_count = static_cast<int64_t>(comm.missing.size());
  for (const RasMissingRank& rank : comm.missing)
    trouble.missing.push_back({rank.rank_in_comm, rank.host, rank.pid, rank.unresponsive, rank.considered_dead});
  for (const RasMismatch& mismatch : comm.mismatches) {
    if (!suspected || mismatch.groups.empty()) continue;
    const RasCountGroup& fewest = mismatch.groups.front();
    trouble.behind.push_back({to_text(mismatch.function), static_cast<int64_t>(fewest.launched),
                              static_cast<int64_t>(mismatch.groups.back().launched), fewest.ranks_count,
                              fewest.ranks_in_comm});
  }
  if (trouble.missing.empty() && trouble.behind.empty()) return std::nullopt;
  return trouble;
}

RasWatch::RasWatch(RasWatchOptions options, const Clock& clock, Counters& counters)
    : options_(std::move(options)), clock_(clock), counters_(counters) {
  if (!options_.off) thread_ = std::thread([this] { run(); });
}

RasWatch::~RasWatch() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void RasWatch::consider(bool suspected, bool safe) {
  if (options_.off || (!suspected && !options_.always)) return;
  const int64_t now = clock_.monotonic_ns();
  MutexLock lock(mutex_);
  if (wanted_ || asking_ || now < next_ns_) return;
  next_ns_ = now + options_.every_ns;
  if (!safe) {
    counters_.add(kQueries, "result=\"unsafe\"");
    return;
  }
  suspected_ = suspected;
  wanted_ = true;
  wake_.notify_one();
}

std::shared_ptr<const RasAnswer> RasWatch::answer() const {
  MutexLock lock(mutex_);
  return answer_;
}

void RasWatch::run() {
  std::string last_error;
  ReleasableMutexLock lock(mutex_);
  while (true) {
    wake_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || wanted_; });
    if (stopping_) return;
    wanted_ = false;
    asking_ = true;
    const bool suspected = suspected_;
    lock.unlock();

    const int64_t asked_ns = clock_.monotonic_ns();
    Result<RasReport> report = ras_status({.address = options_.address, .timeout_ms = options_.timeout_ms});
    if (report.ok()) {
      counters_.add(kQueries, "result=\"answered\"");
      last_error.clear();
    } else if (report.code() == ErrorCode::kNotFound) {
      counters_.add(kQueries, "result=\"absent\"");
    } else {
      counters_.add(kQueries, "result=\"failed\"");
      if (report.error() != last_error) LOCKSTEP_LOG_WARN("agent", "%s", report.error().c_str());
      last_error = report.error();
    }

    lock.lock();
    asking_ = false;
    if (report.ok())
      answer_ = std::make_shared<const RasAnswer>(RasAnswer{++answers_, asked_ns, suspected, std::move(*report)});
  }
}

}  // namespace lockstep
