#include "ingest/scrape_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/text.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr size_t kTargetsMax = 100'000;

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

// Every key of a mapping, each once, handed to `take`, which says whether it knows it.
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
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  const std::optional<int64_t> number = parse_int(text.substr(0, digits));
  const std::string unit = text.substr(digits);
  const int64_t unit_ms = unit == "ms" ? 1 : unit == "s" ? 1000 : unit == "m" ? 60'000 : unit == "h" ? 3'600'000 : 0;
  if (!number || unit_ms == 0 || *number < 1 || *number > 86'400'000 || *number * unit_ms < 100 ||
      *number * unit_ms > 86'400'000) {
    throw Wrong{line_of(node), format("%s must be a time from 100ms to 24h such as 15s, not \"%s\"", what,
                                      as_one_line(text.substr(0, 40)).c_str())};
  }
  return *number * unit_ms * 1'000'000;
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

TargetGroup group_of(const YAML::Node& node) {
  TargetGroup group;
  each_key(node, "a list of targets", {"targets", "labels"}, [&](const std::string& key, const YAML::Node& value) {
    if (key == "targets") {
      each_item(value, "targets", [&](const YAML::Node& item) {
        const std::string& target = scalar(item, "a target");
        const size_t colon = target.rfind(':');
        const bool has_port =
            colon != std::string::npos && colon > 0 && parse_uint(target.substr(colon + 1)).value_or(0) - 1 < 65'535;
        if (!has_port || target.size() > 300 || target.find_first_of("/ ?#@") != std::string::npos) {
          throw Wrong{line_of(item),
                      format("\"%s\" is no target (host:port)", as_one_line(target.substr(0, 60)).c_str())};
        }
        group.targets.push_back(target);
      });
      return;
    }
    each_key(
        value, "labels",
        [&] {
          std::vector<std::string> names;  // any will do
          if (value.IsMap()) {
            for (const auto& entry : value) names.push_back(scalar(entry.first, "a label's name"));
          }
          return names;
        }(),
        [&](const std::string& name, const YAML::Node& text) {
          group.labels.emplace_back(name, scalar(text, "a label"));
          if (name == kMetricNameLabel) throw Wrong{line_of(text), "a target may not give series a name"};
        });
    Labels checked = group.labels;
    checked.emplace_back(kMetricNameLabel, "a");
    if (Result<Labels> good = canonical_labels(std::move(checked)); !good.ok())
      throw Wrong{line_of(value), good.error()};
  });
  return group;
}

std::vector<TargetGroup> groups_of(const YAML::Node& node) {
  std::vector<TargetGroup> groups;
  size_t targets = 0;
  each_item(node, "lists of targets", [&](const YAML::Node& item) {
    groups.push_back(group_of(item));
    targets += groups.back().targets.size();
    if (targets > kTargetsMax) throw Wrong{line_of(item), format("more than %zu targets", kTargetsMax)};
  });
  return groups;
}

ScrapeDiscovery discovery_of(const YAML::Node& node, bool by_file) {
  ScrapeDiscovery discovery;
  each_key(node, by_file ? "file_sd_configs" : "http_sd_configs", {by_file ? "files" : "url", "refresh_interval"},
           [&](const std::string& key, const YAML::Node& value) {
             if (key == "refresh_interval") {
               discovery.refresh_ns = duration_ns(value, "refresh_interval");
             } else if (by_file) {
               each_item(value, "files", [&](const YAML::Node& item) {
                 const std::string& file = scalar(item, "a file");
                 if (!file.starts_with('/')) throw Wrong{line_of(item), "a file must be an absolute path"};
                 if (file.substr(0, file.rfind('/')).find('*') != std::string::npos) {
                   throw Wrong{line_of(item), "only the last part of a path may have *"};
                 }
                 discovery.files.push_back(file);
               });
             } else {
               discovery.url = scalar(value, "url");
             }
           });
  if (discovery.files.empty() && discovery.url.empty()) {
    throw Wrong{line_of(node), by_file ? "file_sd_configs needs files" : "http_sd_configs needs a url"};
  }
  return discovery;
}

ScrapeJob job_of(const YAML::Node& node, const ScrapeJob& defaults) {
  ScrapeJob job = defaults;
  bool has_timeout = false;
  each_key(node, "a scrape config",
           {"job_name", "static_configs", "file_sd_configs", "http_sd_configs", "scrape_interval", "scrape_timeout",
            "metrics_path", "scheme", "honor_labels", "honor_timestamps", "body_size_limit", "sample_limit"},
           [&](const std::string& key, const YAML::Node& value) {
             if (key == "job_name") {
               job.name = scalar(value, "job_name");
             } else if (key == "static_configs") {
               job.groups = groups_of(value);
             } else if (key == "file_sd_configs" || key == "http_sd_configs") {
               each_item(value, key.c_str(), [&](const YAML::Node& item) {
                 job.discoveries.push_back(discovery_of(item, key == "file_sd_configs"));
               });
             } else if (key == "scrape_interval") {
               job.interval_ns = duration_ns(value, "scrape_interval");
             } else if (key == "scrape_timeout") {
               job.timeout_ns = duration_ns(value, "scrape_timeout");
               has_timeout = true;
             } else if (key == "metrics_path") {
               job.path = scalar(value, "metrics_path");
               if (!job.path.starts_with('/') || job.path.find(' ') != std::string::npos) {
                 throw Wrong{line_of(value), "metrics_path must begin with /"};
               }
             } else if (key == "scheme") {
               job.scheme = scalar(value, "scheme");
               if (job.scheme != "http" && job.scheme != "https") {
                 throw Wrong{line_of(value), "scheme must be http or https"};
               }
             } else if (key == "honor_labels") {
               job.honor_labels = flag(value, "honor_labels");
             } else if (key == "honor_timestamps") {
               job.honor_timestamps = flag(value, "honor_timestamps");
             } else if (key == "body_size_limit") {
               job.body_bytes_max = bytes_of(value, "body_size_limit");
             } else {
               const std::optional<uint64_t> limit = parse_uint(scalar(value, "sample_limit"));
               if (!limit) throw Wrong{line_of(value), "sample_limit must be a whole number"};
               if (*limit > 0) job.samples_max = *limit;  // 0: as if not given
             }
           });
  if (job.name.empty()) throw Wrong{line_of(node), "a scrape config needs a job_name"};
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
    std::set<std::string> names;
    each_key(root, "the file", {"global", "scrape_configs"}, [&](const std::string& key, const YAML::Node& value) {
      if (key != "scrape_configs") return;
      each_item(value, "scrape_configs", [&](const YAML::Node& item) {
        config.jobs.push_back(job_of(item, defaults));
        if (!names.insert(config.jobs.back().name).second) {
          throw Wrong{line_of(item), format("job \"%s\" is given twice", config.jobs.back().name.c_str())};
        }
      });
    });
    return config;
  });
}

Result<std::vector<TargetGroup>> parse_target_groups(std::string_view yaml_or_json) {
  return read_yaml<std::vector<TargetGroup>>(yaml_or_json, [](const YAML::Node& root) { return groups_of(root); });
}

}  // namespace lockstep
