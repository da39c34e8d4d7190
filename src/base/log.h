// Log lines for people, on standard error: "2026-11-15T03:04:05.123Z warn ingest: ...". One event, one line.
// Standard output belongs to the program's answer (the ready line, verdicts, JSON).
//
// Thread rule: Thread-safe. Not for NCCL's threads: it makes system calls.
#pragma once

namespace lockstep {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3 };

void set_log_level(LogLevel level);  // default kInfo; LOCKSTEP_LOG=debug|info|warn|error overrides
void log_line(LogLevel level, const char* component, const char* pattern, ...) __attribute__((format(printf, 3, 4)));

#define LOCKSTEP_LOG_INFO(component, ...) ::lockstep::log_line(::lockstep::LogLevel::kInfo, component, __VA_ARGS__)
#define LOCKSTEP_LOG_WARN(component, ...) ::lockstep::log_line(::lockstep::LogLevel::kWarn, component, __VA_ARGS__)
#define LOCKSTEP_LOG_ERROR(component, ...) ::lockstep::log_line(::lockstep::LogLevel::kError, component, __VA_ARGS__)
#define LOCKSTEP_LOG_DEBUG(component, ...) ::lockstep::log_line(::lockstep::LogLevel::kDebug, component, __VA_ARGS__)

}  // namespace lockstep
