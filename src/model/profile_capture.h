// A capture: one order to profile some ranks of a job for some steps, all from the same step on. What is asked of an
// agent, and what it reports while it is done (docs/formats/events.md).
//
// Thread rule: Immutable once handed on; functions are Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/blob_key.h"
#include "model/ids.h"
#include "model/telemetry.h"

namespace lockstep {

inline constexpr std::string_view kEventProfileState = "profile.state";
inline constexpr std::string_view kEventProfileReady = "profile.ready";

inline constexpr size_t kProfileRanksMax = 256;  // of one request to an agent
inline constexpr int64_t kProfileStepsMax = 100;
inline constexpr int64_t kProfileLimitSMax = 3'600;
inline constexpr int64_t kProfileBytesMax = int64_t{16} << 30;  // of one rank's file
inline constexpr size_t kProfileReasonMax = 256;
inline constexpr size_t kProfileKeyMax = 1'024;

// "rank-17.json.gz": one rank's file of a capture.
std::string profile_file_name(Rank rank);

struct ProfileRequest {
  std::string job_id;
  int64_t attempt = 0;
  std::string capture;
  StepNumber start_step = kNoStep;  // of the job; kNoStep: its steps are not known, so time alone counts
  int64_t steps = 1;
  // For a rank whose steps cannot be told to its profiler: from when on, and for how long.
  int64_t start_unix_ms = 0;
  int64_t duration_ms = 1;
  int64_t limit_s = 1;    // from its arrival on: what has not begun to be uploaded by then is given up
  int64_t bytes_max = 1;  // of one rank's file as its profiler writes it
  bool shapes = false;
  bool stacks = false;
  std::vector<Rank> ranks;  // sorted, 1 to kProfileRanksMax
  bool operator==(const ProfileRequest&) const = default;
};
// One line that says what is out of its limits; ok: nothing is.
Result<void> check(const ProfileRequest& request);

// Where one rank of a capture stands. The last two are ends.
enum class ProfileState : uint8_t { kArmed, kWaiting, kTracing, kUploading, kDone, kFailed };
const char* to_text(ProfileState state);  // "armed", "waiting", "tracing", "uploading", "done", "failed"
inline bool is_end(ProfileState state) {
  return state == ProfileState::kDone || state == ProfileState::kFailed;
}

// profile.state, of the rank whose resource it has.
struct ProfileProgress {
  int64_t time_unix_ns = 0;
  std::string capture;
  ProfileState state = ProfileState::kArmed;
  std::string reason;  // why it failed, or what is to be known of it: one line; mostly empty
  int64_t bytes = 0;   // of the trace so far
  bool operator==(const ProfileProgress&) const = default;
};

// profile.ready: the file is in the store of blobs.
struct ProfileReady {
  int64_t time_unix_ns = 0;
  std::string capture;
  std::string key;
  int64_t bytes = 0;  // as stored
  std::string sha256;
  StepNumber first_step = kNoStep;  // kNoStep: it was taken by time
  int64_t steps = 0;
  bool operator==(const ProfileReady&) const = default;
};

LogRecord to_record(const ProfileProgress& progress);
LogRecord to_record(const ProfileReady& ready);
// From bytes we did not write: every field is checked, one clear line on error.
Result<ProfileProgress> profile_progress_from_record(const LogRecord& record);
Result<ProfileReady> profile_ready_from_record(const LogRecord& record);

}  // namespace lockstep
