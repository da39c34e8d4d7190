#include "fabric/topology_file.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::fabric {

Result<void> parse_topology(std::string_view text, std::string_view file_name, Declared& into,
                            const TopologyFileLimits& limits) {
  const std::string file = as_one_line(file_name);
  if (text.size() > limits.bytes_max)
    return Error{format("%s:1: %zu bytes are too many for a topology file (limit %zu)", file.c_str(), text.size(),
                        limits.bytes_max)};
  const std::string_view head = text.substr(0, 64 << 10);
  const std::string_view first = trim(head);
  if (first.starts_with('{') && head.find("\"lldp\"") != std::string_view::npos)
    return parse_lldpctl(text, file, into, limits);
  if (head.find("Unicast lids [") != std::string_view::npos) return parse_forwarding(text, file, into, limits);
  if (head.find("switchguid=") != std::string_view::npos || head.find("caguid=") != std::string_view::npos)
    return parse_ibnetdiscover(text, file, into, limits);
  return parse_topology_yaml(text, file, into, limits);
}

namespace {

template <typename Item>
void move_behind(std::vector<Item>& items, std::vector<Item>& into) {
  into.insert(into.end(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
}

size_t gpus_of(const Declared& declared) {
  size_t gpus = 0;
  for (const DeclaredNode& node : declared.nodes) gpus += static_cast<size_t>(node.gpus);
  return gpus;
}

}  // namespace

Result<void> append(Declared&& declared, Declared& into, const TopologyFileLimits& limits) {
  const size_t gpus = gpus_of(declared);
  const std::tuple<size_t, size_t, const char*> counts[] = {
      {into.nodes.size() + declared.nodes.size(), limits.nodes_max, "nodes"},
      {into.nics.size() + declared.nics.size(), limits.nodes_max, "adapters"},
      {into.gpus + gpus, limits.nodes_max, "GPUs"},
      {into.links.size() + declared.links.size(), limits.links_max, "links"}};
  for (const auto& [count, maximum, what] : counts)
    if (count > maximum) return Error{format("with this file there are more than %zu %s", maximum, what)};
  into.gpus += gpus;
  move_behind(declared.nodes, into.nodes);
  move_behind(declared.nics, into.nics);
  move_behind(declared.links, into.links);
  move_behind(declared.nvlink_domains, into.nvlink_domains);
  move_behind(declared.lids, into.lids);
  for (auto& [name, ports] : declared.forwarding) into.forwarding[name] = std::move(ports);
  for (auto& [guid, name] : declared.switch_names_by_guid) into.switch_names_by_guid[guid] = std::move(name);
  return {};
}

Result<Declared> read_topology_files(const std::vector<std::string>& paths) {
  const TopologyFileLimits limits;
  Declared declared;
  for (const std::string& path : paths) {
    const Result<std::string> text = read_file(path, limits.bytes_max);
    if (!text.ok()) return prefixed(text.failure(), "--topology: ");
    const Result<void> parsed = parse_topology(*text, path, declared, limits);
    if (!parsed.ok()) return prefixed(parsed.failure(), "--topology ");
  }
  return declared;
}

std::string switch_of_description(std::string_view description) {
  description = trim(description);
  // "MF0;leaf-1:MSB7700/U1": what a managed switch makes of its name.
  if (const size_t semicolon = description.find(';'); semicolon != std::string_view::npos)
    description.remove_prefix(semicolon + 1);
  return std::string(trim(description.substr(0, description.find(':'))));
}

Endpoint nic_of_description(std::string_view description) {
  description = trim(description);
  const size_t blank = description.find(' ');
  if (blank == std::string_view::npos) return {std::string(description), "nic"};
  const std::string_view device = trim(description.substr(blank + 1));
  std::string port(device.substr(0, device.find(' ')));
  // The name that drivers gave before rdma-core did: the first adapter is HCA-1.
  if (port.starts_with("HCA-")) {
    const std::optional<int64_t> number = parse_int(std::string_view(port).substr(4));
    if (number && *number >= 1 && *number <= 64) port = format("mlx5_%lld", static_cast<long long>(*number - 1));
  }
  return {std::string(description.substr(0, blank)), std::move(port)};
}

}  // namespace lockstep::fabric
