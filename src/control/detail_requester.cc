#include "control/detail_requester.h"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

// No ranks: all.
template <typename Request, typename Asker>
DetailAsked ask_each(const JobInfo& job, const Request& request, Asker& asker) {
  std::map<std::string, std::vector<Rank>> by_host;
  int64_t found = 0;
  for (const RankInfo& rank : job.ranks) {  // by rank, so each host's are sorted
    const bool wanted =
        request.ranks.empty() || std::binary_search(request.ranks.begin(), request.ranks.end(), rank.identity.rank);
    if (!wanted) continue;
    ++found;
    by_host[rank.identity.host].push_back(rank.identity.rank);
  }
  DetailAsked asked;
  asked.ranks_unknown = request.ranks.empty() ? 0 : static_cast<int64_t>(request.ranks.size()) - found;
  for (auto& [host, ranks] : by_host) {
    const auto count = static_cast<int64_t>(ranks.size());
    if (host.empty()) {  // an identity without a host: nobody knows whom to ask
      asked.ranks_unknown += count;
      continue;
    }
    Request part = request;
    part.ranks = std::move(ranks);
    if (asker.ask(host, part)) {
      ++asked.hosts;
      asked.ranks += count;
    } else {
      asked.ranks_refused += count;
    }
  }
  return asked;
}

}  // namespace

DetailAsked ask_hosts(const JobInfo& job, const DetailRequest& request, DetailRequester& asker) {
  return ask_each(job, request, asker);
}

DetailAsked ask_hosts(const JobInfo& job, const StackRequest& request, StackRequestSender& asker) {
  return ask_each(job, request, asker);
}

DetailAsked ask_hosts(const JobInfo& job, const SampleRequest& request, SampleRequestSender& asker) {
  return ask_each(job, request, asker);
}

}  // namespace lockstep
