// `lockstep whatif TRACE`: what a step would take if the work were evenly spread, and what of the difference each
// worker, stage and kind of operation costs. TRACE is a file or folder as ByteDance-Seed/StragglerAnalysis publishes
// them, or a step of a job that the server has in detail.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "analysis/whatif/pipeline_trace.h"
#include "analysis/whatif/what_if.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/terminal.h"
#include "apps/cli/whatif_step.h"
#include "apps/cli/wrapped.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "wire/compression.h"

namespace lockstep::cli {
namespace {

constexpr uint64_t kTraceBytesMax = 2ull << 30;
constexpr uint64_t kMetaBytesMax = 1 << 20;
constexpr size_t kHeatNumbersMax = 12;  // columns that fit as numbers
constexpr double kSmall = 0.005;        // a share that reads as 0 %
constexpr double kSmallSlowdown = 0.03;

struct Options {
  double price = 0;  // of a GPU-hour; 0: not told
  int64_t top = 5;
  bool json = false;
};

struct Answered {
  std::string name;
  WhatIf result;
  std::vector<std::string> notes;
  double read_ms = 0;
  double built_ms = 0;
  double replayed_ms = 0;
};

double elapsed_ms(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

std::string seconds(double value) {
  if (value != 0 && std::abs(value) < 1) return format("%.1f ms", value * 1e3);
  return format("%.2f s", value);
}
std::string gpu_time(double value) {
  return value < 3600 ? format("%.0f GPU-seconds", value) : format("%.1f GPU-hours", value / 3600);
}
std::string percent(double share) {
  return format("%.0f %%", share * 100);
}

// -0.001 reads as 0.00, not as -0.00.
double without_minus(double value) {
  return std::abs(value) < 0.005 ? 0 : value;
}

void print_parts(const char* title, const std::vector<Part>& parts, double unexplained, double gaps) {
  std::printf("\n%-42s %6s  %12s  %8s\n", title, "SHARE", "WINS A STEP", "SLOWDOWN");
  size_t small = 0;
  for (const Part& part : parts) {
    if (part.share < kSmall && std::abs(part.slowdown - 1) < kSmallSlowdown) {
      ++small;
      continue;
    }
    std::printf("%-42.42s %6s  %12s  %7.2fx\n", part.name.c_str(), percent(part.share).c_str(),
                seconds(part.recovered_s).c_str(), part.slowdown);
  }
  std::string rest = "unexplained";
  if (gaps >= kSmall && unexplained >= kSmall)
    rest += format(" (%.0f %% between operations)", std::min(gaps, unexplained) * 100);
  std::printf("%-42s %6s\n", rest.c_str(), percent(unexplained).c_str());
  if (small > 0) std::printf("%zu more with less than half a percent each\n", small);
}

char shade(double slowdown) {
  return slowdown >= 1.5 ? '#' : slowdown >= 1.2 ? '*' : slowdown >= 1.1 ? '+' : slowdown >= 1.03 ? ':' : '.';
}

void print_heat(const WhatIf& result) {
  if (result.dp_ranks == 0 || result.stages == 0) return;
  const auto columns = static_cast<size_t>(result.dp_ranks), lines = static_cast<size_t>(result.stages);
  std::vector<double> cells(columns * lines, 1);
  for (const WorkerCost& cost : result.workers)
    cells[static_cast<size_t>(cost.worker.stage) * columns + static_cast<size_t>(cost.worker.dp)] =
        std::isnan(cost.slowdown) ? cost.estimate : cost.slowdown;
  std::printf("\nSlowdown by each worker alone; data-parallel ranks across, stages down\n");
  if (columns <= kHeatNumbersMax) {
    std::printf("%8s", "");
    for (size_t dp = 0; dp < columns; ++dp) std::printf(" %5zu", dp);
    std::printf("\n");
    for (size_t stage = 0; stage < lines; ++stage) {
      std::printf("%8zu", stage);
      for (size_t dp = 0; dp < columns; ++dp) std::printf(" %5.2f", cells[stage * columns + dp]);
      std::printf("\n");
    }
    return;
  }
  constexpr size_t kAcross = 64;
  for (size_t from = 0; from < columns; from += kAcross) {
    const size_t to = std::min(columns, from + kAcross);
    if (columns > kAcross) std::printf("%8s %zu to %zu\n", "", from, to - 1);
    for (size_t stage = 0; stage < lines; ++stage) {
      std::printf("%8zu ", stage);
      for (size_t dp = from; dp < to; ++dp) std::putchar(shade(cells[stage * columns + dp]));
      std::printf("\n");
    }
  }
  std::printf("%8s . under 1.03   : 1.03   + 1.10   * 1.20   # 1.50 and more\n", "");
}

void print_workers(const WhatIf& result, int64_t top) {
  std::printf("\n%-8s %8s %8s %10s\n", "RANK", "DP", "STAGE", "SLOWDOWN");
  int64_t shown = 0;
  for (const WorkerCost& cost : result.workers) {
    if (shown >= top) break;
    if (std::isnan(cost.slowdown)) break;
    ++shown;
    const std::string dp = cost.worker.dp < 0 ? "-" : format("%d", cost.worker.dp);
    const std::string stage = cost.worker.stage < 0 ? "-" : format("%d", cost.worker.stage);
    std::printf("%-8d %8s %8s %9.2fx\n", cost.worker.rank.value(), dp.c_str(), stage.c_str(), cost.slowdown);
  }
  if (result.workers.size() > static_cast<size_t>(shown))
    std::printf("%lld of %zu workers, worst first; --top N shows more\n", static_cast<long long>(shown),
                result.workers.size());
}

void print_answer(const Answered& answered, const Options& options) {
  const WhatIf& result = answered.result;
  const std::string grid =
      result.dp_ranks > 0 ? format(" (%d data-parallel x %d stages)", result.dp_ranks, result.stages) : std::string();
  std::printf("%s · %zu %s · %zu workers%s · %s GPUs\n\n", answered.name.c_str(), result.steps,
              result.steps == 1 ? "step" : "steps", result.workers.size(), grid.c_str(),
              with_thousands(result.gpus).c_str());
  print_wrapped(sentence_of(result));
  std::printf("\n%-20s %12s\n", "step as recorded", seconds(result.recorded_s).c_str());
  std::printf("%-20s %12s   off by %.1f %%, at most %.1f %%\n", "replayed", seconds(result.replayed_s).c_str(),
              result.replay_error * 100, result.replay_error_worst * 100);
  std::printf("%-20s %12s\n", "evenly spread", seconds(result.ideal_s).c_str());
  std::printf("%-20s %11.2fx   worst step %.2fx\n", "slowdown", result.slowdown, result.slowest_step);
  std::string lost = format("%s a step, %s in all", gpu_time(result.lost_gpu_s_per_step()).c_str(),
                            gpu_time(result.lost_gpu_s()).c_str());
  if (options.price > 0)
    lost += format(", %.2f at %.2f a GPU-hour", result.lost_gpu_s() / 3600 * options.price, options.price);
  std::printf("%-20s %s\n", "lost", lost.c_str());

  const double loss = result.recorded_s - result.ideal_s;
  const double gaps = loss > 0 ? std::max(0.0, result.recorded_s - result.replayed_s) / loss : 0;
  print_parts("CAUSE", result.causes, result.causes_unexplained, gaps);
  print_parts("OPERATIONS", result.types, result.types_unexplained, gaps);
  std::printf("\nSHARE of the loss; WINS by fixing it alone; SLOWDOWN with it alone and all else even.\n");
  print_workers(result, options.top);
  print_heat(result);
  std::printf("\n");
  std::string measures;
  if (!std::isnan(result.worst_workers_share))
    measures += format("Fixing the worst 3 %% of workers wins %.2f of the loss (M_W). ",
                       without_minus(result.worst_workers_share));
  if (!std::isnan(result.last_stage_share))
    measures += format("Fixing the last stage wins %.2f (M_S). ", without_minus(result.last_stage_share));
  if (!std::isnan(result.forward_backward_correlation))
    measures +=
        format("Forward and backward of a micro-batch go together by %.2f.", result.forward_backward_correlation);
  if (!measures.empty()) print_wrapped(std::string(trim(measures)));
  for (const std::string& note : answered.notes) print_wrapped(note + ".");
}

void write_parts(JsonWriter& json, const char* name, const std::vector<Part>& parts, double unexplained) {
  json.key(name).begin_array();
  for (const Part& part : parts)
    json.begin_object()
        .field("name", part.name)
        .field("share", part.share)
        .field("recovered_s", part.recovered_s)
        .field("slowdown", part.slowdown)
        .end_object();
  json.end_array().field(std::string(name) + "_unexplained", unexplained);
}

void write_answer(JsonWriter& json, const Answered& answered, const Options& options) {
  const WhatIf& result = answered.result;
  json.begin_object()
      .field("trace", answered.name)
      .field("sentence", sentence_of(result))
      .field("operations", static_cast<uint64_t>(result.operations))
      .field("steps", static_cast<uint64_t>(result.steps))
      .field("workers_total", static_cast<uint64_t>(result.workers.size()))
      .field("gpus", result.gpus)
      .field("dp_ranks", result.dp_ranks)
      .field("stages", result.stages)
      .field("recorded_s", result.recorded_s)
      .field("replayed_s", result.replayed_s)
      .field("ideal_s", result.ideal_s)
      .field("slowdown", result.slowdown)
      .field("slowest_step", result.slowest_step)
      .field("replay_error", result.replay_error)
      .field("replay_error_worst", result.replay_error_worst)
      .field("worst_workers_share", result.worst_workers_share)
      .field("last_stage_share", result.last_stage_share)
      .field("forward_backward_correlation", result.forward_backward_correlation)
      .field("lost_gpu_s_per_step", result.lost_gpu_s_per_step())
      .field("lost_gpu_s", result.lost_gpu_s())
      .key("lost_money");
  options.price > 0 ? json.number(result.lost_gpu_s() / 3600 * options.price) : json.null();
  json.key("worst_ranks").begin_array();
  for (const Rank rank : result.worst_ranks) json.number(rank.value());
  json.end_array();
  write_parts(json, "causes", result.causes, result.causes_unexplained);
  write_parts(json, "types", result.types, result.types_unexplained);
  json.key("workers").begin_array();
  for (const WorkerCost& cost : result.workers)
    json.begin_object()
        .field("rank", cost.worker.rank.value())
        .field("dp", cost.worker.dp)
        .field("stage", cost.worker.stage)
        .field("slowdown", cost.slowdown)
        .field("estimate", cost.estimate)
        .end_object();
  json.end_array().key("dp_slowdown").begin_array();
  for (const double value : result.dp_slowdown) json.number(value);
  json.end_array().key("stage_slowdown").begin_array();
  for (const double value : result.stage_slowdown) json.number(value);
  json.end_array().key("notes").begin_array();
  for (const std::string& note : answered.notes) json.string(note);
  json.end_array()
      .key("took_ms")
      .begin_object()
      .field("read", answered.read_ms)
      .field("build", answered.built_ms)
      .field("replay", answered.replayed_ms)
      .end_object()
      .end_object();
}

Result<std::string> unpack_page(PageCodec codec, std::string_view packed, uint64_t bytes_max) {
  if (codec == PageCodec::kSnappy) {
    std::string plain;
    LOCKSTEP_TRY(snappy_decompress(packed, bytes_max, plain));
    return plain;  // it was empty, so it is as long as what came out
  }
  return decompress(codec == PageCodec::kGzip ? Encoding::kGzip : Encoding::kZstd, packed, bytes_max);
}

std::string file_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// meta-NAME.yaml beside trace-NAME.parquet, where it is there.
Result<PipelineMeta> meta_beside(const std::string& path) {
  const std::string name = file_name(path);
  constexpr std::string_view kBegin = "trace-", kEnd = ".parquet";
  if (name.size() <= kBegin.size() + kEnd.size() || !name.starts_with(kBegin) || !name.ends_with(kEnd))
    return PipelineMeta{};
  const std::string folder = path.substr(0, path.size() - name.size());
  const std::string middle = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  const std::string beside = folder + "meta-" + middle + ".yaml";
  struct stat found {};
  if (stat(beside.c_str(), &found) != 0) return PipelineMeta{};
  std::string text = LOCKSTEP_TRY(read_file(beside, kMetaBytesMax));
  return parse_pipeline_meta(text);
}

Answered answer_of(const std::string& name, OpGraph graph, int64_t gpus, Answered answered) {
  if (gpus > 0) graph.gpus = gpus;
  const auto start = std::chrono::steady_clock::now();
  answered.name = name;
  answered.result = what_if(graph);
  answered.replayed_ms = elapsed_ms(start);
  return answered;
}

Result<Answered> answer_file(const std::string& path, int64_t gpus) {
  Answered answered;
  auto start = std::chrono::steady_clock::now();
  PipelineMeta meta = LOCKSTEP_TRY(meta_beside(path));
  std::string bytes = LOCKSTEP_TRY(read_file(path, kTraceBytesMax));
  ParquetTable table = LOCKSTEP_TRY(read_parquet(bytes, pipeline_trace_columns(), unpack_page));
  answered.read_ms = elapsed_ms(start);
  start = std::chrono::steady_clock::now();
  OpGraph graph = LOCKSTEP_TRY(graph_of_pipeline_trace(table, meta, answered.notes));
  answered.built_ms = elapsed_ms(start);
  if (meta.world_size == 0 && gpus == 0)
    answered.notes.push_back("How many GPUs there are is not reported: one per worker is counted (--gpus N)");
  return answer_of(file_name(path), std::move(graph), gpus, std::move(answered));
}

// The traces under a path; empty: it is no folder.
Result<std::vector<std::string>> traces_in(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return Error{format("%s: there is no such file or folder", path.c_str())};
  if (!S_ISDIR(found.st_mode)) return std::vector<std::string>{path};
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(path));
  std::vector<std::string> traces;
  for (const std::string& name : names) {
    if (name.ends_with(".parquet")) traces.push_back(path + "/" + name);
  }
  if (traces.empty()) return Error{format("%s: no .parquet file in this folder", path.c_str())};
  return traces;
}

int failed(const std::string& what) {
  std::fprintf(stderr, "lockstep whatif: %s\n", what.c_str());
  return kExitFailed;
}

// A step of a job, as the server has it.
struct StepAsked {
  std::string server, job, step;
};

// What it says, or the exit code with which the command ends; the reason has been printed.
std::optional<int> answer_step(const StepAsked& asked, int64_t gpus, std::vector<Answered>& answers) {
  const auto start = std::chrono::steady_clock::now();
  TracedStep traced = fetch_traced_step(asked.server, asked.job, asked.step);
  if (traced.exit_code != kExitOk) return print_failure({.exit_code = traced.exit_code, .message = traced.message});
  Answered answered;
  answered.read_ms = elapsed_ms(start);
  answered.notes = traced.notes;
  const std::string name = format("%s step %s", asked.job.c_str(), with_thousands(traced.step.value()).c_str());
  Result<OpGraph> graph = graph_of_traced_ranks(traced.ranks, traced.step, answered.notes);
  if (!graph.ok()) return failed(graph.error());
  answers.push_back(answer_of(name, std::move(*graph), gpus, std::move(answered)));
  return std::nullopt;
}

std::optional<int> answer_traces(const std::string& path, int64_t gpus, std::vector<Answered>& answers) {
  Result<std::vector<std::string>> traces = traces_in(path);
  if (!traces.ok()) {
    failed(traces.error());
    return kExitNotFound;
  }
  for (const std::string& trace : *traces) {
    Result<Answered> result = answer_file(trace, gpus);
    if (!result.ok()) return failed(trace + ": " + result.error());
    answers.push_back(std::move(*result));
  }
  return std::nullopt;
}

void print_answers(const std::vector<Answered>& answers, const Options& options) {
  if (options.json) {
    JsonWriter json;
    json.begin_object().key("traces").begin_array();
    for (const Answered& one : answers) write_answer(json, one, options);
    json.end_array().end_object();
    std::printf("%s\n", json.text().c_str());
    return;
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    if (i > 0) std::printf("\n%s\n\n", std::string(prose_columns(), '-').c_str());
    print_answer(answers[i], options);
  }
}

}  // namespace

int run_whatif(const Arguments& arguments) {
  Options options;
  StepAsked asked{.server = default_server(), .job = "", .step = "latest"};
  int64_t gpus = 0;
  Flags flags("lockstep whatif", "what a step would take with the work evenly spread, and what each part costs",
              "[TRACE]");
  flags.text(&asked.job, "--job", "JOB", "a step of this job, as the server has it in detail, instead of TRACE")
      .text(&asked.step, "--step", "N", "of that job (default: the newest in detail)")
      .decimal(&options.price, "--gpu-hour-price", "X", "what a GPU-hour costs, in any money", 0, 1e6)
      .number(&gpus, "--gpus", "N", "GPUs of the job (default: as the trace says, else one per worker)", 0, 100'000'000)
      .number(&options.top, "--top", "N", "workers to list (default 5)", 0, 1'000'000)
      .toggle(&options.json, "--json", "the answer as JSON");
  add_server_flags(flags, &asked.server);
  if (std::optional<int> code =
          answered(flags, arguments,
                   "TRACE: a .parquet file as ByteDance-Seed/StragglerAnalysis publishes them, or a "
                   "folder of such\n"))
    return *code;
  const std::vector<std::string>& words = flags.positional();
  if (words.empty() == asked.job.empty()) {
    failed("takes either a trace or --job");
    return kExitUsage;
  }
  const std::optional<int64_t> number = parse_shown_int(asked.step);
  if (asked.step != "latest" && (!number || *number < 0)) {
    failed(format("\"%s\" is not a step; a step is a whole number", asked.step.c_str()));
    return kExitUsage;
  }
  if (number) asked.step = std::to_string(*number);

  std::vector<Answered> answers;
  const std::optional<int> ended =
      asked.job.empty() ? answer_traces(words[0], gpus, answers) : answer_step(asked, gpus, answers);
  if (ended) return *ended;
  print_answers(answers, options);
  return kExitOk;
}

}  // namespace lockstep::cli
