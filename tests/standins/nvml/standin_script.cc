#include "tests/standins/nvml/standin_script.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace lockstep::standin {
namespace {

[[noreturn]] void refuse(const std::string& line) {
  std::fprintf(stderr, "NVML stand-in: cannot understand: %s\n", line.c_str());
  std::abort();
}

uint64_t event_type(const std::string& word) {
  if (word == "xid") return 0x8;
  if (word == "mig") return 0x100;
  if (word == "unavailable") return 0x4000;
  if (word == "recovery") return 0x8000;
  return std::strtoull(word.c_str(), nullptr, 0);
}

bool parse_about_gpu(const std::string& word, std::istringstream& in, Gpu& gpu) {
  if (word == "set") {
    std::string key, base;
    Value value;
    if (!(in >> key >> base)) return false;
    value.none = base == "none";
    value.base = value.none ? 0 : std::strtod(base.c_str(), nullptr);
    in >> value.per_second;
    gpu.values[key] = value;
  } else if (word == "fail") {
    std::string what;
    int status = 0;
    if (!(in >> what >> status)) return false;
    gpu.failures[what] = status;
  } else if (word == "block") {
    std::string what;
    if (!(in >> what)) return false;
    gpu.blocked.insert(what);
  } else if (word == "lost") {
    if (!(in >> gpu.lost)) gpu.lost = 15;
  } else if (word == "lost_at") {
    if (!(in >> gpu.lost_at)) return false;
  } else if (word == "lost_file") {
    if (!(in >> gpu.lost_file)) return false;
  } else if (word == "absent") {
    gpu.absent = true;
  } else if (word == "process") {
    Process process;
    if (!(in >> process.pid >> process.bytes)) return false;
    if (!(in >> process.gpu_instance)) process.gpu_instance = 0xFFFFFFFFu;
    gpu.processes.push_back(process);
  } else if (word == "mig") {
    Instance instance;
    if (!(in >> instance.gpu >> instance.compute >> instance.bytes >> instance.uuid)) return false;
    gpu.instances.push_back(instance);
  } else {
    return false;
  }
  return true;
}

bool parse_line(const std::string& line, Script& script) {
  std::istringstream in(line);
  std::string word;
  in >> word;
  if (word == "gpus") return static_cast<bool>(in >> script.gpus);
  if (word == "model" || word == "driver") {
    std::string& text = word == "model" ? script.model : script.driver;
    return static_cast<bool>(std::getline(in >> std::ws, text));
  }
  if (word == "calls") return static_cast<bool>(in >> script.calls_file);
  if (word == "real") {
    std::string copies;
    return static_cast<bool>(in >> script.real >> copies >> script.copies) && copies == "copies";
  }
  if (word == "event") {
    Event event;
    std::string gpu, type;
    if (!(in >> event.id >> gpu >> event.gpu >> type >> event.data) || gpu != "gpu") return false;
    event.type = event_type(type);
    if (!(in >> event.gpu_instance)) event.gpu_instance = 0xFFFFFFFFu;
    script.events.push_back(event);
    return event.type != 0;
  }
  if (word == "gpu") {
    int index = 0;
    if (!(in >> index >> word)) return false;
    return parse_about_gpu(word, in, script.by_gpu[index]);
  }
  return parse_about_gpu(word, in, script.all);
}

}  // namespace

Script parse_script(const std::string& text) {
  Script script;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (const size_t comment = line.find('#'); comment != std::string::npos) line.resize(comment);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!parse_line(line, script)) refuse(line);
  }
  return script;
}

}  // namespace lockstep::standin
