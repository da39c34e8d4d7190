#include "bus/request_split.h"

#include <algorithm>

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

void HostJobs::note(std::string_view host, std::string_view job_id, int64_t now_ns) {
  MutexLock lock(mutex_);
  auto found = hosts_.find(host);
  if (found == hosts_.end()) {
    if (hosts_.size() >= kHostsMax) {
      std::erase_if(hosts_, [&](const auto& entry) { return now_ns - entry.second.front().at_ns > kForgetAfterNs; });
      // All of them have jobs: one of them is learned again with its next step.
      if (hosts_.size() >= kHostsMax) hosts_.erase(hosts_.begin());
    }
    found = hosts_.emplace(host, std::vector<Seen>()).first;
  }
  std::vector<Seen>& seen = found->second;
  if (!seen.empty() && seen.front().job_id == job_id) {
    seen.front().at_ns = now_ns;
    return;
  }
  std::erase_if(seen, [&](const Seen& one) { return one.job_id == job_id || now_ns - one.at_ns > kForgetAfterNs; });
  seen.insert(seen.begin(), {std::string(job_id), now_ns});
  if (seen.size() > kJobsOfHostMax) seen.pop_back();
}

std::vector<std::string> HostJobs::jobs_of(std::string_view host, int64_t now_ns) const {
  MutexLock lock(mutex_);
  std::vector<std::string> jobs;
  if (auto found = hosts_.find(host); found != hosts_.end()) {
    for (const Seen& one : found->second) {
      if (now_ns - one.at_ns <= kForgetAfterNs) jobs.push_back(one.job_id);
    }
  }
  return jobs;
}

std::vector<RequestPart> split_request(std::string_view request, HostJobs& hosts, int64_t now_ns) {
  struct Cut {
    std::string_view bytes;  // tag and length included
    std::vector<std::string> keys;
  };
  std::vector<Cut> cuts;
  WireError error;
  WireReader reader(request, error);
  const char* began = reader.position();
  while (reader.next()) {
    if (reader.tag() == kFirst) {
      std::vector<std::string> keys = keys_of(names_of(reader.message()), hosts, now_ns);
      cuts.push_back({{began, static_cast<size_t>(reader.position() - began)}, std::move(keys)});
    } else {
      reader.skip();
    }
    began = reader.position();
  }
  if (error.what != nullptr || cuts.empty()) return {RequestPart{"", "", request}};
  const bool is_one = std::all_of(cuts.begin(), cuts.end(), [&](const Cut& cut) { return cut.keys == cuts[0].keys; });
  std::map<std::string, RequestPart> parts;
  if (is_one) {
    for (const std::string& key : cuts[0].keys) parts[key] = {key, "", request};
  } else {
    for (const Cut& cut : cuts) {
      for (const std::string& key : cut.keys) {
        RequestPart& part = parts.try_emplace(key, RequestPart{key, "", {}}).first->second;
        part.own.append(cut.bytes);
      }
    }
  }
  std::vector<RequestPart> all;
  for (auto& [key, part] : parts) all.push_back(std::move(part));
  return all;
}

}  // namespace lockstep
