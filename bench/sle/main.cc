// The SLE ledger of a large fleet: 100,000 GPUs in 320 jobs for 30 days, every minute of every job judged by 13 SLEs. What it
// takes on disk and in memory, how long a start takes, and how long each query of the page does. Prints markdown.
//
//   sle_bench FOLDER [--days N]
//
// Shape: 4 jobs of 8,192 GPUs, 16 of 2,048, 100 of 256 and 200 of 48; each has a restart on other hosts every five days, and about
// every four hours an episode of 2 to 60 minutes: a verdict that degrades all its GPUs, a fault of one GPU, a silent host, or a
// stretch that nobody explains. The seed is fixed. Totals are compared with a sum kept beside it, so that fast and wrong fails.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "sle/ledger.h"
#include "sle/ledger_query.h"
#include "store/sle_counters.h"

namespace lockstep::sle {
namespace {

constexpr int32_t kFirst = 29'000'000;
constexpr int kRepeats = 15;

double seconds_of(const std::function<void()>& what) {
  const auto began = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

struct PlayedJob {
  std::string id;
  int32_t gpus = 0;
  std::shared_ptr<const Placement> placement;
  int32_t episode_end = 0;
  int kind = 0;
  Owner owner;
  Rank hurt_rank;
};

std::shared_ptr<const Placement> place(const PlayedJob& job, int attempt, std::mt19937& random) {
  auto placement = std::make_shared<Placement>();
  placement->gpu_model = "NVIDIA H100 80GB HBM3";
  const auto base = static_cast<int32_t>(random() % 12'500);
  for (int32_t rank = 0; rank < job.gpus; ++rank) {
    const int32_t host = (base + rank / 8) % 12'500;
    if (rank % 8 == 0)
      placement->hosts.push_back({Rank{rank}, std::min(8, job.gpus - rank), format("node-%05d", host)});
    placement->gpus.push_back(
        format("GPU-%08x-%04d-%d", static_cast<unsigned>(host * 8 + rank % 8), attempt, rank % 8));
  }
  return placement;
}

void begin_episode(PlayedJob& job, int32_t minute, std::mt19937& random) {
  static const char* const kLayers[] = {"gpu", "host", "input", "nic", "link", "switch", "software"};
  job.episode_end = minute + 2 + static_cast<int32_t>(random() % 59);
  job.kind = static_cast<int>(random() % 4);
  job.hurt_rank = Rank{static_cast<int32_t>(random() % static_cast<uint32_t>(job.gpus))};
  if (job.kind != 0 && job.kind != 1) return;
  const char* layer = kLayers[random() % 7];
  job.owner = {.key = format("%s-%d", job.id.c_str(), minute),
               .classifier = layer,
               .sub = "cause-" + std::to_string(random() % 4),
               .kind = CulpritKind::kGpu,
               .culprit = format("GPU of rank %d", job.hurt_rank.value()),
               .host = job.placement->hosts[index_of(job.hurt_rank) / 8].host,
               .job_id = job.id,
               .weight = 0.2f};
}

JudgedMinute judged(const PlayedJob& job, int32_t minute) {
  JudgedMinute one{.minute = minute, .evidence = static_cast<uint64_t>(job.gpus) * 60, .placement = job.placement};
  const RankCells good = all_ranks(job.gpus, Cell::good());
  for (size_t i = 0; i < 13; ++i) one.cells[i] = good;
  if (minute >= job.episode_end) return one;
  if (job.kind == 0 || job.kind == 1) one.owners = {job.owner};
  const auto set = [&](Sle sle, RankCells cells) { one.cells[static_cast<size_t>(sle)] = std::move(cells); };
  const RankSpans rank = {{job.hurt_rank, job.hurt_rank + 1}};
  const Rank host{job.hurt_rank.value() / 8 * 8};
  if (job.kind == 0)
    for (const Sle sle : {Sle::kProgress, Sle::kMfu, Sle::kSkew, Sle::kGoodput})
      set(sle, all_ranks(job.gpus, Cell::degraded(1)));
  if (job.kind == 1) set(Sle::kGpu, with(good, rank, Cell::degraded(1)));
  if (job.kind == 2)
    for (const Sle sle : {Sle::kProgress, Sle::kGpu, Sle::kNic, Sle::kHost})
      set(sle, with(good, {{host, host + 8}}, Cell::unknown()));
  if (job.kind == 3) set(Sle::kProgress, all_ranks(job.gpus, Cell::degraded(kUnexplained)));
  return one;
}

uint64_t bytes_in(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) bytes += file.file_size();
  return bytes;
}

struct Played {
  int64_t gpu_minutes = 0;
  int64_t degraded = 0;  // of progress
  size_t puts = 0;
  double seconds = 0;
};

std::vector<PlayedJob> make_jobs() {
  std::vector<PlayedJob> jobs;
  for (const auto& [count, gpus] : {std::pair{4, 8192}, {16, 2048}, {100, 256}, {200, 48}})
    for (int i = 0; i < count; ++i)
      jobs.push_back({.id = format("job-%d-%d", gpus, i), .gpus = static_cast<int32_t>(gpus)});
  return jobs;
}

Played play(Ledger& ledger, std::vector<PlayedJob>& jobs, int32_t days) {
  std::mt19937 random(1);
  Played played;
  played.seconds = seconds_of([&] {
    for (int32_t minute = kFirst; minute < kFirst + days * 1440; ++minute) {
      for (size_t i = 0; i < jobs.size(); ++i) {
        PlayedJob& job = jobs[i];
        const int32_t age = minute - kFirst + static_cast<int32_t>(i) * 17;
        if (!job.placement || age % (5 * 1440) == 0) job.placement = place(job, age / (5 * 1440), random);
        if (minute >= job.episode_end && random() % 240 == 0) begin_episode(job, minute, random);
        ledger.put(job.id, judged(job, minute));
        ++played.puts;
        played.gpu_minutes += job.gpus;
        if (minute < job.episode_end && (job.kind == 0 || job.kind == 3)) played.degraded += job.gpus;
      }
      if (minute % 60 == 0) (void)ledger.flush();
    }
    (void)ledger.flush();
  });
  return played;
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void print_query(const char* name, const std::function<void()>& query) {
  std::vector<double> times, cpu;
  for (int i = 0; i < kRepeats; ++i) {
    const double began = cpu_seconds();
    times.push_back(1e3 * seconds_of(query));
    cpu.push_back(1e3 * (cpu_seconds() - began));
  }
  std::sort(times.begin(), times.end());
  std::sort(cpu.begin(), cpu.end());
  std::printf("| %s | %.1f | %.1f | %.1f |\n", name, times[kRepeats / 2], times.back(), cpu[kRepeats / 2]);
}

int failed(const std::string& why) {
  std::fprintf(stderr, "sle_bench: %s\n", why.c_str());
  return 1;
}

// What it took, beside the ledger itself.
struct Sizes {
  int32_t days = 0;
  uint64_t bytes_before = 0, bytes = 0;  // before the start, and since
  double open_s = 0;
};

void print_sizes(const Ledger& ledger, const Played& played, size_t jobs, const Sizes& sizes) {
  std::printf("# SLE ledger: a large fleet for %d days\n\nMade by `./dev bench sle`: ", sizes.days);
  std::printf(
      "%s GPUs in %zu jobs on 12,500 hosts, every minute of every job judged by 13 SLEs, an episode (verdict, faulty "
      "GPU, ",
      with_thousands(played.gpu_minutes / (sizes.days * 1440)).c_str(), jobs);
  std::printf("silent host, unexplained) about every four hours in each job, other hosts every five days.\n\n");
  std::printf("| | |\n|---|---|\n| GPU-minutes x SLEs | %s |\n| of progress degraded | %.2f %% |\n",
              with_thousands(13 * played.gpu_minutes).c_str(),
              100.0 * static_cast<double>(played.degraded) / static_cast<double>(played.gpu_minutes));
  std::printf("| runs in memory (12 bytes each) | %s |\n",
              with_thousands(static_cast<int64_t>(ledger.run_count())).c_str());
  std::printf("| on disk, snapshot | %s |\n", human_bytes(static_cast<double>(sizes.bytes)).c_str());
  std::printf("| on disk before the start, snapshot and log | %s |\n",
              human_bytes(static_cast<double>(sizes.bytes_before)).c_str());
  std::printf("| one minute of one job put down | %.1f us |\n",
              1e6 * played.seconds / static_cast<double>(played.puts));
  std::printf("| a start: read back and a new snapshot | %.2f s |\n\n", sizes.open_s);
}

// GPUs of one rail, of all jobs.
std::set<std::string> one_rail(const std::vector<PlayedJob>& jobs) {
  std::set<std::string> rail;
  for (const PlayedJob& job : jobs)
    for (size_t rank = 0; rank < job.placement->gpus.size(); rank += 8) rail.insert(job.placement->gpus[rank]);
  return rail;
}

template <typename Query>
void print_queries(Ledger& ledger, const std::vector<PlayedJob>& jobs, int32_t days, const Query& query) {
  std::printf("| query of the page, %d times | median, ms | worst, ms | processor, median, ms |\n", kRepeats);
  std::printf("|---|---|---|---|\n");
  const auto ask = [&](SleQuery one) { return [&ledger, one] { (void)ledger.totals(one); }; };
  const std::string host = jobs[0].placement->hosts[3].host, gpu = jobs[0].placement->gpus[9];
  print_query("all SLEs, fleet, 24 hours", ask(query(1440)));
  print_query(("all SLEs, fleet, " + std::to_string(days) + " days").c_str(), ask(query(days * 1440)));
  print_query("all SLEs, one job of 8,192 GPUs, all days", ask(query(days * 1440, {.job_id = "job-8192-0"})));
  print_query("all SLEs, one host, all days", ask(query(days * 1440, {.hosts = {host}})));
  print_query("all SLEs, one GPU, all days", ask(query(days * 1440, {.gpus = std::set{gpu}})));
  const std::set<std::string> rail = one_rail(jobs);
  print_query(("all SLEs, " + with_thousands(static_cast<int64_t>(rail.size())) + " GPUs of a rail, all days").c_str(),
              ask(query(days * 1440, {.gpus = rail})));
  const auto detail = [&](SleQuery one) {
    return [&ledger, one]() mutable {
      one.only = Sle::kProgress;
      (void)ledger.totals(one);
      (void)ledger.affected(one, Sle::kProgress, 20);
    };
  };
  print_query("progress with who was hurt and who is charged, fleet, 24 hours", detail(query(1440)));
  print_query("the same, all days", detail(query(days * 1440)));
  SleQuery chosen = query(days * 1440);
  chosen.charged_to = [](const Owner& owner) { return owner.classifier == "gpu"; };
  print_query("the same, classifier gpu, all days", detail(chosen));
}

int run(const std::string& folder, int32_t days) {
  Counters counters(kSleCounters);
  const SystemClock clock;
  std::vector<PlayedJob> jobs = make_jobs();
  Played played;
  {
    auto ledger = Ledger::open({.folder = folder}, clock, counters);
    if (!ledger.ok()) return failed(ledger.error());
    played = play(**ledger, jobs, days);
  }
  Sizes sizes{.days = days, .bytes_before = bytes_in(folder)};
  std::unique_ptr<Ledger> ledger;
  sizes.open_s = seconds_of([&] {
    auto opened = Ledger::open({.folder = folder}, clock, counters);
    if (opened.ok()) ledger = std::move(*opened);
  });
  if (!ledger) return failed("the ledger cannot be opened again");
  const int32_t end = kFirst + days * 1440;
  const GpuPrices prices(2.5);
  const auto query = [&](int32_t minutes, Scope scope = {}) {
    return SleQuery{.scope = std::move(scope),
                    .from = end - minutes,
                    .end = end,
                    .bucket_minutes = std::max(1, minutes / 96),
                    .prices = &prices};
  };
  const SleTotals progress = ledger->totals(query(days * 1440))[0];
  if (progress.minutes.total() != played.gpu_minutes || progress.minutes.degraded != played.degraded)
    return failed("the ledger has other minutes than were put down");
  sizes.bytes = bytes_in(folder);
  print_sizes(*ledger, played, jobs.size(), sizes);
  print_queries(*ledger, jobs, days, query);
  return 0;
}

}  // namespace
}  // namespace lockstep::sle

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: sle_bench FOLDER [--days N]\n"), 2;
  const int32_t days = argc > 3 && std::string(argv[2]) == "--days" ? std::atoi(argv[3]) : 30;
  return lockstep::sle::run(argv[1], std::clamp(days, 1, 365));
}
