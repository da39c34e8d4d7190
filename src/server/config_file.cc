#include "server/config_file.h"

#include <yaml-cpp/yaml.h>

#include <set>
#include <vector>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

// Thrown and caught within one file.
struct Wrong {
  int line;
  std::string what;
};

int line_of(const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? 1 : mark.line + 1;
}

const char* kind_of(const YAML::Node& node) {
  return node.IsMap() ? "a mapping" : node.IsSequence() ? "a list" : node.IsNull() ? "nothing" : "a text";
}

std::string one_value(const std::string& name, const YAML::Node& node) {
  const std::string where = format("%s takes one value", name.c_str());
  if (!node.IsScalar()) throw Wrong{line_of(node), format("%s, not %s", where.c_str(), kind_of(node))};
  if (has_control_characters(node.Scalar()) || !is_utf8(node.Scalar()))
    throw Wrong{line_of(node), where + " of one line"};
  return node.Scalar();
}

std::vector<std::string> values_of(const std::string& name, const YAML::Node& node, Flags::Takes takes) {
  if (takes == Flags::Takes::kSeveral && node.IsSequence()) {
    std::vector<std::string> values;
    for (const YAML::Node& item : node) values.push_back(one_value("each of " + name, item));
    return values;
  }
  std::string value = one_value(name, node);
  // In quotes it is a text; empty it would be what the command line means by the name alone.
  if (takes == Flags::Takes::kToggle && (node.Tag() == "!" || (value != "true" && value != "false")))
    throw Wrong{line_of(node), format("%s is true or false, not \"%.60s\"", name.c_str(), value.c_str())};
  return {std::move(value)};
}

Result<void> give_all(Flags& flags, const std::string& path, const YAML::Node& root) {
  if (root.IsNull()) return {};  // an empty file, or comments alone
  if (!root.IsMap()) throw Wrong{line_of(root), format("expected `name: value` lines, not %s", kind_of(root))};
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const std::string name = one_value("a name", entry.first);
    const std::string where = format("%s:%d", path.c_str(), line_of(entry.first));
    if (!seen.insert(name).second)
      throw Wrong{line_of(entry.first), format("%.60s is given twice", as_one_line(name).c_str())};
    const Flags::Takes takes = flags.takes(name);
    if (takes == Flags::Takes::kNone) return flags.give(name, {}, path, where);
    if (entry.second.IsNull()) throw Wrong{line_of(entry.first), name + " has no value"};
    LOCKSTEP_TRY(flags.give(name, values_of(name, entry.second, takes), path, where));
  }
  return {};
}

}  // namespace

Result<void> read_config_file(Flags& flags, const std::string& path) {
  const Result<std::string> text = read_file(path, Flags::kConfigBytesMax);
  if (!text.ok()) return prefixed(text.failure(), "lockstepd: --config: ");
  auto wrong = [&](int line, const std::string& what) {
    return Error{format("lockstepd: %s:%d: %s", path.c_str(), line, what.c_str())};
  };
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(*text);
    if (documents.empty()) return {};
    if (documents.size() > 1) return wrong(line_of(documents[1]), "a second document begins; one is read");
    return give_all(flags, path, documents[0]);
  } catch (const Wrong& found) {
    return wrong(found.line, found.what);
  } catch (const YAML::Exception& error) {
    return wrong(error.mark.is_null() ? 1 : error.mark.line + 1, "not YAML: " + as_one_line(error.msg));
  }
}

}  // namespace lockstep
