#include "bus/request_split.h"

#include <algorithm>
#include <iterator>

#include "base/protobuf_wire.h"

namespace lockstep {
namespace {

using protobuf::kBytes;
using protobuf::tag_of;
using protobuf::WireError;
using protobuf::WireReader;

// The same numbers in metrics, logs and traces: a request has resources, one of these has the resource itself as its first
// field, that has attributes, an attribute a key and a value, of which the first field is the text.
constexpr uint32_t kFirst = tag_of(1, kBytes);
constexpr uint32_t kSecond = tag_of(2, kBytes);

constexpr size_t kPartOverhead = 400;  // of one part, besides its bytes

struct Names {
  std::string_view job, host, service;
};

void read_attribute(WireReader attribute, Names& names) {
  std::string_view key, text;
  while (attribute.next()) {
    if (attribute.tag() == kFirst) {
      key = attribute.bytes();
    } else if (attribute.tag() == kSecond) {
      WireReader value = attribute.message();
      while (value.next()) {
        if (value.tag() == kFirst)
          text = value.bytes();
        else
          value.skip();
      }
    } else {
      attribute.skip();
    }
  }
  if (key == "lockstep.job_id") names.job = text;
  if (key == "host.name") names.host = text;
  if (key == "service.name") names.service = text;
}

// Of one of the request's resources, with all that it has.
Names names_of(WireReader group) {
  Names names;
  while (group.next()) {
    if (group.tag() != kFirst) {
      group.skip();
      continue;
    }
    WireReader resource = group.message();
    while (resource.next()) {
      if (resource.tag() == kFirst)
        read_attribute(resource.message(), names);
      else
        resource.skip();
    }
  }
  return names;
}

std::vector<std::string> keys_of(const Names& names, HostJobs& hosts, int64_t now_ns) {
  if (!names.job.empty()) {
    if (!names.host.empty()) hosts.note(names.host, names.job, now_ns);
    return {std::string(names.job)};
  }
  if (!names.host.empty()) {
    std::vector<std::string> jobs = hosts.jobs_of(names.host, now_ns);
    if (jobs.empty()) jobs.push_back("host/" + std::string(names.host));
    return jobs;
  }
  if (!names.service.empty()) return {"service/" + std::string(names.service)};
  return {std::string()};
}

}  // namespace

// What a list, a map and a vector add to a name.
constexpr size_t kHostOverhead = 200;
constexpr size_t kJobOverhead = 64;

size_t HostJobs::Host::bytes() const {
  size_t bytes = kHostOverhead + name.size();
  for (const Seen& one : jobs) bytes += kJobOverhead + one.job_id.size();
  return bytes;
}

size_t HostJobs::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

void HostJobs::forget_oldest() {
  bytes_ -= hosts_.front().counted;
  by_name_.erase(hosts_.front().name);
  hosts_.pop_front();
}

void HostJobs::note(std::string_view name, std::string_view job_id, int64_t now_ns) {
  if (name.size() > kNameBytesMax || job_id.size() > kNameBytesMax) return;
  MutexLock lock(mutex_);
  while (!hosts_.empty() && now_ns - hosts_.front().at_ns > kForgetAfterNs) forget_oldest();
  if (auto found = by_name_.find(name); found != by_name_.end()) {
    hosts_.splice(hosts_.end(), hosts_, found->second);
  } else {
    hosts_.push_back({std::string(name), {}});
    by_name_.emplace(hosts_.back().name, std::prev(hosts_.end()));
  }
  Host& host = hosts_.back();
  host.at_ns = now_ns;
  auto named = std::find_if(host.jobs.begin(), host.jobs.end(), [&](const Seen& one) { return one.job_id == job_id; });
  if (named == host.jobs.end()) named = host.jobs.insert(host.jobs.end(), {std::string(job_id), now_ns});
  named->at_ns = now_ns;
  std::rotate(host.jobs.begin(), named, named + 1);
  std::erase_if(host.jobs, [&](const Seen& one) { return now_ns - one.at_ns > kForgetAfterNs; });
  if (host.jobs.size() > kJobsOfHostMax) host.jobs.pop_back();
  bytes_ -= host.counted;
  host.counted = host.bytes();
  bytes_ += host.counted;
  while (hosts_.size() > hosts_max_ || (bytes_ > bytes_max_ && hosts_.size() > 1)) forget_oldest();
}

std::vector<std::string> HostJobs::jobs_of(std::string_view name, int64_t now_ns) const {
  MutexLock lock(mutex_);
  std::vector<std::string> jobs;
  if (auto found = by_name_.find(name); found != by_name_.end()) {
    for (const Seen& one : found->second->jobs) {
      if (now_ns - one.at_ns <= kForgetAfterNs) jobs.push_back(one.job_id);
    }
  }
  return jobs;
}

std::optional<std::vector<RequestPart>> split_request(std::string_view request, HostJobs& hosts, int64_t now_ns,
                                                      MemoryLease* lease) {
  struct Cut {
    std::string_view bytes;  // tag and length included
    std::vector<std::string> keys;
  };
  auto holds = [&](size_t bytes) { return lease == nullptr || lease->add(bytes); };
  std::vector<Cut> cuts;
  WireError error;
  WireReader reader(request, error);
  const char* began = reader.position();
  while (reader.next()) {
    if (reader.tag() == kFirst) {
      std::vector<std::string> keys = keys_of(names_of(reader.message()), hosts, now_ns);
      size_t bytes = 2 * sizeof(Cut);  // a vector that grows is there twice
      for (const std::string& key : keys) bytes += sizeof key + key.size();
      if (!holds(bytes)) return std::nullopt;
      cuts.push_back({{began, static_cast<size_t>(reader.position() - began)}, std::move(keys)});
    } else {
      reader.skip();
    }
    began = reader.position();
  }
  if (error.what != nullptr || cuts.empty()) return {{RequestPart{"", "", request}}};
  const bool is_one = std::all_of(cuts.begin(), cuts.end(), [&](const Cut& cut) { return cut.keys == cuts[0].keys; });
  std::map<std::string, RequestPart> parts;
  if (is_one) {
    for (const std::string& key : cuts[0].keys) parts[key] = {key, "", request};
  } else {
    for (const Cut& cut : cuts) {
      for (const std::string& key : cut.keys) {
        const auto [part, is_new] = parts.try_emplace(key, RequestPart{key, "", {}});
        if (!holds(2 * cut.bytes.size() + (is_new ? kPartOverhead + 3 * key.size() : 0))) return std::nullopt;
        part->second.own.append(cut.bytes);
      }
    }
  }
  std::vector<RequestPart> all;
  for (auto& [key, part] : parts) all.push_back(std::move(part));
  return all;
}

}  // namespace lockstep
