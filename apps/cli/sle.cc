// `lockstep sle`: how many minutes of GPUs were good, by SLE, and what the others are charged to.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/watch.h"
#include "apps/cli/wrapped.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr const char* kProgram = "lockstep sle";

std::string percent(const Json& object, const char* key) {
  double value = 0;
  return object[key].get_double().get(value) ? "?" : format("%.1f %%", 100 * value);
}

std::string hours(double minutes) {
  return minutes < 60 ? format("%.0f GPU-min", minutes) : format("%.1f GPU-h", minutes / 60);
}

// "97.2 %", or from the worst to the best that it can be where not everything was measured.
std::string success_of(const Json& sle) {
  Json minutes;
  if (sle["minutes"].get(minutes) || number_of(minutes, "unknown") == 0) return percent(sle, "success");
  return format("%.1f-%.1f %%", 100 * number_of(sle, "success_least"), 100 * number_of(sle, "success_most"));
}

std::string label_of(const std::string& name) {
  return name.empty() ? "cause not known" : name;
}

void print_classifiers(const Json& sle, bool with_subs) {
  for (const Json part : list_of(sle, "classifiers")) {
    std::printf("      %5.1f %%  %-22s %s\n", 100 * number_of(part, "share"), text_of(part, "name").c_str(),
                hours(number_of(part, "minutes")).c_str());
    if (!with_subs) continue;
    for (const Json sub : list_of(part, "subs"))
      std::printf("                 %-20s %s\n", label_of(text_of(sub, "name")).c_str(),
                  hours(number_of(sub, "minutes")).c_str());
  }
}

void print_head(const Json& document) {
  const double seconds = number_of(document, "to_unix_s") - number_of(document, "from_unix_s");
  std::printf("%s · last %s · minutes of GPUs\n\n", text_of(document, "scope").c_str(),
              human_duration(1e9 * seconds).c_str());
}

bool print_all(const Json& document) {
  const simdjson::dom::array sles = list_of(document, "sles");
  if (sles.size() == 0) return false;
  print_head(document);
  std::printf("%-22s %15s %13s %9s  %s\n", "SLE", "GOOD", "DEGRADED", "MEASURED", "MOSTLY");
  std::string not_measured;
  double idle = 0;
  for (const Json sle : sles) {
    bool measured = false;
    Json minutes;
    if (!sle["minutes"].get(minutes)) idle = std::max(idle, number_of(minutes, "idle"));
    if (sle["measured"].get(measured) || !measured) {
      not_measured += (not_measured.empty() ? "" : ", ") + text_of(sle, "name");
      continue;
    }
    std::string mostly;
    for (const Json part : list_of(sle, "classifiers")) {
      mostly = format("%s %.0f %%", text_of(part, "name").c_str(), 100 * number_of(part, "share"));
      break;
    }
    double money = 0;
    if (!sle["chosen_money"].get_double().get(money)) {
      if (money >= 0.005) mostly += format("  cost %.2f", money);
    } else if (!text_of(sle, "money").empty()) {
      mostly += "  no price";
    }
    std::printf("%-22s %15s %13s %9s  %s\n", text_of(sle, "title").c_str(), success_of(sle).c_str(),
                hours(number_of(sle, "chosen_minutes")).c_str(), percent(sle, "coverage").c_str(), mostly.c_str());
  }
  if (!not_measured.empty()) print_wrapped("\nNot measured here: " + not_measured + ".");
  if (idle > 0) std::printf("\nIdle by plan, and no part of the above: %s\n", hours(idle).c_str());
  std::printf("\nOne of them: lockstep sle NAME\n");
  return true;
}

void print_affected(const Json& affected, const char* key, const char* title) {
  Json group;
  if (affected[key].get(group)) return;
  const simdjson::dom::array rows = list_of(group, "list");
  if (rows.size() == 0) return;
  std::printf("\n%s\n", title);
  for (const Json row : rows) {
    std::string what = text_of(row, "name");
    if (what.empty()) what = "nobody is named";
    if (const std::string job = text_of(row, "job_id"); !job.empty() && job != what) what += " of " + job;
    const std::string classifier = text_of(row, "classifier");
    std::printf("  %-12s %s%s\n", hours(number_of(row, "degraded")).c_str(), what.c_str(),
                classifier.empty() ? "" : ("  (" + classifier + ", " + label_of(text_of(row, "sub")) + ")").c_str());
  }
  const double total = number_of(group, "total");
  if (total > static_cast<double>(rows.size()))
    std::printf("  %zu of %.0f, worst first; --json has the address\n", rows.size(), total);
}

bool print_one(const Json& sle) {
  if (text_of(sle, "title").empty()) return false;
  print_head(sle);
  bool measured = false;
  if (sle["measured"].get(measured) || !measured) {
    print_wrapped(text_of(sle, "title") + " is not measured here: it needs " + text_of(sle, "measured_from") + ".");
    return true;
  }
  std::printf("%s: %s good, %s measured\n", text_of(sle, "title").c_str(), success_of(sle).c_str(),
              percent(sle, "coverage").c_str());
  print_wrapped("Good when " + text_of(sle, "good_when") + ".");
  Json minutes;
  if (sle["minutes"].get(minutes)) return false;
  std::printf("\n  degraded %s", hours(number_of(minutes, "degraded")).c_str());
  if (const std::string money = text_of(sle, "money"); !money.empty()) std::printf(", %s", money.c_str());
  if (const double idle = number_of(minutes, "idle"); idle > 0) std::printf("; %s idle by plan", hours(idle).c_str());
  std::printf("\n");
  print_classifiers(sle, true);
  Json affected;
  if (sle["affected"].get(affected)) return true;
  print_affected(affected, "culprits", "Charged to");
  print_affected(affected, "jobs", "Jobs that were hurt");
  print_affected(affected, "hosts", "Hosts of the GPUs that were hurt");
  return true;
}

}  // namespace

int run_sle(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  int64_t last_hours = 24;
  std::string job, ranks, group, host, gpu, nic, rail, switch_name, link, ledger, classifier;
  Flags flags(kProgram, "minutes of GPUs that were good, degraded or unknown, and what the degraded are charged to",
              "[NAME]");
  add_server_flags(flags, &server)
      .number(&last_hours, "--hours", "N", "so far back (default 24)", 1, 24 * 3650)
      .text(&job, "--job", "JOB", "of this job alone")
      .text(&ranks, "--ranks", "0-7,9", "of these ranks of it")
      .text(&group, "--group", "NAME[/RANK]", "of its group of that name that has the rank")
      .text(&host, "--host", "HOST,...", "of GPUs on these hosts")
      .text(&gpu, "--gpu", "UUID", "of this GPU")
      .text(&nic, "--nic", "HOST:DEVICE", "of GPUs behind this adapter")
      .text(&rail, "--rail", "N", "of GPUs on this rail")
      .text(&switch_name, "--switch", "NAME", "of GPUs behind this leaf switch")
      .text(&link, "--link", "NAME:PORT", "of GPUs behind this port")
      .text(&ledger, "--ledger", "victim|culprit", "minutes of who was hurt, or of who is charged (default victim)")
      .text(&classifier, "--classifier", "NAME", "degraded minutes of this classifier alone")
      .toggle(&json, "--json", "the answer as JSON");
  add_watch_flag(flags, run_sle);
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  const std::vector<std::string>& names = flags.positional();
  std::string path = "/api/sle";
  if (!names.empty()) path += "/" + url_part(names[0]);
  path += format("?hours=%lld", static_cast<long long>(last_hours));
  const std::pair<const char*, const std::string*> given[] = {{"job", &job},
                                                              {"ranks", &ranks},
                                                              {"group", &group},
                                                              {"host", &host},
                                                              {"gpu", &gpu},
                                                              {"nic", &nic},
                                                              {"rail", &rail},
                                                              {"switch", &switch_name},
                                                              {"link", &link},
                                                              {"ledger", &ledger},
                                                              {"classifier", &classifier}};
  for (const auto& [key, value] : given)
    if (!value->empty()) path += std::string("&") + key + "=" + url_part(*value);
  return show_answer({server, path, kProgram, json}, names.empty() ? print_all : print_one);
}

}  // namespace lockstep::cli
