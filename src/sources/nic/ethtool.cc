#include "sources/nic/ethtool.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "sources/nic/ethtool_names.h"
#include "sources/nic/nic_metrics.h"

namespace lockstep {

namespace {

class KernelEthtool : public EthtoolStatistics {
 public:
  KernelEthtool() : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

  Result<std::vector<std::string>> names(const std::string& netdev) override {
    size_t count = LOCKSTEP_TRY(count_of(netdev));
    std::vector<std::string> names;
    if (count == 0) return names;
    buffer_.assign((sizeof(ethtool_gstrings) + room(count) * ETH_GSTRING_LEN) / sizeof(uint64_t) + 1, 0);
    auto* strings = reinterpret_cast<ethtool_gstrings*>(buffer_.data());
    strings->cmd = ETHTOOL_GSTRINGS;
    strings->string_set = ETH_SS_STATS;
    strings->len = static_cast<uint32_t>(count);
    if (int error = ask(netdev, strings)) return failure(netdev, "GSTRINGS", error);
    for (size_t i = 0; i < std::min<size_t>(strings->len, room(count)); ++i) {
      const char* name = reinterpret_cast<const char*>(strings->data) + i * ETH_GSTRING_LEN;
      names.emplace_back(name, strnlen(name, ETH_GSTRING_LEN));
    }
    buffer_ = {};  // names are asked for once, and there may be thousands
    return names;
  }

  Result<void> values(const std::string& netdev, std::vector<uint64_t>& out) override {
    size_t count = LOCKSTEP_TRY(count_of(netdev));
    buffer_.resize(std::max(buffer_.size(), sizeof(ethtool_stats) / sizeof(uint64_t) + room(count)));
    auto* statistics = reinterpret_cast<ethtool_stats*>(buffer_.data());
    statistics->cmd = ETHTOOL_GSTATS;
    statistics->n_stats = static_cast<uint32_t>(count);
    if (int error = ask(netdev, statistics)) return failure(netdev, "GSTATS", error);
    const size_t got = std::min<size_t>(statistics->n_stats, room(count));
    const auto* first = reinterpret_cast<const uint64_t*>(statistics->data);
    out.assign(first, first + got);
    return {};
  }

 private:
  // The kernel writes as many as there are, not as many as were asked for: queues may have been added meanwhile.
  static size_t room(size_t count) { return 2 * count + 1024; }

  static Error failure(const std::string& netdev, const char* what, int error) {
    return Error{format("ethtool %s of %s: %s", what, netdev.c_str(), strerror(error))};
  }

  int ask(const std::string& netdev, void* command) {
    ifreq request{};
    if (netdev.size() >= sizeof request.ifr_name) return ENODEV;
    memcpy(request.ifr_name, netdev.c_str(), netdev.size());
    request.ifr_data = static_cast<char*>(command);
    return ioctl(socket_.get(), SIOCETHTOOL, &request) == 0 ? 0 : errno;
  }

  Result<size_t> count_of(const std::string& netdev) {
    struct {  // ethtool_sset_info with one number behind it
      uint32_t command;
      uint32_t reserved;
      uint64_t mask;
      uint32_t count;
    } request{};
    request.command = ETHTOOL_GSSET_INFO;
    request.mask = uint64_t{1} << ETH_SS_STATS;
    int error = ask(netdev, &request);
    if (error == EOPNOTSUPP) return size_t{0};
    if (error != 0) return failure(netdev, "GSSET_INFO", error);
    if (request.mask == 0) return size_t{0};
    if (request.count > kStatisticsMax) {
      return Error{format("ethtool of %s: %u statistics (limit %zu)", netdev.c_str(), request.count, kStatisticsMax)};
    }
    return size_t{request.count};
  }

  UniqueFd socket_;
  std::vector<uint64_t> buffer_;
};

class RecordedEthtool : public EthtoolStatistics {
 public:
  explicit RecordedEthtool(const std::string& root) : folder_(root + "/run/lockstep-recorded/ethtool/") {}

  Result<std::vector<std::string>> names(const std::string& netdev) override {
    std::vector<std::string> names;
    for (EthtoolStatistic& statistic : parse_ethtool_text(text(netdev))) names.push_back(std::move(statistic.name));
    return names;
  }
  Result<void> values(const std::string& netdev, std::vector<uint64_t>& out) override {
    out.clear();
    for (const EthtoolStatistic& statistic : parse_ethtool_text(text(netdev))) out.push_back(statistic.value);
    return {};
  }

 private:
  std::string text(const std::string& netdev) {
    Result<std::string> content = read_file(folder_ + netdev, 4 << 20);
    return content ? std::move(*content) : std::string();  // no file: no statistics
  }
  std::string folder_;
};

}  // namespace

std::unique_ptr<EthtoolStatistics> kernel_ethtool() {
  return std::make_unique<KernelEthtool>();
}
std::unique_ptr<EthtoolStatistics> recorded_ethtool(const std::string& root) {
  return std::make_unique<RecordedEthtool>(root);
}

std::vector<EthtoolStatistic> parse_ethtool_text(std::string_view text) {
  std::vector<EthtoolStatistic> statistics;
  for (std::string_view line : split(text, '\n')) {
    size_t colon = line.rfind(':');  // "[0]: rx_packets: 5" has more than one
    if (colon == std::string_view::npos || statistics.size() >= EthtoolStatistics::kStatisticsMax) continue;
    std::string_view name = trim(line.substr(0, colon));
    std::optional<uint64_t> value = parse_uint(trim(line.substr(colon + 1)));
    if (name.empty() || !value) continue;
    statistics.push_back({std::string(name), *value});
  }
  return statistics;
}

const LabelSet& EthtoolMetrics::labels_of(Interface& interface, const std::string& netdev, const Labels& more) {
  std::string key;
  for (const auto& [name, value] : more) key += name + "=" + value + ",";
  LabelSet& labels = interface.labels[key];
  if (!labels) {
    Labels all{{"device", netdev}};
    all.insert(all.end(), more.begin(), more.end());
    labels = std::make_shared<const Labels>(std::move(all));
  }
  return labels;
}

Result<void> EthtoolMetrics::find_names(const std::string& netdev, Interface& interface) {
  std::vector<std::string> names = LOCKSTEP_TRY(statistics_->names(netdev));
  interface.asked_names = true;
  interface.names = names.size();
  interface.entries.clear();
  interface.has_pause = interface.has_priority_pause = interface.has_corrected_bits = false;
  interface.has_checksum = interface.has_symbol = false;
  // A driver may have two names for one thing; the first is taken.
  std::set<std::pair<const MetricDescriptor*, Labels>> taken;
  for (size_t i = 0; i < names.size(); ++i) {
    std::optional<EthtoolMeaning> meaning = ethtool_meaning(names[i]);
    if (!meaning || !taken.emplace(meaning->metric, meaning->labels).second) continue;
    if (meaning->metric == &nic_metric("lockstep_nic_pause_frames_total")) {
      (meaning->priority >= 0 ? interface.has_priority_pause : interface.has_pause) = true;
    }
    interface.has_corrected_bits |= meaning->metric == &nic_metric("lockstep_nic_fec_corrected_bits_total");
    interface.has_checksum |= meaning->metric == &nic_metric("lockstep_nic_crc_errors_total");
    interface.has_symbol |= meaning->metric == &nic_metric("lockstep_nic_pcs_symbol_errors_total");
    interface.entries.push_back(
        {i, meaning->metric, labels_of(interface, netdev, meaning->labels), meaning->scale, meaning->priority});
  }
  return {};
}

Result<void> EthtoolMetrics::read_driver(const std::string& netdev, Interface& interface, NodeReadings& out) {
  if (!interface.asked_names) {
    LOCKSTEP_TRY(find_names(netdev, interface));
  }
  if (interface.entries.empty()) return {};
  LOCKSTEP_TRY(statistics_->values(netdev, values_));
  if (values_.size() != interface.names) {  // queues were added or removed: positions have moved
    LOCKSTEP_TRY(find_names(netdev, interface));
    LOCKSTEP_TRY(statistics_->values(netdev, values_));
    if (values_.size() != interface.names) return Error{"ethtool: statistics keep changing in number"};
  }
  for (const Entry& entry : interface.entries) {
    if (entry.priority >= 0 && values_[entry.position] != 0) interface.priority_in_use[entry.priority] = true;
  }
  for (const Entry& entry : interface.entries) {
    if (entry.priority >= 0 && !interface.priority_in_use[entry.priority]) continue;
    out.add(*entry.metric, entry.labels, static_cast<double>(values_[entry.position]) * entry.scale);
  }
  return {};
}

void EthtoolMetrics::read_netlink(const std::string& netdev, Interface& interface, bool slow, NodeReadings& out) {
  auto add = [&](const MetricDescriptor& metric, const Labels& labels, std::optional<uint64_t> value) {
    if (value) out.add(metric, labels_of(interface, netdev, labels), static_cast<double>(*value));
  };
  if (!interface.has_pause && (slow || interface.netlink_has_pause)) {
    PauseStatistics pause = netlink_->pause(netdev);
    interface.netlink_has_pause = pause.sent || pause.received;
    add(nic_metric("lockstep_nic_pause_frames_total"), {{"priority", "global"}, {"direction", "transmit"}}, pause.sent);
    add(nic_metric("lockstep_nic_pause_frames_total"), {{"priority", "global"}, {"direction", "receive"}},
        pause.received);
  }
  if (slow || (interface.netlink_has_pfc && !interface.has_priority_pause)) {
    std::optional<PfcStatistics> pfc = netlink_->pfc(netdev);
    interface.netlink_has_pfc = pfc.has_value();
    for (size_t i = 0; pfc && i < 8; ++i) {
      const std::string priority = std::to_string(i);
      const bool enabled = pfc->enabled >> i & 1;
      if (slow) add(nic_metric("lockstep_nic_pfc_enabled"), {{"priority", priority}}, enabled);
      if (enabled || pfc->sent[i] != 0 || pfc->received[i] != 0) interface.priority_in_use[i] = true;
      if (interface.has_priority_pause || !interface.priority_in_use[i]) continue;
      add(nic_metric("lockstep_nic_pause_frames_total"), {{"priority", priority}, {"direction", "transmit"}},
          pfc->sent[i]);
      add(nic_metric("lockstep_nic_pause_frames_total"), {{"priority", priority}, {"direction", "receive"}},
          pfc->received[i]);
    }
  }
  if (!slow) return;
  FecStatistics fec = netlink_->fec(netdev);
  add(nic_metric("lockstep_nic_fec_blocks_total"), {{"result", "corrected"}}, fec.corrected_blocks);
  add(nic_metric("lockstep_nic_fec_blocks_total"), {{"result", "uncorrectable"}}, fec.uncorrectable_blocks);
  if (!interface.has_corrected_bits) add(nic_metric("lockstep_nic_fec_corrected_bits_total"), {}, fec.corrected_bits);
  if (!interface.has_checksum || !interface.has_symbol) {
    StandardStatistics standard = netlink_->standard(netdev);
    if (!interface.has_checksum) add(nic_metric("lockstep_nic_crc_errors_total"), {}, standard.checksum_errors);
    if (!interface.has_symbol) add(nic_metric("lockstep_nic_pcs_symbol_errors_total"), {}, standard.symbol_errors);
  }
}

void EthtoolMetrics::read(const Tick& tick, const std::vector<Netdevs::Netdev>& netdevs, NodeReadings& out) {
  std::erase_if(interfaces_, [&](const auto& entry) {
    return std::none_of(netdevs.begin(), netdevs.end(), [&](const auto& netdev) {
      return netdev.name == entry.first && netdev.ifindex == entry.second.ifindex;
    });
  });
  for (const Netdevs::Netdev& netdev : netdevs) {
    Interface& interface = interfaces_[netdev.name];
    interface.ifindex = netdev.ifindex;
    if (interface.slow.resting(tick.monotonic_ns)) {
      ++out.failures;
      continue;
    }
    const Stopwatch watch;
    if (Result<void> read = read_driver(netdev.name, interface, out); !read) {
      ++out.failures;
      if (!interface.reported_failure) out.notes.push_back("nic: " + netdev.name + ": " + read.error());
      interface.reported_failure = true;
    }
    if (netlink_) read_netlink(netdev.name, interface, tick.slow, out);
    const int64_t elapsed = watch.elapsed_ns();
    if (interface.slow.took(elapsed, tick.monotonic_ns)) {
      context_.say_once(out, format("nic: ethtool of %s took %s (limit 500 ms); left alone for 30 s each time",
                                    netdev.name.c_str(), human_duration(static_cast<double>(elapsed)).c_str()));
    }
  }
}

size_t EthtoolMetrics::interfaces_with_statistics() const {
  return static_cast<size_t>(std::count_if(interfaces_.begin(), interfaces_.end(),
                                           [](const auto& entry) { return !entry.second.entries.empty(); }));
}

}  // namespace lockstep
