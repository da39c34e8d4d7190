#include "ingest/scrape/scrape_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "access/tenant_name.h"
#include "base/base64.h"
#include "base/characters.h"
#include "base/duration.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "ingest/scrape/scrape_target.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr size_t kTargetsMax = 100'000;
constexpr size_t kRulesMax = 1000;

// Thrown inside this file only, at the first thing that is wrong.
struct Wrong {
  int line;
  std::string what;
};

int line_of(const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? 1 : mark.line + 1;
}

const std::string& scalar(const YAML::Node& node, const char* what) {
  if (!node.IsScalar() || has_control_characters(node.Scalar())) {
    throw Wrong{line_of(node), format("%s must be one text", what)};
  }
  return node.Scalar();
}

// Every key of a mapping, each once and one of those that are known, handed to `take`.
template <typename Take>
void each_key(const YAML::Node& node, const char* what, const std::vector<std::string>& known, Take&& take) {
  if (!node.IsMap()) throw Wrong{line_of(node), format("%s must be a mapping (key: value)", what)};
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string& key = scalar(entry.first, "a key");
    const std::string shown = as_one_line(key.substr(0, 60));
    if (!seen.insert(key).second) {
      throw Wrong{line_of(entry.first), format("\"%s\" is given twice in %s", shown.c_str(), what)};
    }
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::optional<std::string> near = did_you_mean(key, known);
      throw Wrong{line_of(entry.first), format("\"%s\" is not known in %s%s", shown.c_str(), what,
                                               near ? ("; did you mean " + *near + "?").c_str() : "")};
    }
    take(key, entry.second);
  }
}

template <typename Take>
void each_item(const YAML::Node& node, const char* what, Take&& take) {
  if (!node.IsSequence()) throw Wrong{line_of(node), format("%s must be a list", what)};
  for (const auto& item : node) take(item);
}

int64_t duration_ns(const YAML::Node& node, const char* what) {
  const std::string& text = scalar(node, what);
  const std::optional<int64_t> ns = scrape_time_ns(text);
  if (!ns) {
    throw Wrong{line_of(node), format("%s must be a time from 100ms to 24h such as 15s, not \"%s\"", what,
                                      as_one_line(text.substr(0, 40)).c_str())};
  }
  return *ns;
}

uint64_t bytes_of(const YAML::Node& node, const char* what) {
  const std::string& text = scalar(node, what);
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  const std::optional<uint64_t> number = parse_uint(text.substr(0, digits));
  const std::string unit = text.substr(digits);
  const uint64_t scale = unit.empty() || unit == "B"     ? 1
                         : unit == "KB" || unit == "KiB" ? 1u << 10
                         : unit == "MB" || unit == "MiB" ? 1u << 20
                         : unit == "GB" || unit == "GiB" ? 1u << 30
                                                         : 0;
  if (!number || scale == 0 || *number == 0 || *number > (1ull << 30) / scale) {
    throw Wrong{line_of(node), format("%s must be a size up to 1GiB such as 16MiB", what)};
  }
  return *number * scale;
}

bool flag(const YAML::Node& node, const char* what) {
  const std::string& text = scalar(node, what);
  if (text != "true" && text != "false") throw Wrong{line_of(node), format("%s must be true or false", what)};
  return text == "true";
}

// Keys that may be anything.
std::vector<std::string> keys_of(const YAML::Node& node, const char* what) {
  std::vector<std::string> names;
  if (node.IsMap()) {
    for (const auto& entry : node) names.push_back(scalar(entry.first, what));
  }
  return names;
}

TargetGroup group_of(const YAML::Node& node, bool with_rules) {
  TargetGroup group;
  each_key(node, "a list of targets", {"targets", "labels"}, [&](const std::string& key, const YAML::Node& value) {
    if (key == "targets") {
      each_item(value, "targets", [&](const YAML::Node& item) {
        const std::string& target = scalar(item, "a target");
        const bool has_port = target.rfind(':') != std::string::npos && !target.ends_with(']');
        const bool is_address = is_target_address(target) && has_port;
        if (target.empty() || target.size() > kLabelValueBytesMax || !is_utf8(target) || (!is_address && !with_rules)) {
          throw Wrong{line_of(item),
                      format("\"%s\" is no target (host:port)", as_one_line(target.substr(0, 60)).c_str())};
        }
        group.targets.push_back(target);
      });
      return;
    }
    each_key(value, "labels", keys_of(value, "a label's name"), [&](const std::string& name, const YAML::Node& text) {
      group.labels.emplace_back(name, scalar(text, "a label"));
      if (name == kMetricNameLabel) throw Wrong{line_of(text), "a target may not give series a name"};
    });
    if (Result<Labels> good = canonical_target_labels(group.labels); !good.ok())
      throw Wrong{line_of(value), good.error()};
  });
  return group;
}

std::vector<TargetGroup> groups_of(const YAML::Node& node, bool with_rules) {
  std::vector<TargetGroup> groups;
  size_t targets = 0;
  each_item(node, "lists of targets", [&](const YAML::Node& item) {
    groups.push_back(group_of(item, with_rules));
    targets += groups.back().targets.size();
    if (targets > kTargetsMax) throw Wrong{line_of(item), format("more than %zu targets", kTargetsMax)};
  });
  return groups;
}

std::string absolute_path(const YAML::Node& node, const char* what) {
  const std::string& path = scalar(node, what);
  if (!path.starts_with('/')) throw Wrong{line_of(node), format("%s must be an absolute path", what)};
  return path;
}

std::string header_text(const YAML::Node& node, const char* what) {
  const std::string& text = scalar(node, what);
  if (text.empty() || !is_printable(text)) throw Wrong{line_of(node), format("%s must be printable text", what)};
  return text;
}

// A secret is given itself or by its file, not both.
void take_secret(ScrapeAccess& access, const YAML::Node& node, const char* what, bool by_file) {
  if (!access.secret.empty() || !access.secret_file.empty())
    throw Wrong{line_of(node), format("%s: give the secret or its file, not both", what)};
  (by_file ? access.secret_file : access.secret) = by_file ? absolute_path(node, what) : header_text(node, what);
}

const std::vector<std::string> kAccessKeys = {"authorization", "basic_auth", "bearer_token", "bearer_token_file",
                                              "tls_config"};

// false: the key is none of kAccessKeys.
bool take_access(ScrapeAccess& access, const std::string& key, const YAML::Node& node) {
  if (std::find(kAccessKeys.begin(), kAccessKeys.end(), key) == kAccessKeys.end()) return false;
  if (key == "tls_config") {
    each_key(node, "tls_config", {"ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify"},
             [&](const std::string& name, const YAML::Node& value) {
               if (name == "insecure_skip_verify") {
                 access.tls.verify = !flag(value, "insecure_skip_verify");
               } else if (name == "server_name") {
                 access.tls.server_name = header_text(value, "server_name");
               } else {
                 std::string& path = name == "ca_file"     ? access.tls.ca_file
                                     : name == "cert_file" ? access.tls.certificate_file
                                                           : access.tls.key_file;
                 path = absolute_path(value, name.c_str());
               }
             });
    if (access.tls.certificate_file.empty() != access.tls.key_file.empty())
      throw Wrong{line_of(node), "cert_file and key_file go together"};
    return true;
  }
  if (!access.type.empty())
    throw Wrong{line_of(node), "authorization, basic_auth and bearer_token: only one of them can be sent"};
  if (key == "basic_auth") {
    access.type = "Basic";
    each_key(node, "basic_auth", {"username", "username_file", "password", "password_file"},
             [&](const std::string& name, const YAML::Node& value) {
               if (name == "username") {
                 access.username = header_text(value, "username");
               } else if (name == "username_file") {
                 access.username_file = absolute_path(value, "username_file");
               } else {
                 take_secret(access, value, name.c_str(), name == "password_file");
               }
             });
    if (access.username.empty() == access.username_file.empty())
      throw Wrong{line_of(node), "basic_auth needs a username or a username_file"};
    return true;
  }
  access.type = "Bearer";
  if (key != "authorization") {
    take_secret(access, node, key.c_str(), key == "bearer_token_file");
    return true;
  }
  each_key(node, "authorization", {"type", "credentials", "credentials_file"},
           [&](const std::string& name, const YAML::Node& value) {
             if (name == "type") {
               access.type = header_text(value, "type");
               if (lower_case(access.type) == "basic")
                 throw Wrong{line_of(value), "for type Basic there is basic_auth"};
             } else {
               take_secret(access, value, name.c_str(), name == "credentials_file");
             }
           });
  if (access.secret.empty() && access.secret_file.empty())
    throw Wrong{line_of(node), "authorization needs credentials or a credentials_file"};
  return true;
}

RelabelRule rule_of(const YAML::Node& node, const char* what) {
  RelabelRule rule;
  std::string pattern = "(.*)";
  std::set<std::string> given;
  each_key(node, what, {"source_labels", "separator", "regex", "modulus", "target_label", "replacement", "action"},
           [&](const std::string& key, const YAML::Node& value) {
             given.insert(key);
             if (key == "source_labels") {
               each_item(value, "source_labels",
                         [&](const YAML::Node& item) { rule.source_labels.push_back(scalar(item, "a label's name")); });
             } else if (key == "separator") {
               rule.separator = value.IsNull() ? "" : scalar(value, "separator");
             } else if (key == "regex") {
               pattern = value.IsNull() ? "" : scalar(value, "regex");
             } else if (key == "modulus") {
               rule.modulus = parse_uint(scalar(value, "modulus")).value_or(0);
               if (rule.modulus == 0) throw Wrong{line_of(value), "modulus must be a whole number above 0"};
             } else if (key == "target_label") {
               rule.target_label = scalar(value, "target_label");
             } else if (key == "replacement") {
               rule.replacement = value.IsNull() ? "" : scalar(value, "replacement");
             } else {
               Result<RelabelAction> action = parse_relabel_action(scalar(value, "action"));
               if (!action.ok()) throw Wrong{line_of(value), action.error()};
               rule.action = *action;
             }
           });
  if (Result<void> compiled = rule.compile(pattern); !compiled.ok())
    throw Wrong{line_of(node), format("regex: %s", compiled.error().c_str())};
  using enum RelabelAction;
  const bool writes = rule.action == kReplace || rule.action == kHashMod || rule.action == kLowercase ||
                      rule.action == kUppercase || rule.action == kKeepEqual || rule.action == kDropEqual;
  if (writes && rule.target_label.empty()) throw Wrong{line_of(node), "this action needs a target_label"};
  if (rule.action == kHashMod && rule.modulus == 0) throw Wrong{line_of(node), "hashmod needs a modulus"};
  if (rule.action == kLabelDrop || rule.action == kLabelKeep) {
    for (const char* useless : {"source_labels", "target_label", "modulus", "separator", "replacement"}) {
      if (given.contains(useless)) throw Wrong{line_of(node), format("labeldrop and labelkeep take no %s", useless)};
    }
  }
  if (rule.action == kKeepEqual || rule.action == kDropEqual) {
    for (const char* useless : {"regex", "modulus", "separator", "replacement"}) {
      if (given.contains(useless)) throw Wrong{line_of(node), format("keepequal and dropequal take no %s", useless)};
    }
  }
  return rule;
}

std::vector<RelabelRule> rules_of(const YAML::Node& node, const std::string& what) {
  std::vector<RelabelRule> rules;
  each_item(node, what.c_str(), [&](const YAML::Node& item) {
    if (rules.size() == kRulesMax) throw Wrong{line_of(item), format("more than %zu rules", kRulesMax)};
    rules.push_back(rule_of(item, what.c_str()));
  });
  return rules;
}

ScrapeDiscovery discovery_of(const YAML::Node& node, bool by_file) {
  ScrapeDiscovery discovery;
  std::vector<std::string> known = {by_file ? "files" : "url", "refresh_interval"};
  if (!by_file) known.insert(known.end(), kAccessKeys.begin(), kAccessKeys.end());
  each_key(node, by_file ? "file_sd_configs" : "http_sd_configs", known,
           [&](const std::string& key, const YAML::Node& value) {
             if (key == "refresh_interval") {
               discovery.refresh_ns = duration_ns(value, "refresh_interval");
             } else if (by_file) {
               each_item(value, "files", [&](const YAML::Node& item) {
                 const std::string file = absolute_path(item, "a file");
                 if (file.substr(0, file.rfind('/')).find('*') != std::string::npos) {
                   throw Wrong{line_of(item), "only the last part of a path may have *"};
                 }
                 discovery.files.push_back(file);
               });
             } else if (!take_access(discovery.access, key, value)) {
               discovery.url = scalar(value, "url");
             }
           });
  if (discovery.files.empty() && discovery.url.empty()) {
    throw Wrong{line_of(node), by_file ? "file_sd_configs needs files" : "http_sd_configs needs a url"};
  }
  return discovery;
}

// How a target is asked. False: another key.
bool take_request(ScrapeJob& job, const std::string& key, const YAML::Node& value) {
  if (key == "metrics_path") {
    job.path = scalar(value, "metrics_path");
    if (!is_metrics_path(job.path)) throw Wrong{line_of(value), "metrics_path must begin with /"};
  } else if (key == "scheme") {
    job.scheme = scalar(value, "scheme");
    if (job.scheme != "http" && job.scheme != "https") {
      throw Wrong{line_of(value), "scheme must be http or https"};
    }
  } else if (key == "params") {
    each_key(
        value, "params", keys_of(value, "a parameter's name"), [&](const std::string& name, const YAML::Node& values) {
          job.params.emplace_back(name, std::vector<std::string>());
          each_item(values, "values of a parameter",
                    [&](const YAML::Node& item) { job.params.back().second.push_back(scalar(item, "a parameter")); });
        });
  } else {
    return take_access(job.access, key, value);
  }
  return true;
}

// What of its answer is taken, and under which labels. False: another key.
bool take_answer(ScrapeJob& job, const std::string& key, const YAML::Node& value) {
  if (key == "relabel_configs") {
    job.relabel = rules_of(value, key);
  } else if (key == "metric_relabel_configs") {
    job.metric_relabel = rules_of(value, key);
  } else if (key == "honor_labels") {
    job.honor_labels = flag(value, "honor_labels");
  } else if (key == "honor_timestamps") {
    job.honor_timestamps = flag(value, "honor_timestamps");
  } else if (key == "body_size_limit") {
    job.body_bytes_max = bytes_of(value, "body_size_limit");
  } else if (key == "sample_limit") {
    const std::optional<uint64_t> limit = parse_uint(scalar(value, "sample_limit"));
    if (!limit) throw Wrong{line_of(value), "sample_limit must be a whole number"};
    if (*limit > 0) job.samples_max = *limit;  // 0: as if not given
  } else {
    return false;
  }
  return true;
}

std::string tenant_of(const YAML::Node& node) {
  const std::string& tenant = scalar(node, "tenant");
  if (!is_tenant_name(tenant))
    throw Wrong{line_of(node), "tenant must be a tenant's name: small letters, digits, _ and -"};
  return tenant == kDefaultTenant ? "" : tenant;
}

ScrapeJob job_of(const YAML::Node& node, const ScrapeJob& defaults) {
  ScrapeJob job = defaults;
  bool has_timeout = false;
  std::optional<YAML::Node> targets;
  std::string how;
  std::vector<std::string> known = {"job_name",        "static_configs",  "file_sd_configs",        "http_sd_configs",
                                    "scrape_interval", "scrape_timeout",  "metrics_path",           "scheme",
                                    "params",          "honor_labels",    "honor_timestamps",       "body_size_limit",
                                    "sample_limit",    "relabel_configs", "metric_relabel_configs", "tenant"};
  known.insert(known.end(), kAccessKeys.begin(), kAccessKeys.end());
  each_key(node, "a scrape config", known, [&](const std::string& key, const YAML::Node& value) {
    if (key != "static_configs" && !key.ends_with("_sd_configs")) how += key + ": " + YAML::Dump(value) + "\n";
    if (key == "job_name") {
      job.name = scalar(value, "job_name");
    } else if (key == "tenant") {
      job.tenant = tenant_of(value);
    } else if (key == "static_configs") {
      targets = value;
    } else if (key == "file_sd_configs" || key == "http_sd_configs") {
      each_item(value, key.c_str(), [&](const YAML::Node& item) {
        job.discoveries.push_back(discovery_of(item, key == "file_sd_configs"));
      });
    } else if (key == "scrape_interval") {
      job.interval_ns = duration_ns(value, "scrape_interval");
    } else if (key == "scrape_timeout") {
      job.timeout_ns = duration_ns(value, "scrape_timeout");
      has_timeout = true;
    } else if (!take_request(job, key, value) && !take_answer(job, key, value)) {
      throw Wrong{line_of(value), format("\"%s\" is not read in a scrape config", key.c_str())};
    }
  });
  if (job.name.empty()) throw Wrong{line_of(node), "a scrape config needs a job_name"};
  job.how = std::hash<std::string>()(how);
  if (targets) job.groups = groups_of(*targets, !job.relabel.empty());
  if (!has_timeout) job.timeout_ns = std::min(job.timeout_ns, job.interval_ns);
  if (job.timeout_ns > job.interval_ns) {
    throw Wrong{line_of(node), format("job \"%s\": the timeout is longer than the interval", job.name.c_str())};
  }
  if (job.groups.empty() && job.discoveries.empty()) {
    throw Wrong{line_of(node), format("job \"%s\" has no targets", job.name.c_str())};
  }
  return job;
}

template <typename T, typename Read>
Result<T> read_yaml(std::string_view text, Read&& read) {
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    return read(root);
  } catch (const Wrong& wrong) {
    return Error{format("line %d: %s", wrong.line, wrong.what.c_str())};
  } catch (const YAML::Exception& error) {
    return Error{format("line %d: not YAML: %s", error.mark.is_null() ? 1 : error.mark.line + 1,
                        as_one_line(error.msg).c_str())};
  }
}

}  // namespace

ScrapeConfig ScrapeConfig::of_tenant(std::string_view tenant) const {
  ScrapeConfig its;
  std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(its.jobs),
               [&](const ScrapeJob& job) { return job.tenant == tenant; });
  return its;
}

bool is_target_address(std::string_view text) {
  if (text.empty() || text.size() > 300 || text.find_first_of("/ ?#@") != std::string_view::npos) return false;
  const size_t colon = text.ends_with(']') ? std::string_view::npos : text.rfind(':');
  if (colon == std::string_view::npos) return true;
  return colon > 0 && parse_uint(text.substr(colon + 1)).value_or(0) - 1 < 65'535;
}

bool is_metrics_path(std::string_view text) {
  return text.starts_with('/') && text.size() <= kLabelValueBytesMax && text.find(' ') == std::string_view::npos &&
         !has_control_characters(text);
}

std::optional<int64_t> scrape_time_ns(std::string_view text) {
  int64_t ms = 0;
  if (!parse_duration_ms(text, &ms).empty() || ms < 100 || ms > 24 * 3'600'000) return std::nullopt;
  return ms * 1'000'000;
}

Result<void> ScrapeAccess::authorize(HttpRequest& request) const {
  if (type.empty()) return {};
  const auto given = [](const std::string& text, const std::string& file) {
    return file.empty() ? Result<std::string>(text) : read_secret_file(file);
  };
  const std::string word = LOCKSTEP_TRY(given(secret, secret_file));
  const std::string name = LOCKSTEP_TRY(given(username, username_file));
  request.headers.emplace_back("authorization", type + " " + (name.empty() ? word : base64(name + ":" + word)));
  return {};
}

Result<ScrapeConfig> parse_scrape_config(std::string_view yaml) {
  return read_yaml<ScrapeConfig>(yaml, [](const YAML::Node& root) {
    ScrapeConfig config;
    ScrapeJob defaults;
    each_key(root, "the file", {"global", "scrape_configs"}, [&](const std::string& key, const YAML::Node& value) {
      if (key != "global") return;
      each_key(
          value, "global", {"scrape_interval", "scrape_timeout"}, [&](const std::string& name, const YAML::Node& time) {
            (name == "scrape_interval" ? defaults.interval_ns : defaults.timeout_ns) = duration_ns(time, name.c_str());
          });
    });
    std::set<std::pair<std::string, std::string>> names;  // with whose
    each_key(root, "the file", {"global", "scrape_configs"}, [&](const std::string& key, const YAML::Node& value) {
      if (key != "scrape_configs") return;
      each_item(value, "scrape_configs", [&](const YAML::Node& item) {
        config.jobs.push_back(job_of(item, defaults));
        const ScrapeJob& job = config.jobs.back();
        if (!names.emplace(job.tenant, job.name).second)
          throw Wrong{line_of(item), format("job \"%s\" is given twice", job.name.c_str())};
      });
    });
    return config;
  });
}

Result<std::vector<TargetGroup>> parse_target_groups(std::string_view yaml_or_json, bool with_rules) {
  return read_yaml<std::vector<TargetGroup>>(yaml_or_json,
                                             [&](const YAML::Node& root) { return groups_of(root, with_rules); });
}

}  // namespace lockstep
