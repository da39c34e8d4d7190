// Writes small traces as Kineto does, for tests: times in microseconds.
//
// Thread rule: Confined.
#pragma once

#include <memory>
#include <string>

#include "base/text.h"
#include "profile/analysis.h"
#include "profile/read/trace_reader.h"

namespace lockstep::profile::testing {

class TraceText {
 public:
  explicit TraceText(std::string head = "") : head_(std::move(head)) {}

  TraceText& event(const std::string& category, const std::string& name, double start_us, double duration_us,
                   const std::string& arguments, int tid = 1) {
    return raw(
        format("{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 1, \"tid\": %d, \"ts\": %.3f, \"dur\": "
               "%.3f, \"args\": {%s}}",
               category.c_str(), name.c_str(), tid, start_us, duration_us, arguments.c_str()));
  }
  // A call on the host and what it starts, with an operator around the call where one is named.
  TraceText& launched(const std::string& name, int stream, double launch_us, double start_us, double duration_us,
                      const std::string& more = "", const std::string& op = "", const std::string& dims = "[[8, 8]]") {
    const int id = ++correlation_;
    if (!op.empty()) {
      event("cpu_op", op, launch_us - 1, 5,
            format("\"External id\": %d, \"Input Dims\": %s, \"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\"]",
                   id, dims.c_str()));
    }
    event("cuda_runtime", "cudaLaunchKernel", launch_us, 2, format("\"External id\": %d, \"correlation\": %d", id, id));
    return kernel(name, stream, start_us, duration_us, id, more);
  }
  TraceText& kernel(const std::string& name, int stream, double start_us, double duration_us, int correlation,
                    const std::string& more = "") {
    const char* category = name.starts_with("Memcpy")   ? "gpu_memcpy"
                           : name.starts_with("Memset") ? "gpu_memset"
                                                        : "kernel";
    return event(category, name, start_us, duration_us,
                 format("\"External id\": %d, \"device\": 0, \"stream\": %d, \"correlation\": %d, \"grid\": [4, 2, 1], "
                        "\"block\": [128, 1, 1]%s",
                        correlation, stream, correlation, more.empty() ? "" : (", " + more).c_str()),
                 stream);
  }
  TraceText& raw(const std::string& event) {
    events_ += (events_.empty() ? "\n" : ",\n") + event;
    return *this;
  }
  std::string text() const { return "{" + head_ + "\"traceEvents\": [" + events_ + "\n]}"; }

 private:
  std::string head_;
  std::string events_;
  int correlation_ = 100;
};

inline Result<TraceEvents> read_text(const std::string& text, const ReadOptions& options = {}) {
  return read_trace(bytes_in_memory(text), options);
}

// As `lockstep analyze` sees these; the texts must live as long.
inline Result<ProfileAnalysis> analyze_texts(const std::vector<std::string>& texts) {
  std::vector<TraceInput> inputs;
  for (size_t i = 0; i < texts.size(); ++i) {
    inputs.push_back({format("rank-%zu.json", i), std::nullopt,
                      [&text = texts[i]] { return Result<std::unique_ptr<ByteSource>>(bytes_in_memory(text)); }});
  }
  return analyze(inputs);
}

}  // namespace lockstep::profile::testing
