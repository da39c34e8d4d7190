// Any bytes: no crash, nothing is lost or made up. What is cut is in some part as it stood, and no larger than copies allow.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bus/request_split.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view request(reinterpret_cast<const char*>(data), size);
  HostJobs hosts;
  hosts.note("h", "a", 0);
  hosts.note("h", "b", 0);
  const std::vector<RequestPart> parts = *split_request(request, hosts, 1);
  if (parts.empty()) std::abort();
  size_t bytes = 0;
  for (const RequestPart& part : parts) {
    bytes += part.own.size();
    if (part.own.empty() && part.whole != request) std::abort();
    const std::vector<RequestPart> cut_again = *split_request(part.bytes(), hosts, 2);
    for (const RequestPart& again : cut_again) {
      if (again.bytes().size() > part.bytes().size()) std::abort();
    }
  }
  if (bytes > size * HostJobs::kJobsOfHostMax) std::abort();
  return 0;
}
