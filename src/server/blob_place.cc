#include "server/blob_place.h"

#include <chrono>
#include <cstdlib>

#include "access/tenant_name.h"
#include "base/contained.h"
#include "s3/s3_settings.h"
#include "server/s3_blob_store.h"
#include "store/blobs/directory_blob_store.h"

namespace lockstep {
namespace {

Result<std::unique_ptr<BlobStore>> open_bucket(const std::string& place, const std::string& tenant,
                                               const BlobLimits& limits, const ClockWitness& witness,
                                               const Clock& clock, Counters& counters) {
  S3BlobStoreOptions options{.limits = limits, .witness = &witness};
  options.read_settings = [] {
    return s3::s3_settings("", [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    });
  };
  options.place = LOCKSTEP_TRY(s3::parse_s3_place(place));
  options.place.prefix += (options.place.prefix.empty() ? "" : "/") + tenant;
  options.settings = LOCKSTEP_TRY(options.read_settings());
  // An agent waits for the answer, and asks again.
  options.settings.tries = 2;
  options.settings.timeout_ms = 20'000;
  return open_s3_blob_store(std::move(options), clock, counters);
}

}  // namespace

std::string blob_tenant(const std::string& name) {
  return name.empty() ? std::string(kDefaultTenant) : name;
}

Result<std::unique_ptr<BlobStore>> open_blobs(const ServerOptions& options, const std::string& tenant,
                                              const ClockWitness& witness, const Clock& clock, Counters& counters) {
  BlobLimits limits;
  limits.bytes_max = static_cast<uint64_t>(options.blob_bytes_max);
  limits.job_bytes_max = static_cast<uint64_t>(options.blob_bytes_per_job);
  limits.keep_ns = options.blob_days * 86'400'000'000'000;
  const std::string place = options.blobs.empty() ? options.data + "/blobs" : options.blobs;
  Result<std::unique_ptr<BlobStore>> store =
      s3::is_s3_place(place)
          ? open_bucket(place, blob_tenant(tenant), limits, witness, clock, counters)
          : open_directory_blob_store({place + "/" + blob_tenant(tenant), limits, &witness}, clock, counters);
  if (!store.ok()) return prefixed(store.failure(), "--blobs: ");
  return store;
}

BlobUpkeep::BlobUpkeep(BlobStore& store) : store_(store), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void BlobUpkeep::run(const std::stop_token& stop) {
  constexpr std::chrono::seconds kEvery{60};
  while (!stop.stop_requested()) {
    contained("server", "upkeep of files of captures", [this] { store_.maintain(); });
    MutexLock lock(mutex_);
    ends_.wait_for(mutex_, stop, kEvery, [] { return false; });
  }
}

}  // namespace lockstep
