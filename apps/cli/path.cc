// `lockstep path A B`: the way from one GPU or rank to another. `lockstep fabric`: the topology, and who depends on a
// part of it.
#include <chrono>
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "query/export/export_text.h"

namespace lockstep::cli {
namespace {

Result<std::string> at_parameter(const std::string& text) {
  if (text.empty()) return std::string();
  const double now_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const Result<double> moment = parse_moment(text, now_s);
  if (!moment.ok()) return prefixed(moment.failure(), "--at: ");
  if (!(*moment >= 0 && *moment < 9e9)) return Error{"--at: a time from 1970 to 2255 was expected"};
  return "&at=" + std::to_string(static_cast<int64_t>(*moment * 1e9));
}

std::string end_text(const Json& end) {
  std::string text = text_of(end, "host") + format(" gpu%.0f", number_of(end, "index"));
  if (const double rank = number_of(end, "rank", -1); rank >= 0) text = format("rank %.0f (", rank) + text + ")";
  return text;
}

// Empty where there is no such list.
std::vector<Json> items_of(const Json& object, const char* key) {
  simdjson::dom::array list;
  std::vector<Json> items;
  if (object[key].get_array().get(list)) return items;
  for (Json item : list) items.push_back(item);
  return items;
}

bool stands_out(const Json& value) {
  bool is_odd = false;
  return !value["odd"].get_bool().get(is_odd) && is_odd;
}

std::string value_text(const Json& value) {
  const std::string meaning = text_of(value, "meaning"), metric = text_of(value, "metric");
  const double number = number_of(value, "value");
  const bool is_rate = text_of(value, "unit") == "per second";
  const bool is_bytes = meaning == "load" || meaning == "speed";
  auto shown = [&](double one) {
    return is_bytes ? human_bytes(one) + "/s" : format("%.3g%s", one, is_rate ? "/s" : "");
  };
  std::string text = meaning;
  const std::string direction = text_of(value, "direction");
  if (direction == "transmit") text += " out";
  if (direction == "receive") text += " in";
  text += " " + shown(number);
  if (stands_out(value)) text = "▲ " + text + " (siblings " + shown(number_of(value, "siblings")) + "; " + metric + ")";
  return text;
}

// Load always, the rest where there is any; what stands out first.
std::string state_text(const Json& hop, const char* key) {
  std::string odd, rest;
  size_t shown = 0;
  for (Json value : items_of(hop, key)) {
    const std::string meaning = text_of(value, "meaning");
    const bool is_odd = stands_out(value);
    const double number = number_of(value, "value");
    const bool is_up = meaning == "up" && number >= 1;
    if (is_up || meaning == "speed" || (number == 0 && meaning != "load" && meaning != "up" && !is_odd)) continue;
    std::string& text = is_odd ? odd : rest;
    if (!is_odd && ++shown > 4) continue;
    text += (text.empty() ? "" : ", ") + value_text(value);
  }
  return odd.empty() ? rest : rest.empty() ? odd : odd + ", " + rest;
}

std::string sure_text(const Json& hop) {
  const std::string sure = text_of(hop, "sure"), known = text_of(hop, "known");
  if (sure == "observed") return format("seen in %.0f packets", number_of(hop, "packets_sampled"));
  if (sure == "possible") return "not observed";
  if (sure == "routed") return "by forwarding table";
  if (sure == "assumed") return "assumed";
  return known;
}

void print_hop(const Json& hop) {
  const std::string kind = text_of(hop, "kind");
  std::string name = text_of(hop, "name");
  if (kind == "link" && text_of(hop, "link") == "pcie") name = "PCIe " + text_of(hop, "distance");
  if (kind == "link" && text_of(hop, "link") == "nvlink") name = "NVLink";
  const double share = number_of(hop, "share", 1);
  const std::string part = share < 0.9999 ? format("%5.1f %%", 100 * share) : "";
  std::printf("  %-7s %-7s %-46s %s\n", part.c_str(), kind.c_str(), name.c_str(), sure_text(hop).c_str());
  for (const char* key : {"state", "from_state", "to_state"}) {
    const std::string text = state_text(hop, key);
    if (!text.empty()) std::printf("                  %s\n", text.c_str());
  }
}

constexpr size_t kSideBySideMax = 8;  // hops of one position that are printed without --all

void print_path(const Json& document, bool all) {
  Json a, b;
  if (document["a"].get(a) || document["b"].get(b)) return;
  std::printf("%s -> %s\n%s\n\n", end_text(a).c_str(), end_text(b).c_str(), text_of(document, "sentence").c_str());
  double position = -1;
  size_t beside = 0, hidden = 0;
  auto flush = [&] {
    if (hidden > 0) std::printf("  and %zu more beside them (--all)\n", hidden);
    hidden = 0;
  };
  for (Json hop : items_of(document, "hops")) {
    if (number_of(hop, "position") != position) {
      flush();
      position = number_of(hop, "position");
      beside = 0;
    }
    if (!all && ++beside > kSideBySideMax)
      ++hidden;
    else
      print_hop(hop);
  }
  flush();
  for (Json note : items_of(document, "notes")) {
    std::string_view text;
    if (!note.get_string().get(text)) std::printf("\nnote: %s", as_one_line(text).c_str());
  }
  if (items_of(document, "notes").size() > 0) std::printf("\n");
}

void print_fabric(const Json& document) {
  simdjson::dom::object nodes;
  std::string counts;
  if (!document["nodes"].get_object().get(nodes)) {
    for (const auto& [kind, count] : nodes) {
      double number = 0;
      if (!count.get_double().get(number))
        counts += (counts.empty() ? "" : ", ") + with_thousands(static_cast<int64_t>(number)) + " " + std::string(kind);
    }
  }
  if (counts.empty()) {
    std::printf(
        "Nothing is known of the fabric: no agent has reported its node, and no --topology file was given to "
        "lockstepd.\n");
    return;
  }
  std::printf("%s; %s links\n", counts.c_str(),
              with_thousands(static_cast<int64_t>(number_of(document, "links"))).c_str());
  const double differences = number_of(document, "differences_total");
  if (differences > 0) std::printf("\n%.0f differences between file and fabric\n", differences);
  for (Json one : items_of(document, "differences")) {
    const std::string expected = text_of(one, "expected"), seen = text_of(one, "seen");
    std::printf("  %-13s %-28s expected %-26s seen %s\n", text_of(one, "kind").c_str(), text_of(one, "subject").c_str(),
                expected.empty() ? "-" : expected.c_str(), seen.empty() ? "-" : seen.c_str());
  }
  const double changes = number_of(document, "changes_total");
  if (changes > 0) std::printf("\n%.0f changes, newest first\n", changes);
  for (Json one : items_of(document, "changes")) {
    const std::string before = text_of(one, "before"), after = text_of(one, "after");
    std::printf("  %s  %-28s %s -> %s\n",
                utc_time(static_cast<int64_t>(number_of(one, "time_unix_ns") / 1e6), "%Y-%m-%dT%H:%M:%SZ").c_str(),
                text_of(one, "subject").c_str(), before.empty() ? "(not there)" : before.c_str(),
                after.empty() ? "(gone)" : after.c_str());
  }
}

void print_affected(const Json& document) {
  std::printf("%s %s: %.0f of the GPUs that ranks run on depend on it (hosts: %.0f)\n",
              text_of(document, "kind").c_str(), text_of(document, "component").c_str(), number_of(document, "gpus"),
              number_of(document, "hosts"));
  for (Json job : items_of(document, "jobs")) {
    std::string ranks;
    for (Json rank : items_of(job, "first_ranks")) {
      double number = 0;
      if (!rank.get_double().get(number)) ranks += (ranks.empty() ? "" : ",") + format("%.0f", number);
    }
    const double hit = number_of(job, "ranks_hit"), share = number_of(job, "share", 1);
    std::printf("  %-28s %.0f of %.0f ranks%s  (%s%s)\n", text_of(job, "job_id").c_str(), hit, number_of(job, "ranks"),
                share < 0.9999 ? format(", %.1f %% of their traffic", 100 * share).c_str() : "", ranks.c_str(),
                hit > static_cast<double>(items_of(job, "first_ranks").size()) ? ",..." : "");
  }
  if (const std::string note = text_of(document, "note"); !note.empty()) std::printf("%s\n", note.c_str());
}

// "rank 5 (node-01:mlx5_0)", "nfs-1", "10.0.0.9" of whom nothing is known.
std::string flow_end_text(const Json& flow, const char* end_key, const char* address_key, const std::string& job) {
  Json end;
  if (flow[end_key].get(end)) return text_of(flow, address_key);
  std::string ranks;
  for (Json one : items_of(end, "jobs")) {
    const std::string name = text_of(one, "job_id");
    std::string numbers;
    const std::vector<Json> shown = items_of(one, "ranks");
    for (Json rank : shown) {
      double number = 0;
      if (!rank.get_double().get(number)) numbers += (numbers.empty() ? "" : ",") + format("%.0f", number);
    }
    if (number_of(one, "ranks_total") > static_cast<double>(shown.size())) numbers += ",...";
    const char* const word = shown.size() == 1 ? "rank " : "ranks ";
    ranks += (ranks.empty() ? "" : "; ") + (name == job ? word + numbers : name + " " + word + numbers);
  }
  const std::string name = text_of(end, "name");
  return ranks.empty() ? name : ranks + " (" + name + ")";
}

void print_flows(const Json& document, const std::string& job) {
  bool is_received = false;
  if (!document["received"].get_bool().get(is_received) && !is_received) {
    std::printf("No switch reports flows to this server (lockstepd --sflow-listen, --ipfix-listen).\n");
    return;
  }
  if (const std::string note = text_of(document, "note"); !note.empty()) std::printf("%s\n", note.c_str());
  const std::vector<Json> flows = items_of(document, "flows");
  std::printf("%.0f flows of %s at switches in the last half hour, the largest first; bytes are estimates\n",
              number_of(document, "total"), job.c_str());
  for (const Json& flow : flows) {
    const double queue_pair = number_of(flow, "queue_pair", -1), packets = number_of(flow, "packets"),
                 marked = number_of(flow, "ecn_marked_packets");
    std::string more = queue_pair >= 0
                           ? format("queue pair %.0f", queue_pair)
                           : format("port %.0f to %.0f", number_of(flow, "src_port"), number_of(flow, "dst_port"));
    if (marked > 0 && packets > 0) more += format(", ▲ %.1f %% marked (ECN)", 100 * marked / packets);
    std::printf("  %10s  %s -> %s\n              %s %s > %s, %s\n", human_bytes(number_of(flow, "bytes")).c_str(),
                flow_end_text(flow, "src_end", "src", job).c_str(), flow_end_text(flow, "dst_end", "dst", job).c_str(),
                text_of(flow, "switch").c_str(), text_of(flow, "in_port").c_str(), text_of(flow, "out_port").c_str(),
                more.c_str());
  }
}

}  // namespace

int run_path(const Arguments& arguments) {
  std::string server = default_server(), job, at, qp;
  int64_t source_port = 0;
  bool json = false, all = false;
  Flags flags("lockstep path", "the way from one GPU or rank to another, hop by hop, and how each hop does", "A B...");
  add_server_flags(flags, &server)
      .text(&job, "--job", "JOB", "A and B are ranks of this job (else HOST:gpuN or a GPU's UUID)")
      .text(&at, "--at", "TIME", "as it was then: 2026-11-15T22:00:00Z, seconds since 1970, or -5m (default: now)")
      .text(&qp, "--qp", "LOCAL,REMOTE", "queue pair numbers of a RoCEv2 connection, for its UDP source port")
      .number(&source_port, "--source-port", "PORT", "the UDP source port itself", 0, 65535)
      .toggle(&all, "--all", "every hop of many side by side")
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "exit codes: 0 answered, 2 wrong usage, 3 no server, 4 no such GPU or rank, 5 anything else\n"))
    return *code;
  if (flags.positional().size() != 2) {
    std::fprintf(stderr, "lockstep path: two ends are needed, A and B (%zu given)\n", flags.positional().size());
    return kExitUsage;
  }
  const Result<std::string> at_text = at_parameter(at);
  if (!at_text.ok()) {
    std::fprintf(stderr, "lockstep path: %s\n", at_text.error().c_str());
    return kExitUsage;
  }
  std::string path = "/api/fabric/path?a=" + url_part(flags.positional()[0]) + "&b=" + url_part(flags.positional()[1]);
  if (!job.empty()) path += "&job=" + url_part(job);
  if (!qp.empty()) path += "&qp=" + url_part(qp);
  if (source_port > 0) path += "&source_port=" + std::to_string(source_port);
  return show_answer({server, path + *at_text, "lockstep path", json}, [&](const Json& document) {
    print_path(document, all);
    return true;
  });
}

int run_fabric(const Arguments& arguments) {
  std::string server = default_server(), affected, flows, at;
  int64_t limit = 20;
  bool json = false;
  Flags flags("lockstep fabric",
              "the topology: what it has, where file and fabric differ, what changed, who depends on what");
  add_server_flags(flags, &server)
      .text(
          &affected, "--affected", "COMPONENT",
          "who depends on it: host:node-01, nic:node-01:mlx5_0, leaf:leaf-1, link:leaf-1:Ethernet49, storage:nfs-1, a "
          "GPU's UUID")
      .text(&flows, "--flows", "JOB", "what switches saw of this job's flows, and between whom")
      .number(&limit, "--limit", "N", "with --flows: so many of them (default 20)", 1, 10'000)
      .text(&at, "--at", "TIME", "with --affected: as it was then (as of lockstep path)")
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "exit codes: 0 answered, 2 wrong usage, 3 no server, 4 no such component, 5 anything else\n"))
    return *code;
  const Result<std::string> at_text = at_parameter(at);
  if (!at_text.ok()) {
    std::fprintf(stderr, "lockstep fabric: %s\n", at_text.error().c_str());
    return kExitUsage;
  }
  if (!flows.empty() && !affected.empty()) {
    std::fprintf(stderr, "lockstep fabric: --flows or --affected, not both\n");
    return kExitUsage;
  }
  std::string path = "/api/fabric";
  if (!affected.empty()) path += "/affected?component=" + url_part(affected) + *at_text;
  if (!flows.empty()) path += "/flows?job=" + url_part(flows) + "&limit=" + std::to_string(limit);
  return show_answer({server, path, "lockstep fabric", json}, [&](const Json& document) {
    if (!flows.empty())
      print_flows(document, flows);
    else
      affected.empty() ? print_fabric(document) : print_affected(document);
    return true;
  });
}

}  // namespace lockstep::cli
