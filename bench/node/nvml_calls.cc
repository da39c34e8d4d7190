// What each call to NVIDIA's management library costs on this machine, as a markdown table: the calls that the agent
// makes, batched and one by one, and the agent's whole readings.
//
//   g++ -std=c++20 -O2 -Isrc bench/node/nvml_calls.cc $(ls src/sources/nvml/*.cc | grep -v _test) src/base/text.cc
//       -ldl -o nvml_calls
//   ./nvml_calls [--library PATH] [--gpu INDEX] [--count CALLS] [--ticks TICKS]
//
// What 8 GPUs would cost where there is one: the stand-in library shows it eight times (the numbers then say "one real
// GPU, seven replayed").
//   g++ -std=c++20 -O2 -fPIC -shared -Isrc -I. tests/standins/nvml/*.cc src/sources/nvml/nvml_library.cc
//       -ldl -o libnvidia-ml-standin.so
//   echo "real libnvidia-ml.so.1 copies 8" > eight
//   LOCKSTEP_NVML_STANDIN=eight ./nvml_calls --library ./libnvidia-ml-standin.so
//
// The table goes to the standard output; which fields and metrics have no value, and all values of one GPU, go to the
// standard error.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "sources/gpu/gpu_metrics.h"
#include "sources/gpu/gpu_reader.h"
#include "sources/nvml/nvml_abi.h"
#include "sources/nvml/nvml_fields.h"
#include "sources/nvml/nvml_gpm.h"
#include "sources/nvml/nvml_library.h"

using namespace lockstep;

namespace {

int64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

struct Options {
  std::string library;
  uint32_t gpu = 0;
  int count = 500;
  int ticks = 20;
};

class Table {
 public:
  Table() {
    std::printf("| call | status | calls | p50 us | p99 us | max us | mean CPU us |\n");
    std::printf("|---|---|---:|---:|---:|---:|---:|\n");
  }
  // Runs `call` `count` times; a call that is not supported is tried once.
  void row(const std::string& name, int count, const std::function<int()>& call) {
    int status = 0;
    std::vector<double> wall_us;
    const int64_t cpu_begun = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < count; ++i) {
      const int64_t begun = now_ns(CLOCK_MONOTONIC);
      status = call();
      wall_us.push_back(static_cast<double>(now_ns(CLOCK_MONOTONIC) - begun) * 1e-3);
      if (status == nvml::kNotSupported || status == nvml::kFunctionNotFound || status == nvml::kWrongVersion) break;
    }
    const double cpu_us = static_cast<double>(now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_begun) * 1e-3;
    print(name, status, wall_us, cpu_us / static_cast<double>(std::max<size_t>(1, wall_us.size())));
  }
  void print(const std::string& name, int status, std::vector<double> wall_us, double cpu_us) {
    if (wall_us.empty()) return;
    std::sort(wall_us.begin(), wall_us.end());
    const auto at = [&](double share) {
      return wall_us[std::min(wall_us.size() - 1, static_cast<size_t>(share * static_cast<double>(wall_us.size())))];
    };
    std::printf("| %s | %s | %zu | %.1f | %.1f | %.1f | %.1f |\n", name.c_str(), nvml::status_text(status),
                wall_us.size(), at(0.5), at(0.99), wall_us.back(), cpu_us);
    std::fflush(stdout);
  }
};

template <typename... Parameters, typename... Arguments>
void measure(Table& table, int count, const std::string& note, const nvml::Function<Parameters...>& function,
             Arguments... arguments) {
  const std::string name = std::string(function.name) + (note.empty() ? "" : " (" + note + ")");
  table.row(name, count, [&] { return function.call ? function.call(arguments...) : int{nvml::kFunctionNotFound}; });
}

std::vector<nvml::FieldValue> fields_of(const std::vector<nvml::FieldRow>& rows) {
  std::vector<nvml::FieldValue> fields;
  for (const nvml::FieldRow& row : rows) {
    nvml::FieldValue field;
    field.field = row.field;
    field.scope = row.scope;
    fields.push_back(field);
  }
  return fields;
}

void measure_fields(Table& table, const nvml::Api& api, nvml::Handle gpu, int count, const char* what,
                    std::vector<nvml::FieldValue> fields) {
  if (!api.field_values.call || fields.empty()) return;
  api.field_values.call(gpu, static_cast<int>(fields.size()), fields.data());
  const size_t asked = fields.size();
  std::string missing;
  for (const nvml::FieldValue& field : fields) {
    if (field.status != nvml::kOk) missing += " " + std::to_string(field.field) + ":" + std::to_string(field.status);
  }
  std::erase_if(fields, [](const nvml::FieldValue& field) { return field.status != nvml::kOk; });
  const std::string of = std::string(what) + ", " + std::to_string(fields.size()) + " of " + std::to_string(asked);
  const int n = static_cast<int>(fields.size());
  if (n > 0) {
    table.row("nvmlDeviceGetFieldValues (" + of + " fields, one call)", count,
              [&] { return api.field_values.call(gpu, n, fields.data()); });
    table.row("nvmlDeviceGetFieldValues (" + of + " fields, one by one: the sum)", std::max(10, count / 10), [&] {
      int status = nvml::kOk;
      for (nvml::FieldValue& field : fields) status = std::max(status, api.field_values.call(gpu, 1, &field));
      return status;
    });
    for (nvml::FieldValue& field : fields) {
      table.row("nvmlDeviceGetFieldValues (" + std::string(what) + ", field " + std::to_string(field.field) + " alone)",
                std::max(10, count / 10), [&] { return api.field_values.call(gpu, 1, &field); });
    }
  }
  if (!missing.empty() && std::string(what) != "links") {
    std::fprintf(stderr, "%s fields without a value (field:status):%s\n", what, missing.c_str());
  }
}

void measure_gpm(Table& table, const nvml::Api& api, nvml::Handle gpu, int count) {
  nvml::GpmSupport support;
  measure(table, count, "", api.gpm_support, gpu, &support);
  if (!api.gpm_sample_alloc.call || support.supported == 0) {
    std::fprintf(stderr, "GPM is not supported here\n");
    return;
  }
  nvml::Handle older = nullptr;
  nvml::Handle newer = nullptr;
  if (api.gpm_sample_alloc.call(&older) != nvml::kOk || api.gpm_sample_alloc.call(&newer) != nvml::kOk) return;
  measure(table, count, "", api.gpm_sample_get, gpu, older);
  usleep(250'000);
  api.gpm_sample_get.call(gpu, newer);
  nvml::GpmMetricsGet get;
  get.older = older;
  get.newer = newer;
  get.count = static_cast<uint32_t>(nvml::kGpmRows.size());
  for (size_t i = 0; i < nvml::kGpmRows.size(); ++i) get.metrics[i].id = nvml::kGpmRows[i].id;
  const std::string n = std::to_string(get.count);
  measure(table, count, n + " metrics, one call", api.gpm_metrics_get, &get);
  std::string values;
  for (uint32_t i = 0; i < get.count; ++i) {
    char text[64];
    std::snprintf(text, sizeof(text), " %u:%.3f(%d)", get.metrics[i].id, get.metrics[i].value, get.metrics[i].status);
    values += text;
  }
  std::fprintf(stderr, "GPM metrics id:value(status):%s\n", values.c_str());
  table.row("nvmlGpmMetricsGet (" + n + " metrics, one by one: the sum)", std::max(10, count / 10), [&] {
    int status = nvml::kOk;
    for (const nvml::GpmRow& row : nvml::kGpmRows) {
      nvml::GpmMetricsGet one;
      one.older = older;
      one.newer = newer;
      one.count = 1;
      one.metrics[0].id = row.id;
      status = std::max(status, api.gpm_metrics_get.call(&one));
    }
    return status;
  });
  api.gpm_sample_free.call(older);
  api.gpm_sample_free.call(newer);
}

void measure_calls(Table& table, const nvml::Api& api, nvml::Handle gpu, int count) {
  nvml::Utilization utilization;
  nvml::MemoryV2 memory_v2;
  nvml::MemoryV1 memory_v1;
  nvml::Temperature temperature;
  nvml::MarginTemperature margin;
  nvml::EccSram sram;
  nvml::RowRemapperHistogram banks;
  nvml::RepairStatus repair;
  nvml::FabricInfo fabric;
  nvml::LicensableFeatures license;
  nvml::PciInfo pci;
  uint32_t a = 0;
  uint32_t b = 0;
  uint64_t wide = 0;
  char text[97] = {};
  measure(table, count, "fast", api.utilization, gpu, &utilization);
  measure(table, count, "fast", api.memory_v2, gpu, &memory_v2);
  measure(table, count, "fast, SM", api.clock, gpu, 1u, &a);
  measure(table, count, "fast, memory", api.clock, gpu, 2u, &a);
  measure(table, count, "fast", api.temperature_v, gpu, &temperature);
  measure(table, count, "where the one above is missing", api.temperature, gpu, 0u, &a);
  measure(table, count, "where field 185 is missing", api.power_usage, gpu, &a);
  measure(table, count, "where field 83 is missing", api.total_energy, gpu, &wide);
  measure(table, count, "slow", api.encoder_utilization, gpu, &a, &b);
  measure(table, count, "slow", api.decoder_utilization, gpu, &a, &b);
  measure(table, count, "slow", api.bar1, gpu, &memory_v1);
  measure(table, count, "slow, video", api.clock, gpu, 3u, &a);
  measure(table, count, "slow", api.temperature_margin, gpu, &margin);
  measure(table, count, "slow", api.performance_state, gpu, &a);
  measure(table, count, "slow", api.pcie_generation, gpu, &a);
  measure(table, count, "slow", api.pcie_width, gpu, &a);
  measure(table, count, "slow", api.sram_ecc, gpu, &sram);
  measure(table, count, "slow", api.row_remapper_histogram, gpu, &banks);
  measure(table, count, "slow", api.repair_status, gpu, &repair);
  measure(table, count, "slow, version 3", api.fabric_info, gpu, &fabric);
  fabric = {};
  fabric.version = nvml::kFabricInfoV2;
  measure(table, count, "slow, version 2", api.fabric_info, gpu, &fabric);
  measure(table, count, "slow", api.mig_mode, gpu, &a, &b);
  for (uint32_t which = 0; which < 4; ++which) {
    measure(table, count / 10 + 1, "limit " + std::to_string(which), api.temperature_threshold, gpu, which, &a);
  }
  measure(table, count / 10 + 1, "limit, SM", api.clock_max, gpu, 1u, &a);
  measure(table, count / 10 + 1, "limit", api.pcie_generation_max, gpu, &a);
  measure(table, count / 10 + 1, "limit", api.pcie_width_max, gpu, &a);
  measure(table, count / 10 + 1, "limit", api.licensable_features, gpu, &license);
  measure(table, count / 10 + 1, "at start", api.name, gpu, text, 96u);
  measure(table, count / 10 + 1, "slow", api.uuid, gpu, text, 96u);
  measure(table, count / 10 + 1, "at start", api.serial, gpu, text, 96u);
  measure(table, count / 10 + 1, "at start", api.pci_info, gpu, &pci);
  measure(table, count / 10 + 1, "at start", api.minor_number, gpu, &a);
  std::vector<nvml::ProcessInfo> processes(512);
  table.row(std::string(api.processes.name) + " (now and then)", count / 5 + 1, [&] {
    a = static_cast<uint32_t>(processes.size());
    return api.processes.call ? api.processes.call(gpu, &a, processes.data()) : int{nvml::kFunctionNotFound};
  });

  measure_fields(table, api, gpu, count, "fast", fields_of(nvml::kFastFields));
  measure_fields(table, api, gpu, count / 5 + 1, "slow", fields_of(nvml::kSlowFields));
  std::vector<nvml::FieldValue> links;
  for (uint32_t link = 0; link < 18; ++link) {
    for (uint32_t id : {165u, 138u, 139u, 161u, 162u, 163u, 202u, 204u, 208u, 215u, 219u, 221u}) {
      nvml::FieldValue field;
      field.field = id;
      field.scope = link;
      links.push_back(field);
    }
  }
  measure_fields(table, api, gpu, count / 5 + 1, "links", links);
  measure_gpm(table, api, gpu, count);

  nvml::Handle set = nullptr;
  if (api.event_set_create.call && api.event_set_create.call(&set) == nvml::kOk) {
    measure(table, 1, "at start", api.events_register, gpu, uint64_t{nvml::kEventXid}, set);
    nvml::EventData event;
    measure(table, count, "fast, nothing to tell", api.event_set_wait, set, &event, 0u);
    api.event_set_free.call(set);
  }
}

// Whole readings of all GPUs, as the agent makes them.
int measure_reader(Table& table, const Options& options) {
  auto opened = open_nvml_reader(options.library);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.error().c_str());
    return 1;
  }
  GpuReader& reader = **opened;
  GpuSnapshot last;
  const auto ticks = [&](const char* name, int count, bool slow, bool processes) {
    std::vector<double> wall_us;
    int64_t cpu_ns = 0;
    for (int i = 0; i < count; ++i) {
      usleep(120'000);  // no faster than GPM is refreshed
      const int64_t cpu_begun = now_ns(CLOCK_PROCESS_CPUTIME_ID);
      const int64_t begun = now_ns(CLOCK_MONOTONIC);
      auto snapshot = reader.read({now_ns(CLOCK_REALTIME), slow, processes});
      wall_us.push_back(static_cast<double>(now_ns(CLOCK_MONOTONIC) - begun) * 1e-3);
      cpu_ns += now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_begun;
      if (!snapshot.ok()) {
        std::fprintf(stderr, "%s\n", snapshot.error().c_str());
        return;
      }
      for (const std::string& note : snapshot->notes) std::fprintf(stderr, "%s\n", note.c_str());
      last = std::move(snapshot).value();
    }
    table.print(name, nvml::kOk, wall_us, static_cast<double>(cpu_ns) * 1e-3 / std::max(1, count));
  };
  ticks("whole reading, first", 1, true, true);
  const std::string gpus = std::to_string(last.gpus.size()) + " GPUs";
  ticks(("whole reading, fast, " + gpus).c_str(), options.ticks, false, false);
  ticks(("whole reading, slow, " + gpus).c_str(), options.ticks, true, false);
  ticks(("whole reading, slow with processes, " + gpus).c_str(), options.ticks, true, true);
  if (!last.gpus.empty()) {
    std::fprintf(stderr, "values of %s, %zu at a slow reading:\n", last.gpus[0].info.model.c_str(),
                 last.gpus[0].values.size());
    for (const GpuValue& value : last.gpus[0].values) {
      std::fprintf(stderr, "  %s{%s} %.6g %s\n", value.metric->name, value.label.c_str(), value.value,
                   value.metric->unit);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--library") {
      options.library = argv[i + 1];
    } else if (flag == "--gpu") {
      options.gpu = static_cast<uint32_t>(std::atoi(argv[i + 1]));
    } else if (flag == "--count") {
      options.count = std::max(1, std::atoi(argv[i + 1]));
    } else if (flag == "--ticks") {
      options.ticks = std::max(1, std::atoi(argv[i + 1]));
    } else {
      std::fprintf(stderr, "nvml_calls: unknown flag %s; known: --library, --gpu, --count, --ticks\n", argv[i]);
      return 2;
    }
  }
  auto library = nvml::Library::open(options.library);
  if (!library.ok()) {
    std::fprintf(stderr, "%s\n", library.error().c_str());
    return 1;
  }
  const nvml::Api& api = library->api();
  const int64_t begun = now_ns(CLOCK_MONOTONIC);
  if (const int status = api.init.call(); status != nvml::kOk) {
    std::fprintf(stderr, "%s: %s (status %d)\n", api.init.name, nvml::status_text(status), status);
    return 1;
  }
  const double init_us = static_cast<double>(now_ns(CLOCK_MONOTONIC) - begun) * 1e-3;
  nvml::Handle gpu = nullptr;
  if (const int status = api.handle_by_index.call(options.gpu, &gpu); status != nvml::kOk) {
    std::fprintf(stderr, "GPU %u: %s (status %d)\n", options.gpu, nvml::status_text(status), status);
    return 1;
  }
  char driver[97] = {};
  char name[97] = {};
  if (api.driver_version.call) api.driver_version.call(driver, 96);
  if (api.name.call) api.name.call(gpu, name, 96);
  std::printf("%s, driver %s\n\n", name, driver);
  Table table;
  table.print(api.init.name, nvml::kOk, {init_us}, 0);
  uint32_t count = 0;
  measure(table, options.count / 10 + 1, "slow", api.count, &count);
  measure_calls(table, api, gpu, options.count);
  measure(table, 1, "", api.shutdown);
  return measure_reader(table, options);
}
