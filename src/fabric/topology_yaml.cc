// Our own topology file, and containerlab's: both are YAML, and containerlab's has a key `topology`.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

#include "base/text.h"
#include "fabric/topology_file.h"

namespace lockstep::fabric {
namespace {

constexpr int32_t kGpusMax = 1024;  // of a host

struct Wrong {
  int line;
  std::string what;
};

int line_of(const YAML::Node& node) {
  return node.Mark().is_null() ? 1 : node.Mark().line + 1;
}

class YamlTopology {
 public:
  YamlTopology(Declared& into, const TopologyFileLimits& limits) : into_(into), limits_(limits) {}

  void read(const YAML::Node& root) {
    if (!root.IsMap()) throw Wrong{line_of(root), "a topology is a mapping (switches, hosts, links)"};
    if (root["topology"].IsDefined()) return read_containerlab(root["topology"]);
    each_key(root, {{"version",
                     [](const YAML::Node& node) {
                       if (!node.IsScalar() || node.Scalar() != "1")
                         throw Wrong{line_of(node), "version: only 1 is known"};
                     }},
                    {"switches", [this](const YAML::Node& node) { read_switches(node); }},
                    {"hosts", [this](const YAML::Node& node) { read_hosts(node); }},
                    {"storage", [this](const YAML::Node& node) { read_storage(node); }},
                    {"nvlink_domains", [this](const YAML::Node& node) { nvlink_ = node; }},
                    {"links", [this](const YAML::Node& node) { links_ = node; }}});
    // Last, wherever they stand: they speak of the others.
    if (nvlink_.IsDefined() && !nvlink_.IsNull()) read_nvlink(nvlink_);
    if (links_.IsDefined() && !links_.IsNull()) read_links(links_);
  }

 private:
  using Readers = std::vector<std::pair<const char*, std::function<void(const YAML::Node&)>>>;

  static void each_key(const YAML::Node& map, const Readers& readers) {
    if (!map.IsMap()) throw Wrong{line_of(map), "a mapping was expected"};
    std::set<std::string> seen;
    for (const auto& entry : map) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const auto reader =
          std::find_if(readers.begin(), readers.end(), [&](const auto& one) { return key == one.first; });
      if (reader == readers.end()) {
        std::string known;
        for (const auto& one : readers) known += (known.empty() ? "" : ", ") + std::string(one.first);
        throw Wrong{line_of(entry.first),
                    format("\"%.40s\" is not known here; known: %s", as_one_line(key).c_str(), known.c_str())};
      }
      if (!seen.insert(key).second) throw Wrong{line_of(entry.first), key + " is there twice"};
      reader->second(entry.second);
    }
  }

  std::string name_in(const YAML::Node& node, const char* what) const {
    if (!node.IsDefined() || !node.IsScalar() || node.Scalar().empty())
      throw Wrong{line_of(node), format("%s: a name was expected", what)};
    const std::string name = node.Scalar();
    if (name.size() > limits_.name_bytes_max || has_control_characters(name))
      throw Wrong{line_of(node), format("%s: a name of at most %zu bytes without control characters was expected", what,
                                        limits_.name_bytes_max)};
    return name;
  }
  static double number_in(const YAML::Node& node, const char* what, double minimum, double maximum) {
    const std::optional<double> number = node.IsScalar() ? parse_double(node.Scalar()) : std::nullopt;
    if (!number || !(*number >= minimum && *number <= maximum))
      throw Wrong{line_of(node), format("%s: a number from %g to %g was expected", what, minimum, maximum)};
    return *number;
  }
  static int32_t whole_in(const YAML::Node& node, const char* what, int32_t minimum, int32_t maximum) {
    const double number = number_in(node, what, minimum, maximum);
    if (number != static_cast<int32_t>(number))
      throw Wrong{line_of(node), format("%s: a whole number was expected", what)};
    return static_cast<int32_t>(number);
  }
  static void require_list(const YAML::Node& node, const char* what) {
    if (!node.IsNull() && !node.IsSequence()) throw Wrong{line_of(node), format("%s: a list was expected", what)};
  }

  void add_node(DeclaredNode node, int line) {
    if (into_.nodes.size() >= limits_.nodes_max) throw Wrong{line, format("more than %zu nodes", limits_.nodes_max)};
    if (node.name.find(':') != std::string::npos) throw Wrong{line, "a name has no ':', which stands before a port"};
    if (!kinds_.emplace(node.name, node.kind).second) throw Wrong{line, node.name + " is there twice"};
    gpus_ += static_cast<size_t>(node.gpus);
    if (gpus_ > limits_.nodes_max) throw Wrong{line, format("more than %zu GPUs", limits_.nodes_max)};
    into_.nodes.push_back(std::move(node));
  }

  void read_switches(const YAML::Node& list) {
    require_list(list, "switches");
    for (const YAML::Node& each : list) {
      DeclaredNode node;
      if (each.IsScalar()) {
        node.name = name_in(each, "switches");
      } else {
        each_key(each, {{"name", [&](const YAML::Node& one) { node.name = name_in(one, "name"); }},
                        {"tier", [&](const YAML::Node& one) {
                           const std::optional<NodeKind> kind =
                               one.IsScalar() ? node_kind_of(one.Scalar()) : std::nullopt;
                           if (!kind || !is_switch(*kind)) throw Wrong{line_of(one), "tier: leaf, spine or switch"};
                           node.kind = *kind;
                         }}});
      }
      if (node.name.empty()) throw Wrong{line_of(each), "a switch without a name"};
      add_node(std::move(node), line_of(each));
    }
  }

  void read_hosts(const YAML::Node& list) {
    require_list(list, "hosts");
    for (const YAML::Node& each : list) {
      DeclaredNode node;
      node.kind = NodeKind::kHost;
      YAML::Node nics;
      if (each.IsScalar()) {
        node.name = name_in(each, "hosts");
      } else {
        each_key(each,
                 {{"name", [&](const YAML::Node& one) { node.name = name_in(one, "name"); }},
                  {"gpus", [&](const YAML::Node& one) { node.gpus = whole_in(one, "gpus", 0, kGpusMax); }},
                  {"nvlink", [&](const YAML::Node& one) { node.nvlink = one.IsScalar() && one.Scalar() == "true"; }},
                  {"nics", [&](const YAML::Node& one) { nics.reset(one); }}});
      }
      if (node.name.empty()) throw Wrong{line_of(each), "a host without a name"};
      const std::string name = node.name;
      const int32_t gpus = node.gpus;
      add_node(std::move(node), line_of(each));
      if (nics.IsDefined() && !nics.IsNull()) read_nics(name, gpus, nics);
    }
  }

  void read_nics(const std::string& host, int32_t gpus, const YAML::Node& list) {
    require_list(list, "nics");
    for (const YAML::Node& each : list) {
      if (into_.nics.size() >= limits_.nodes_max)
        throw Wrong{line_of(each), format("more than %zu adapters", limits_.nodes_max)};
      DeclaredNic nic;
      nic.nic.node = host;
      each_key(each, {{"device", [&](const YAML::Node& one) { nic.nic.port = name_in(one, "device"); }},
                      {"gpu", [&](const YAML::Node& one) { nic.gpu = whole_in(one, "gpu", 0, std::max(0, gpus - 1)); }},
                      {"rail", [&](const YAML::Node& one) { nic.rail = whole_in(one, "rail", 0, kGpusMax); }},
                      {"address", [&](const YAML::Node& one) { nic.address = name_in(one, "address"); }}});
      if (nic.nic.port.empty()) throw Wrong{line_of(each), "an adapter without a device"};
      into_.nics.push_back(std::move(nic));
    }
  }

  void read_storage(const YAML::Node& list) {
    require_list(list, "storage");
    for (const YAML::Node& each : list) {
      DeclaredNode node;
      node.kind = NodeKind::kStorage;
      if (each.IsScalar()) {
        node.name = name_in(each, "storage");
      } else {
        each_key(each, {{"name", [&](const YAML::Node& one) { node.name = name_in(one, "name"); }},
                        {"address", [&](const YAML::Node& one) { node.address = name_in(one, "address"); }}});
      }
      if (node.name.empty()) throw Wrong{line_of(each), "storage without a name"};
      add_node(std::move(node), line_of(each));
    }
  }

  void read_nvlink(const YAML::Node& list) {
    require_list(list, "nvlink_domains");
    for (const YAML::Node& each : list) {
      DeclaredNvlink domain;
      each_key(each, {{"name", [&](const YAML::Node& one) { domain.name = name_in(one, "name"); }},
                      {"hosts", [&](const YAML::Node& one) {
                         require_list(one, "hosts");
                         for (const YAML::Node& host : one) {
                           domain.hosts.push_back(name_in(host, "hosts"));
                           // An alias makes many of few bytes.
                           if (++nvlink_hosts_ > limits_.nodes_max)
                             throw Wrong{line_of(host), format("more than %zu hosts in domains", limits_.nodes_max)};
                         }
                       }}});
      if (domain.name.empty()) throw Wrong{line_of(each), "a domain without a name"};
      if (!kinds_.emplace(domain.name, NodeKind::kNvlink).second)
        throw Wrong{line_of(each), domain.name + " is there twice"};
      into_.nvlink_domains.push_back(std::move(domain));
    }
  }

  Endpoint endpoint_in(const YAML::Node& node) const {
    const std::string text = name_in(node, "links");
    const size_t colon = text.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == text.size())
      throw Wrong{line_of(node), format("\"%.80s\": NODE:PORT was expected", text.c_str())};
    Endpoint endpoint{text.substr(0, colon), text.substr(colon + 1)};
    const auto kind = kinds_.find(endpoint.node);
    if (kind == kinds_.end() || kind->second == NodeKind::kNvlink)
      throw Wrong{line_of(node), format("\"%.80s\" is no switch, host or storage of this file", endpoint.node.c_str())};
    return endpoint;
  }

  void read_links(const YAML::Node& list) {
    require_list(list, "links");
    for (const YAML::Node& each : list) {
      if (into_.links.size() >= limits_.links_max)
        throw Wrong{line_of(each), format("more than %zu links", limits_.links_max)};
      DeclaredLink link;
      YAML::Node ends = each;
      if (each.IsMap()) {
        ends.reset(YAML::Node());
        Endpoint* const sides[] = {&link.a, &link.b};
        each_key(each, {{"a", [&](const YAML::Node& one) { *sides[0] = endpoint_in(one); }},
                        {"b", [&](const YAML::Node& one) { *sides[1] = endpoint_in(one); }},
                        {"endpoints", [&](const YAML::Node& one) { ends.reset(one); }},
                        {"gbit", [&](const YAML::Node& one) { link.gbit_s = number_in(one, "gbit", 0, 1e6); }}});
      }
      if (link.a.node.empty() && link.b.node.empty()) {
        if (!ends.IsSequence() || ends.size() != 2)
          throw Wrong{line_of(each), "a link has two ends: [NODE:PORT, NODE:PORT]"};
        link.a = endpoint_in(ends[0]);
        link.b = endpoint_in(ends[1]);
      }
      if (link.a.node.empty() || link.b.node.empty()) throw Wrong{line_of(each), "a link has two ends"};
      if (link.a.node == link.b.node) throw Wrong{line_of(each), "a link from " + link.a.node + " to itself"};
      into_.links.push_back(std::move(link));
    }
  }

  // What containerlab says besides (images, binds, ...) is its own business.
  void read_containerlab(const YAML::Node& topology) {
    if (!topology.IsMap()) throw Wrong{line_of(topology), "topology: a mapping with nodes and links was expected"};
    const YAML::Node nodes = topology["nodes"], links = topology["links"];
    if (!nodes.IsDefined() || !nodes.IsMap()) throw Wrong{line_of(topology), "topology: nodes is missing"};
    for (const auto& entry : nodes) {
      DeclaredNode node;
      node.name = name_in(entry.first, "nodes");
      auto word = [&](const char* key) {
        const YAML::Node value = entry.second.IsMap() ? entry.second[key] : YAML::Node();
        return value.IsDefined() && value.IsScalar() ? value.Scalar() : std::string();
      };
      const std::string kind = word("kind"), group = word("group");
      const std::optional<NodeKind> said = node_kind_of(group);
      if (said && (is_switch(*said) || *said == NodeKind::kStorage || *said == NodeKind::kHost))
        node.kind = *said;
      else if (kind == "linux" || group == "server" || group == "servers")
        node.kind = NodeKind::kHost;
      if (kind == "bridge" || kind == "ovs-bridge") node.kind = NodeKind::kSwitch;
      add_node(std::move(node), line_of(entry.first));
    }
    if (!links.IsDefined() || links.IsNull()) return;
    require_list(links, "links");
    for (const YAML::Node& each : links) {
      if (into_.links.size() >= limits_.links_max)
        throw Wrong{line_of(each), format("more than %zu links", limits_.links_max)};
      const YAML::Node ends = each.IsMap() ? each["endpoints"] : each;
      if (!ends.IsDefined() || !ends.IsSequence() || ends.size() != 2)
        throw Wrong{line_of(each), "a link has two endpoints: [\"NODE:PORT\", \"NODE:PORT\"]"};
      DeclaredLink link{endpoint_in(ends[0]), endpoint_in(ends[1])};
      if (link.a.node != link.b.node) into_.links.push_back(std::move(link));
    }
  }

  Declared& into_;
  const TopologyFileLimits& limits_;
  std::unordered_map<std::string, NodeKind> kinds_;  // of this file
  size_t gpus_ = 0, nvlink_hosts_ = 0;
  YAML::Node nvlink_, links_;
};

}  // namespace

Result<void> parse_topology_yaml(std::string_view text, std::string_view file, Declared& into,
                                 const TopologyFileLimits& limits) {
  auto at = [&](int line, const std::string& what) {
    return Error{format("%.*s:%d: %s", static_cast<int>(file.size()), file.data(), line, what.c_str())};
  };
  if (text.size() > limits.yaml_bytes_max)
    return at(1, format("%zu bytes are too many for YAML (limit %zu)", text.size(), limits.yaml_bytes_max));
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (root.IsNull()) return at(1, "the file is empty");
    Declared read;
    YamlTopology(read, limits).read(root);
    const Result<void> appended = append(std::move(read), into, limits);
    return appended.ok() ? appended : at(1, appended.error());
  } catch (const Wrong& wrong) {
    return at(wrong.line, as_one_line(wrong.what));
  } catch (const YAML::Exception& error) {
    return at(error.mark.is_null() ? 1 : error.mark.line + 1, "not YAML: " + as_one_line(error.msg));
  }
}

}  // namespace lockstep::fabric
