// `lldpctl -f json` of one host, whose name is that of the file, or of many: {"node-01": {"lldp": ...}, ...}.
#include <unordered_set>

#include "base/json_reader.h"
#include "base/text.h"
#include "fabric/topology_file.h"

namespace lockstep::fabric {
namespace {

class LldpAnswer {
 public:
  LldpAnswer(Declared& into, const TopologyFileLimits& limits) : into_(into), limits_(limits) {}

  // "" or what is wrong with it.
  std::string read_host(const std::string& host, const JsonValue& lldp) {
    if (!usable(host)) return "the name of a host is too long or has control characters";
    const JsonValue interfaces = lldp["interface"];
    if (!add_node(host, NodeKind::kHost)) return too_many_nodes();
    // A list of objects with one member each, or, of one interface, that object alone.
    if (interfaces.is_object()) return read_interfaces(host, interfaces);
    for (const JsonValue& each : interfaces)
      if (std::string wrong = read_interfaces(host, each); !wrong.empty()) return wrong;
    return {};
  }

 private:
  bool usable(std::string_view name) const {
    return !name.empty() && name.size() <= limits_.name_bytes_max && !has_control_characters(name) &&
           name.find(':') == std::string_view::npos;
  }

  // Every host names its neighbours: each of them is there once.
  bool add_node(const std::string& name, NodeKind kind) {
    if (!names_.insert(name).second) return true;
    if (into_.nodes.size() >= limits_.nodes_max) return false;
    into_.nodes.push_back({.name = name, .kind = kind});
    return true;
  }
  std::string too_many_nodes() const { return format("more than %zu nodes", limits_.nodes_max); }

  std::string read_interfaces(const std::string& host, const JsonValue& object) {
    for (const JsonValue& interface : object) {
      if (into_.links.size() >= limits_.links_max) return format("more than %zu links", limits_.links_max);
      const std::string netdev = interface.key();
      const JsonValue chassis = interface["chassis"], port = interface["port"];
      std::string name;
      // Named: {"leaf-1": {"id": ...}}; without a name: {"id": {"type": "mac", "value": "..."}}.
      for (const JsonValue& each : chassis)
        if (each.is_object() && each.key() != "id") name = each.key();
      if (name.empty()) name = value_of(chassis["id"]);
      std::string to = value_of(port["id"]);
      const std::string type = port["id"]["type"].string().value_or("");
      if (const std::string said = port["descr"].string().value_or(""); type == "mac" && !said.empty()) to = said;
      // An address as a name has colons.
      for (char& c : name) c = c == ':' ? '-' : c;
      if (!usable(netdev) || !usable(name) || to.empty() || to.size() > limits_.name_bytes_max ||
          has_control_characters(to))
        return format("interface \"%.40s\": neither a neighbour's name nor its port can be read",
                      as_one_line(netdev).c_str());
      if (!add_node(name, NodeKind::kSwitch)) return too_many_nodes();
      into_.links.push_back({{host, netdev}, {name, to}});
    }
    return {};
  }

  static std::string value_of(const JsonValue& id) { return id["value"].string().value_or(""); }

  Declared& into_;
  const TopologyFileLimits& limits_;
  std::unordered_set<std::string> names_;
};

int line_of_byte(std::string_view text, size_t byte) {
  int line = 1;
  for (size_t i = 0; i < byte && i < text.size(); ++i) line += text[i] == '\n' ? 1 : 0;
  return line;
}

std::string stem_of(std::string_view file) {
  if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  if (const size_t dot = file.rfind(".json"); dot != std::string_view::npos && dot > 0) file = file.substr(0, dot);
  return std::string(file);
}

}  // namespace

Result<void> parse_lldpctl(std::string_view text, std::string_view file, Declared& into,
                           const TopologyFileLimits& limits) {
  auto wrong = [&](int line, const std::string& what) {
    return Error{format("%.*s:%d: %s", static_cast<int>(file.size()), file.data(), line, as_one_line(what).c_str())};
  };
  size_t wrong_at = 0;
  const Result<JsonDocument> document =
      JsonDocument::parse(text, {.bytes_max = limits.yaml_bytes_max, .values_max = 8'000'000}, &wrong_at);
  // "byte 120: ..." is for programs; an editor knows lines.
  if (!document.ok()) return wrong(line_of_byte(text, wrong_at), document.error());
  Declared read;
  LldpAnswer answer(read, limits);
  const JsonValue root = document->root();
  bool any = false;
  for (const JsonValue& each : root) {
    const bool is_one_host = each.key() == "lldp";
    const JsonValue lldp = is_one_host ? each : each["lldp"];
    const int line = line_of_byte(text, static_cast<size_t>(each.json().data() - text.data()));
    if (!lldp.is_object()) return wrong(line, "\"lldp\" was expected, or hosts with \"lldp\" each");
    if (std::string problem = answer.read_host(is_one_host ? stem_of(file) : each.key(), lldp); !problem.empty())
      return wrong(line, problem);
    any = true;
  }
  if (!any) return wrong(1, "no \"lldp\" in it");
  const Result<void> appended = append(std::move(read), into, limits);
  return appended.ok() ? appended : wrong(1, appended.error());
}

}  // namespace lockstep::fabric
