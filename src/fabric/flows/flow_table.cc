#include "fabric/flows/flow_table.h"

namespace lockstep {
namespace {

constexpr uint32_t kHeadsAtFirst = 256;
constexpr int kLookedAt = 8;  // rows, of which the smallest gives way

uint64_t mixed(uint64_t value) {
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93ull;
  value ^= value >> 32;
  return value;
}

uint64_t word(const IpAddress& address, size_t at) {
  uint64_t value = 0;
  std::memcpy(&value, address.bytes.data() + at, sizeof value);
  return value;
}

// What an exporter claims has no bound.
void add_to(uint64_t& sum, uint64_t more) {
  sum = more > UINT64_MAX - sum ? UINT64_MAX : sum + more;
}

bool is_same_tuple(const FlowKey& a, const FlowKey& b) {
  return a.source == b.source && a.destination == b.destination && a.source_port == b.source_port &&
         a.destination_port == b.destination_port && a.protocol == b.protocol;
}

}  // namespace

// Without the queue pair: who asks for a five-tuple may not know it.
uint64_t FlowTable::hash_of(const FlowKey& key) {
  uint64_t hash = mixed(word(key.source, 0) + 0x9e3779b97f4a7c15ull * word(key.source, 8));
  hash = mixed(hash + word(key.destination, 0) + 0xc2b2ae3d27d4eb4full * word(key.destination, 8));
  return mixed(hash + (static_cast<uint64_t>(key.source_port) << 32 | static_cast<uint64_t>(key.destination_port) << 8 |
                       key.protocol));
}

FlowTable::Window& FlowTable::window_at(int64_t unix_ns) {
  const int64_t begin = unix_ns - unix_ns % kWindowNs;
  // Datagrams of several sockets come a little out of order; further back the clock was set.
  const size_t before = windows_.size();
  while (!windows_.empty() && windows_.back()->begin_unix_ns > begin + kWindowNs) windows_.pop_back();
  if (!windows_.empty() && windows_.back()->begin_unix_ns >= begin) {
    // It was not the newest: find() may be reading it.
    if (windows_.size() < before) windows_.back() = std::make_shared<Window>(*windows_.back());
    return *windows_.back();
  }
  if (windows_.size() >= kWindows) windows_.pop_front();
  windows_.push_back(std::make_shared<Window>(Window{begin, {}, std::vector<uint32_t>(kHeadsAtFirst, kEnd)}));
  return *windows_.back();
}

void FlowTable::grow(Window& window) {
  if (window.rows.size() < window.heads.size()) return;
  window.heads.assign(window.heads.size() * 2, kEnd);
  for (uint32_t i = 0; i < window.rows.size(); ++i) {
    uint32_t& head = window.heads[hash_of(window.rows[i].key) & (window.heads.size() - 1)];
    window.rows[i].next = head;
    head = i;
  }
}

void FlowTable::unlink(Window& window, uint32_t index) {
  uint32_t* at = &window.heads[hash_of(window.rows[index].key) & (window.heads.size() - 1)];
  while (*at != index) at = &window.rows[*at].next;
  *at = window.rows[index].next;
}

FlowTable::Row* FlowTable::smallest_of_some(Window& window) {
  Row* smallest = nullptr;
  for (int i = 0; i < kLookedAt; ++i) {
    dice_ = dice_ * 6364136223846793005ull + 1442695040888963407ull;
    Row& row = window.rows[(dice_ >> 33) % window.rows.size()];
    if (smallest == nullptr || row.bytes() < smallest->bytes()) smallest = &row;
  }
  return smallest;
}

FlowTable::Row* FlowTable::row_of(Window& window, const FlowKey& key, SwitchNumber number, uint32_t in_port,
                                  uint32_t out_port) {
  const uint64_t hash = hash_of(key);
  uint32_t smallest = kEnd;
  size_t chained = 0;
  for (uint32_t at = window.heads[hash & (window.heads.size() - 1)]; at != kEnd; at = window.rows[at].next) {
    Row& row = window.rows[at];
    if (row.number == number && row.in_port == in_port && row.out_port == out_port && row.key == key) return &row;
    if (smallest == kEnd || row.bytes() < window.rows[smallest].bytes()) smallest = at;
    ++chained;
  }
  uint32_t index = 0;
  if (chained >= kChainMax) {
    index = smallest;
    unlink(window, index);
    ++replaced_;
  } else if (window.rows.size() < rows_max_) {
    index = static_cast<uint32_t>(window.rows.size());
    window.rows.emplace_back();
  } else {
    index = static_cast<uint32_t>(smallest_of_some(window) - window.rows.data());
    unlink(window, index);
    ++replaced_;
  }
  Row& row = window.rows[index];
  row = {};
  row.key = key;
  row.number = number;
  row.in_port = in_port;
  row.out_port = out_port;
  uint32_t& head = window.heads[hash & (window.heads.size() - 1)];
  row.next = head;
  head = index;
  grow(window);
  return &window.rows[index];
}

void FlowTable::add(SwitchNumber number, std::span<const FlowSample> samples, int64_t received_unix_ns) {
  if (samples.empty()) return;
  MutexLock lock(mutex_);
  Window& window = window_at(received_unix_ns);
  for (const FlowSample& sample : samples)
    if (sample.has_key) add(window, number, sample, received_unix_ns);
}

void FlowTable::add(Window& window, SwitchNumber number, const FlowSample& sample, int64_t received_unix_ns) {
  // What an exporter says of times counts where it can be: it reports a flow that ended a while ago.
  const int64_t oldest = received_unix_ns - static_cast<int64_t>(kWindows) * kWindowNs;
  auto sound = [&](int64_t unix_ns) { return unix_ns > oldest && unix_ns <= received_unix_ns; };
  const int64_t last = sound(sample.last_unix_ns) ? sample.last_unix_ns : received_unix_ns;
  const int64_t first = sound(sample.first_unix_ns) && sample.first_unix_ns <= last ? sample.first_unix_ns : last;
  Row& row =
      *row_of(window, sample.key, number, sample.in_port, sample.drop_reason >= 0 ? kPortDropped : sample.out_port);
  const bool is_out = sample.seen_at == SeenAt::kEgress;
  add_to(is_out ? row.out_bytes : row.in_bytes, sample.bytes);
  add_to(is_out ? row.out_packets : row.in_packets, sample.packets);
  if (sample.is_marked()) add_to(row.marked, sample.packets);
  row.first_unix_ns = row.samples == 0 ? first : std::min(row.first_unix_ns, first);
  row.last_unix_ns = std::max(row.last_unix_ns, last);
  row.traffic_class = sample.traffic_class;
  row.vlan = sample.vlan;
  ++row.samples;
}

FlowSighting FlowTable::sighting(const Row& row) const {
  FlowSighting seen;
  seen.key = row.key;
  seen.switch_name = directory_.switch_name(row.number);
  seen.in_number = row.in_port;
  seen.out_number = row.out_port;
  seen.in_port = directory_.port_name(row.number, row.in_port);
  seen.out_port = directory_.port_name(row.number, row.out_port);
  seen.bytes = row.bytes();
  seen.packets = std::max(row.in_packets, row.out_packets);
  seen.marked_packets = row.marked;
  seen.samples = row.samples;
  seen.first_unix_ns = row.first_unix_ns;
  seen.last_unix_ns = row.last_unix_ns;
  seen.vlan = row.vlan;
  seen.traffic_class = row.traffic_class;
  return seen;
}

// The same flow at the same place in several windows is one.
void FlowTable::Places::add(const Row& row) {
  const uint64_t hash = mixed(hash_of(row.key) + row.key.queue_pair + (static_cast<uint64_t>(row.number) << 32)) +
                        mixed(static_cast<uint64_t>(row.in_port) << 32 | row.out_port);
  const auto [first, last] = by_hash.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    Row& held = rows[at->second];
    if (held.number != row.number || held.in_port != row.in_port || held.out_port != row.out_port ||
        held.key != row.key)
      continue;
    add_to(held.in_bytes, row.in_bytes);
    add_to(held.out_bytes, row.out_bytes);
    add_to(held.in_packets, row.in_packets);
    add_to(held.out_packets, row.out_packets);
    add_to(held.marked, row.marked);
    held.samples += row.samples;
    held.first_unix_ns = std::min(held.first_unix_ns, row.first_unix_ns);
    held.last_unix_ns = std::max(held.last_unix_ns, row.last_unix_ns);
    held.vlan = row.vlan;
    held.traffic_class = row.traffic_class;
    return;
  }
  by_hash.emplace(hash, rows.size());
  rows.push_back(row);
}

void FlowTable::Places::add_found(std::span<const Row> found, const FlowQuery& query, SwitchNumber number) {
  const std::vector<IpAddress>& ends = query.either_end;
  auto is_end = [&](const IpAddress& address) { return std::binary_search(ends.begin(), ends.end(), address); };
  for (const Row& row : found) {
    if (number != kNoSwitch && number != row.number) continue;
    if (row.last_unix_ns < query.from_unix_ns || row.first_unix_ns > query.to_unix_ns) continue;
    if (query.source && !query.source->contains(row.key.source)) continue;
    if (query.destination && !query.destination->contains(row.key.destination)) continue;
    if (query.protocol != 0 && query.protocol != row.key.protocol) continue;
    if (query.source_port != 0 && query.source_port != row.key.source_port) continue;
    if (query.destination_port != 0 && query.destination_port != row.key.destination_port) continue;
    if (query.queue_pair != kNoQueuePair && query.queue_pair != row.key.queue_pair) continue;
    if (!ends.empty() && !is_end(row.key.source) && !is_end(row.key.destination)) continue;
    add(row);
  }
}

FlowTable::Found FlowTable::find(const FlowQuery& query, size_t limit) const {
  const SwitchNumber number = query.switch_name.empty() ? kNoSwitch : directory_.find(query.switch_name);
  if (number == kNoSwitch && !query.switch_name.empty()) return {};
  std::deque<std::shared_ptr<Window>> windows;
  std::vector<Row> newest;
  {
    MutexLock lock(mutex_);
    windows = windows_;
    if (!windows.empty()) newest = windows.back()->rows;
  }
  Places places;
  for (const std::shared_ptr<Window>& window : windows)
    places.add_found(window == windows.back() ? newest : window->rows, query, number);
  std::stable_sort(places.rows.begin(), places.rows.end(),
                   [](const Row& a, const Row& b) { return a.bytes() > b.bytes(); });
  Found found;
  for (const Row& row : places.rows) {
    if (!query.port.empty() && !directory_.is_port_called(row.number, row.in_port, query.port) &&
        !directory_.is_port_called(row.number, row.out_port, query.port))
      continue;
    if (found.total++ < limit) found.flows.push_back(sighting(row));
  }
  return found;
}

std::vector<FlowSighting> FlowTable::crossed(const FlowKey& key, int64_t from_unix_ns, int64_t to_unix_ns) const {
  Places places;
  {
    MutexLock lock(mutex_);
    const uint64_t hash = hash_of(key);
    for (const std::shared_ptr<Window>& window : windows_) {
      for (uint32_t at = window->heads[hash & (window->heads.size() - 1)]; at != kEnd; at = window->rows[at].next) {
        const Row& row = window->rows[at];
        if (row.last_unix_ns < from_unix_ns || row.first_unix_ns > to_unix_ns) continue;
        if (!is_same_tuple(row.key, key)) continue;
        if (key.queue_pair != kNoQueuePair && row.key.queue_pair != key.queue_pair) continue;
        places.add(row);
      }
    }
  }
  std::stable_sort(places.rows.begin(), places.rows.end(),
                   [](const Row& a, const Row& b) { return a.first_unix_ns < b.first_unix_ns; });
  std::vector<FlowSighting> all;
  all.reserve(places.rows.size());
  for (const Row& row : places.rows) all.push_back(sighting(row));
  return all;
}

size_t FlowTable::rows() const {
  MutexLock lock(mutex_);
  size_t rows = 0;
  for (const std::shared_ptr<Window>& window : windows_) rows += window->rows.size();
  return rows;
}

uint64_t FlowTable::replaced() const {
  MutexLock lock(mutex_);
  return replaced_;
}

}  // namespace lockstep
