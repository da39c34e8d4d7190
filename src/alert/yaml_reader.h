// Walking YAML files of people (rules, receivers): every key known and once, and an error that names its line. For the .cc
// files of this folder that parse one.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "net/tls.h"

namespace lockstep::yaml {

// Thrown and caught within one parse.
struct Wrong {
  int line;
  std::string what;
};

inline int line_of(const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? 1 : mark.line + 1;
}

inline std::string shown(std::string_view text) {
  return as_one_line(text.substr(0, 60));
}

// Any text, over several lines too.
inline const std::string& any_scalar(const YAML::Node& node, std::string_view what) {
  if (!node.IsScalar() || !is_utf8(node.Scalar()) || node.Scalar().find('\0') != std::string::npos)
    throw Wrong{line_of(node), format("%.*s must be one text", static_cast<int>(what.size()), what.data())};
  return node.Scalar();
}

inline const std::string& scalar(const YAML::Node& node, std::string_view what) {
  const std::string& text = any_scalar(node, what);
  if (has_control_characters(text))
    throw Wrong{line_of(node), format("%.*s must be one line", static_cast<int>(what.size()), what.data())};
  return text;
}

inline bool flag(const YAML::Node& node, const char* what) {
  const std::string& text = scalar(node, what);
  if (text != "true" && text != "false") throw Wrong{line_of(node), format("%s must be true or false", what)};
  return text == "true";
}

inline std::string absolute_path(const YAML::Node& node, const char* what) {
  const std::string& path = scalar(node, what);
  if (!path.starts_with('/')) throw Wrong{line_of(node), format("%s must be an absolute path", what)};
  return path;
}

// Of a receiver or an action: it stands in labels, ids and paths.
inline std::string plain_name(const YAML::Node& node) {
  const std::string& name = scalar(node, "name");
  const bool plain =
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
  if (!plain || name.empty() || name.size() > 60)
    throw Wrong{line_of(node), "name must be letters, digits, _ and -, at most 60"};
  return name;
}

// known empty: any key.
inline void each_key(const YAML::Node& node, const char* what, const std::vector<std::string>& known,
                     const std::function<void(const std::string& key, const YAML::Node& value)>& take) {
  if (!node.IsMap()) throw Wrong{line_of(node), format("%s must be a mapping (key: value)", what)};
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string& key = scalar(entry.first, "a key");
    if (!seen.insert(key).second)
      throw Wrong{line_of(entry.first), format("\"%s\" is given twice in %s", shown(key).c_str(), what)};
    if (!known.empty() && std::find(known.begin(), known.end(), key) == known.end()) {
      const std::optional<std::string> near = did_you_mean(key, known);
      throw Wrong{line_of(entry.first), format("\"%s\" is not known in %s%s", shown(key).c_str(), what,
                                               near ? ("; did you mean " + *near + "?").c_str() : "")};
    }
    take(key, entry.second);
  }
}

inline void each_item(const YAML::Node& node, const char* what, const std::function<void(const YAML::Node&)>& take) {
  if (!node.IsSequence()) throw Wrong{line_of(node), format("%s must be a list", what)};
  for (const auto& item : node) take(item);
}

inline TlsOptions tls_options(const YAML::Node& node) {
  TlsOptions tls;
  each_key(node, "tls", {"ca_file", "cert_file", "key_file", "server_name"},
           [&](const std::string& key, const YAML::Node& value) {
             if (key == "ca_file") tls.ca_file = absolute_path(value, "ca_file");
             if (key == "cert_file") tls.certificate_file = absolute_path(value, "cert_file");
             if (key == "key_file") tls.key_file = absolute_path(value, "key_file");
             if (key == "server_name") tls.server_name = scalar(value, "server_name");
           });
  if (tls.certificate_file.empty() != tls.key_file.empty())
    throw Wrong{line_of(node), "cert_file and key_file go together"};
  return tls;
}

// "line 7: ..." on anything that is wrong.
inline Result<void> read(std::string_view text, const std::function<void(const YAML::Node& root)>& take) {
  try {
    take(YAML::Load(std::string(text)));
    return {};
  } catch (const Wrong& wrong) {
    return Error{format("line %d: %s", wrong.line, wrong.what.c_str())};
  } catch (const YAML::Exception& error) {
    return Error{format("line %d: not YAML: %s", error.mark.is_null() ? 1 : error.mark.line + 1,
                        as_one_line(error.msg).c_str())};
  }
}

}  // namespace lockstep::yaml
