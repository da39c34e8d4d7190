// What a store of blobs may take: how much of it there is, by job and in all. Both backings count with it.
//
// Thread rule: Confined (its store's mutex).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/text.h"
#include "store/blobs/blob_store.h"

namespace lockstep {

class BlobBudget {
 public:
  explicit BlobBudget(const BlobLimits& limits) : limits_(limits) {}

  void add(std::string_view path, uint64_t bytes) {
    all_bytes_ += bytes;
    job_bytes_[std::string(job_of(path))] += bytes;
  }
  void take(std::string_view path, uint64_t bytes) {
    all_bytes_ -= bytes;
    const auto job = job_bytes_.find(job_of(path));
    job->second -= bytes;
    if (job->second == 0) job_bytes_.erase(job);
  }
  void clear() {
    all_bytes_ = 0;
    job_bytes_.clear();
  }
  uint64_t all_bytes() const { return all_bytes_; }
  uint64_t job_bytes(std::string_view path) const {
    const auto job = job_bytes_.find(job_of(path));
    return job == job_bytes_.end() ? 0 : job->second;
  }

  // Whether so many more bytes of a file that has upload_bytes already may come, apart from what can make room.
  Result<void> check(std::string_view path, uint64_t upload_bytes, uint64_t bytes) const {
    const auto human = [](uint64_t count) { return human_bytes(static_cast<double>(count)); };
    if (upload_bytes + bytes > limits_.file_bytes_max || upload_bytes + bytes > limits_.bytes_max)
      return Error{
          format("a file of a capture may have %s", human(std::min(limits_.file_bytes_max, limits_.bytes_max)).c_str()),
          ErrorCode::kTooLarge};
    if (job_bytes(path) + bytes > limits_.job_bytes_max)
      return Error{format("this job has %s of files of captures (limit %s, --blob-bytes-per-job): remove some",
                          human(job_bytes(path)).c_str(), human(limits_.job_bytes_max).c_str()),
                   ErrorCode::kTooLarge};
    return {};
  }
  bool fits(uint64_t bytes) const { return all_bytes_ + bytes <= limits_.bytes_max; }

 private:
  static std::string_view job_of(std::string_view path) { return path.substr(0, path.find('/')); }

  const BlobLimits& limits_;
  uint64_t all_bytes_ = 0;
  std::map<std::string, uint64_t, std::less<>> job_bytes_;
};

}  // namespace lockstep
