#include "alert/actions/action_config.h"

#include "alert/actions/command_run.h"
#include "alert/yaml_reader.h"
#include "base/duration.h"
#include "base/files.h"
#include "base/secret_file.h"

namespace lockstep {
namespace {

using yaml::line_of;
using yaml::scalar;
using yaml::Wrong;

constexpr int64_t kTimeoutMsMax = 600'000, kEveryMsMax = 30ll * 86'400'000, kRunsMax = 1'000;

int64_t duration(const YAML::Node& node, const char* what, int64_t most_ms) {
  int64_t ms = 0;
  if (const std::string wrong = parse_duration_ms(scalar(node, what), &ms); !wrong.empty())
    throw Wrong{line_of(node), format("%s: %s", what, wrong.c_str())};
  if (ms <= 0 || ms > most_ms)
    throw Wrong{line_of(node), format("%s must be up to %s", what, duration_text(most_ms).c_str())};
  return ms;
}

void take_causes(ActionConfig& action, const YAML::Node& node) {
  yaml::each_key(node, "causes", {}, [&](const std::string& key, const YAML::Node& value) {
    const std::optional<Cause> cause = term_of<Cause>(key);
    if (!cause || *cause == Cause::kNone)
      throw Wrong{line_of(value), format("\"%s\" is no cause (docs/guide/verdict-terms.md)", yaml::shown(key).c_str())};
    const std::string& mode = scalar(value, "a cause's mode");
    if (mode != to_text(ActionMode::kRun) && mode != to_text(ActionMode::kDryRun))
      throw Wrong{line_of(value), format("%s must be run or dry-run", key.c_str())};
    action.causes[*cause] = mode == to_text(ActionMode::kRun) ? ActionMode::kRun : ActionMode::kDryRun;
  });
}

void take_key(ActionConfig& action, const std::string& key, const YAML::Node& value) {
  if (key == "name") {
    action.name = yaml::plain_name(value);
  } else if (key == "causes") {
    take_causes(action, value);
  } else if (key == "command") {
    action.command = yaml::absolute_path(value, "command");
  } else if (key == "url") {
    action.url = scalar(value, "url");
    if (!parse_request_url(action.url).ok()) throw Wrong{line_of(value), "url must be http://... or https://..."};
  } else if (key == "url_file") {
    action.url_file = yaml::absolute_path(value, "url_file");
  } else if (key == "bearer_token_file") {
    action.bearer_token_file = yaml::absolute_path(value, "bearer_token_file");
  } else if (key == "tls") {
    action.tls = yaml::tls_options(value);
  } else if (key == "timeout") {
    action.timeout_ms = duration(value, "timeout", kTimeoutMsMax);
  } else if (key == "every") {
    action.every_ms = duration(value, "every", kEveryMsMax);
  } else if (key == "limit") {
    const std::optional<int64_t> number = parse_int(scalar(value, "limit"));
    if (!number || *number < 1 || *number > kRunsMax)
      throw Wrong{line_of(value), format("limit must be a number from 1 to %lld", static_cast<long long>(kRunsMax))};
    action.limit = *number;
  }
}

ActionConfig read_action(const YAML::Node& item) {
  ActionConfig action;
  yaml::each_key(
      item, "an action",
      {"name", "causes", "command", "url", "url_file", "bearer_token_file", "tls", "timeout", "limit", "every"},
      [&](const std::string& key, const YAML::Node& value) { take_key(action, key, value); });
  const int line = line_of(item);
  if (action.name.empty()) throw Wrong{line, "an action needs a name"};
  if (action.causes.empty())
    throw Wrong{line, format("action \"%s\" needs causes, such as {xid: dry-run}", action.name.c_str())};
  const int ways = !action.command.empty() + !action.url.empty() + !action.url_file.empty();
  if (ways != 1)
    throw Wrong{line, format("action \"%s\" needs a command, a url or a url_file, one of them", action.name.c_str())};
  if (!action.command.empty() && !action.bearer_token_file.empty())
    throw Wrong{line, "bearer_token_file is for url and url_file"};
  return action;
}

}  // namespace

const char* to_text(ActionMode mode) {
  return mode == ActionMode::kRun ? "run" : "dry-run";
}

Result<std::vector<ActionConfig>> parse_actions(std::string_view text) {
  std::vector<ActionConfig> actions;
  const auto take = [&](const YAML::Node& root) {
    yaml::each_key(root, "the file", {"actions"}, [&](const std::string&, const YAML::Node& list) {
      yaml::each_item(list, "actions", [&](const YAML::Node& item) {
        ActionConfig action = read_action(item);
        for (const ActionConfig& other : actions) {
          if (other.name == action.name)
            throw Wrong{line_of(item), format("two actions are called \"%s\"", action.name.c_str())};
        }
        if (actions.size() == kActionsMax) throw Wrong{line_of(item), format("more than %zu actions", kActionsMax)};
        actions.push_back(std::move(action));
      });
    });
  };
  LOCKSTEP_TRY(yaml::read(text, take));
  return actions;
}

Result<std::vector<ActionConfig>> read_actions_file(const std::string& path) {
  if (path.empty()) return std::vector<ActionConfig>();
  const Result<std::string> checked = operators_file(path);
  if (!checked.ok()) return prefixed(checked.failure(), "--actions: ");
  const Result<std::string> text = read_file(*checked, 1 << 20);
  if (!text.ok()) return prefixed(text.failure(), "--actions: ");
  Result<std::vector<ActionConfig>> actions = parse_actions(*text);
  if (!actions.ok()) return prefixed(actions.failure(), "--actions " + path + ": ");
  for (const ActionConfig& action : *actions) {
    std::string wrong;
    if (!action.command.empty()) {
      if (const Result<std::string> file = checked_command_file(action.command); !file.ok()) wrong = file.error();
    }
    for (const std::string* file : {&action.url_file, &action.bearer_token_file}) {
      if (file->empty()) continue;
      if (const Result<std::string> secret = read_private_file(*file); !secret.ok()) wrong = secret.error();
    }
    if (!wrong.empty())
      return Error{format("--actions %s: action %s: %s", path.c_str(), action.name.c_str(), wrong.c_str())};
  }
  return actions;
}

}  // namespace lockstep
