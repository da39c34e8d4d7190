// Outputs of the InfiniBand tools, line by line: who is connected to whom (ibnetdiscover), and where each switch sends
// what goes to which LID (dump_lfts, ibroute).
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "fabric/topology_file.h"

namespace lockstep::fabric {
namespace {

constexpr uint16_t kUnicastLidMax = 0xBFFF;

Error at(std::string_view file, size_t line, const std::string& what) {
  return Error{format("%.*s:%zu: %s", static_cast<int>(file.size()), file.data(), line, as_one_line(what).c_str())};
}

// What stands between the next two quotes; the rest of the line behind them. False: there are none.
bool take_quoted(std::string_view& line, std::string_view* out) {
  const size_t open = line.find('"');
  const size_t close = open == std::string_view::npos ? open : line.find('"', open + 1);
  if (close == std::string_view::npos) return false;
  *out = line.substr(open + 1, close - open - 1);
  line.remove_prefix(close + 1);
  return true;
}

std::optional<uint64_t> number_behind(std::string_view line, std::string_view word) {
  const size_t found = line.find(word);
  if (found == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(found + word.size());
  rest = rest.substr(0, rest.find_first_not_of("0123456789"));
  return parse_uint(rest);
}

// "4xNDR": lanes and what each carries.
double gbit_of(std::string_view line) {
  constexpr std::pair<std::string_view, double> kRates[] = {{"SDR", 2.5},  {"DDR", 5},   {"QDR", 10},
                                                            {"FDR10", 10}, {"FDR", 14},  {"EDR", 25},
                                                            {"HDR", 50},   {"NDR", 100}, {"XDR", 200}};
  for (const auto& [name, rate] : kRates) {
    const size_t found = line.rfind("x" + std::string(name));
    if (found == std::string_view::npos || found == 0) continue;
    size_t begin = found;
    while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
    const std::optional<uint64_t> lanes = parse_uint(line.substr(begin, found - begin));
    if (lanes && *lanes >= 1 && *lanes <= 12) return static_cast<double>(*lanes) * rate;
  }
  return 0;
}

// "0x7cfe", "S-7cfe", "7cfe": the digits.
std::string guid_of(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("S-") || text.starts_with("H-")) text.remove_prefix(2);
  std::string digits;
  for (const char c : text.substr(0, std::min<size_t>(16, text.find_first_not_of("0123456789abcdefABCDEF"))))
    digits += static_cast<char>(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
  const size_t zeros = digits.find_first_not_of('0');
  return zeros == std::string::npos ? "" : digits.substr(zeros);
}

class Discovered {
 public:
  Discovered(std::string_view file, const TopologyFileLimits& limits) : file_(file), limits_(limits) {}

  Result<void> read(std::string_view text) {
    size_t number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++number;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with("Switch") || line.starts_with("Ca") || line.starts_with("Rt"))
        LOCKSTEP_TRY(begin_node(line, number));
      else if (line.starts_with('['))
        LOCKSTEP_TRY(read_port(line, number));
      else if (!trim(line).empty() && !line.starts_with('#') && line.find('=') == std::string_view::npos)
        return at(file_, number, "neither a node, nor a port of one, nor NAME=VALUE");
    }
    return {};
  }

  Result<void> put(Declared& into) {
    std::unordered_set<std::string> hosts;
    for (const auto& [id, node] : nodes_) {
      if (node.is_switch) {
        into.switch_names_by_guid[guid_of(id)] = node.name.node;
        into.nodes.push_back({.name = node.name.node, .kind = NodeKind::kSwitch});
      } else if (hosts.insert(node.name.node).second) {
        into.nodes.push_back({.name = node.name.node, .kind = NodeKind::kHost});
      }
    }
    for (const Cable& cable : cables_) {
      const auto from = nodes_.find(cable.from), to = nodes_.find(cable.to);
      if (to == nodes_.end())
        return at(file_, cable.line,
                  format("a port leads to \"%.60s\", which the file does not have", cable.to.c_str()));
      if (from == to) continue;
      into.links.push_back({end_of(from->second, cable.from_port), end_of(to->second, cable.to_port), cable.gbit_s});
      if (!from->second.is_switch && cable.lid != 0)
        into.lids.emplace_back(end_of(from->second, cable.from_port), cable.lid);
    }
    return {};
  }

 private:
  struct Known {
    Endpoint name;  // of a switch: node alone
    bool is_switch = false;
  };
  struct Cable {
    std::string from, to;
    std::string from_port, to_port;
    double gbit_s = 0;
    uint16_t lid = 0;
    size_t line = 0;
  };

  static Endpoint end_of(const Known& node, const std::string& port) {
    if (node.is_switch) return {node.name.node, port};
    return port == "1" ? node.name : Endpoint{node.name.node, node.name.port + "/" + port};
  }

  Result<void> begin_node(std::string_view line, size_t number) {
    const bool is_switch = line.starts_with("Switch");
    std::string_view rest = line, id, description;
    if (!take_quoted(rest, &id) || id.empty() || id.size() > limits_.name_bytes_max)
      return at(file_, number, "a node without its name in quotes");
    const bool is_described = take_quoted(rest, &description) && !trim(description).empty();
    if (description.size() > limits_.name_bytes_max || has_control_characters(description))
      return at(file_, number, "a description that is too long or has control characters");
    if (nodes_.size() >= limits_.nodes_max) return at(file_, number, format("more than %zu nodes", limits_.nodes_max));
    Known node;
    node.is_switch = is_switch;
    if (!is_described)
      node.name = is_switch ? Endpoint{std::string(id), ""} : Endpoint{std::string(id), "nic"};
    else
      node.name = is_switch ? Endpoint{switch_of_description(description), ""} : nic_of_description(description);
    // Two switches that nobody named are told apart by their numbers.
    if (node.name.node.empty() || (is_switch && !switch_names_.insert(node.name.node).second))
      node.name.node = std::string(id);
    std::replace(node.name.node.begin(), node.name.node.end(), ':', '_');
    at_ = std::string(id);
    if (!nodes_.emplace(at_, std::move(node)).second) return at(file_, number, at_ + " is there twice");
    return {};
  }

  // [19]	"S-7cfe90"[2]		# "MF0;leaf-2" lid 3 4xNDR
  // [1](7cfe91) 	"S-7cfe90"[1]		# lid 12 lmc 0 "MF0;leaf-1" lid 5 4xNDR
  Result<void> read_port(std::string_view line, size_t number) {
    if (at_.empty()) return at(file_, number, "a port before any node");
    if (cables_.size() >= 2 * limits_.links_max)
      return at(file_, number, format("more than %zu links", limits_.links_max));
    auto port_in = [](std::string_view text) -> std::optional<uint64_t> {
      const size_t close = text.find(']');
      if (!text.starts_with('[') || close == std::string_view::npos) return std::nullopt;
      const std::optional<uint64_t> port = parse_uint(text.substr(1, close - 1));
      return port && *port <= 254 ? port : std::nullopt;
    };
    Cable cable;
    const std::optional<uint64_t> own = port_in(line);
    std::string_view rest = line, to;
    if (!own || !take_quoted(rest, &to)) return at(file_, number, "a port is [NUMBER] \"NODE\"[NUMBER]");
    const std::optional<uint64_t> theirs = port_in(rest);
    if (!theirs) return at(file_, number, "a port is [NUMBER] \"NODE\"[NUMBER]");
    cable.from = at_;
    cable.to = std::string(to);
    cable.from_port = std::to_string(*own);
    cable.to_port = std::to_string(*theirs);
    const size_t comment = rest.find('#');
    if (comment != std::string_view::npos) {
      cable.gbit_s = gbit_of(rest.substr(comment));
      const std::optional<uint64_t> lid = number_behind(rest.substr(comment), "lid ");
      if (lid && *lid <= kUnicastLidMax) cable.lid = static_cast<uint16_t>(*lid);
    }
    cable.line = number;
    cables_.push_back(std::move(cable));
    return {};
  }

  const std::string_view file_;
  const TopologyFileLimits& limits_;
  std::string at_;
  std::map<std::string, Known> nodes_;  // by id: "S-7cfe90"
  std::unordered_set<std::string> switch_names_;
  std::vector<Cable> cables_;  // from both ends
};

}  // namespace

Result<void> parse_ibnetdiscover(std::string_view text, std::string_view file, Declared& into,
                                 const TopologyFileLimits& limits) {
  Discovered discovered(file, limits);
  LOCKSTEP_TRY(discovered.read(text));
  Declared read;
  LOCKSTEP_TRY(discovered.put(read));
  const Result<void> appended = append(std::move(read), into, limits);
  return appended.ok() ? appended : at(file, 1, appended.error());
}

namespace {

// What dump_lfts and ibdiagnet write: a table for each switch, by LID the port.
class ForwardingTables {
 public:
  ForwardingTables(std::string_view file, const TopologyFileLimits& limits) : file_(file), limits_(limits) {}

  Result<void> read(std::string_view text, const Declared& known) {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = trim(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++number_;
      if (line.starts_with("Unicast lids"))
        LOCKSTEP_TRY(begin_table(line, known));
      else if (line.starts_with("0x"))  // else heads of columns, and how many there are
        LOCKSTEP_TRY(add_entry(line));
    }
    return {};
  }

  void put(Declared& into) {
    for (auto& [name, ports] : tables_) into.forwarding[name] = std::move(ports);
    for (const auto& [nic, lid] : lids_) into.lids.emplace_back(Endpoint{nic.first, nic.second}, lid);
  }

 private:
  Result<void> begin_table(std::string_view line, const Declared& known) {
    const size_t guid_at = line.find("guid ");
    if (guid_at == std::string_view::npos) return at(file_, number_, "a table without the guid of its switch");
    const std::string guid = guid_of(line.substr(guid_at + 5, 18));
    const size_t open = line.find('(', guid_at), close = line.rfind(')');
    const auto named = known.switch_names_by_guid.find(guid);
    std::string name;
    if (named != known.switch_names_by_guid.end())
      name = named->second;
    else if (open != std::string_view::npos && close != std::string_view::npos && close > open)
      name = switch_of_description(line.substr(open + 1, close - open - 1));
    if (name.empty()) name = "S-" + guid;
    if (name.size() > limits_.name_bytes_max || has_control_characters(name))
      return at(file_, number_, "a switch whose name is too long or has control characters");
    if (tables_.size() >= limits_.nodes_max) return at(file_, number_, "too many switches");
    table_ = &tables_[name];
    return {};
  }

  Result<void> add_entry(std::string_view line) {
    if (table_ == nullptr) return at(file_, number_, "an entry before any switch");
    const auto [lid, digits] = read_lid(line);
    std::string_view rest = trim(line.substr(digits));
    if (rest.starts_with(':')) rest = trim(rest.substr(1));  // as ibdiagnet writes it
    const std::optional<uint64_t> port = parse_uint(rest.substr(0, rest.find_first_not_of("0123456789")));
    if (digits == 2 || lid == 0 || lid > kUnicastLidMax || !port || *port > 255)
      return at(file_, number_, "an entry is LID PORT : what it is");
    if (table_->size() <= lid) {
      entries_ += lid + 1 - table_->size();
      if (entries_ > limits_.forwarding_entries_max)
        return at(file_, number_, format("more than %zu entries", limits_.forwarding_entries_max));
      table_->resize(lid + 1, 0);
    }
    (*table_)[lid] = static_cast<uint8_t>(*port);
    note_adapter(line, static_cast<uint16_t>(lid));
    return {};
  }

  // The number behind "0x", and where it ends.
  static std::pair<uint32_t, size_t> read_lid(std::string_view line) {
    uint32_t lid = 0;
    size_t digits = 2;
    for (; digits < line.size() && digits < 7; ++digits) {
      const char c = line[digits];
      const int value = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (value < 0) break;
      lid = lid * 16 + static_cast<uint32_t>(value);
    }
    return {lid, digits};
  }

  void note_adapter(std::string_view line, uint16_t lid) {
    const size_t quote = line.find('\''), unquote = line.rfind('\'');
    if (line.find("Channel Adapter") == std::string_view::npos || quote == std::string_view::npos || unquote <= quote)
      return;
    const Endpoint nic =
        nic_of_description(line.substr(quote + 1, std::min(unquote - quote - 1, limits_.name_bytes_max)));
    if (!has_control_characters(nic.node + nic.port)) lids_.emplace(std::pair(nic.node, nic.port), lid);
  }

  const std::string_view file_;
  const TopologyFileLimits& limits_;
  size_t number_ = 0;  // of the line
  size_t entries_ = 0;
  std::map<std::string, std::vector<uint8_t>> tables_;
  std::vector<uint8_t>* table_ = nullptr;  // whose entries are being read
  std::map<std::pair<std::string, std::string>, uint16_t> lids_;
};

}  // namespace

Result<void> parse_forwarding(std::string_view text, std::string_view file, Declared& into,
                              const TopologyFileLimits& limits) {
  ForwardingTables tables(file, limits);
  LOCKSTEP_TRY(tables.read(text, into));
  tables.put(into);
  return {};
}

}  // namespace lockstep::fabric
