#include "agent/export/command_hosts.h"

#include <algorithm>
#include <map>
#include <set>

#include "agent/export/command_poll.h"
#include "agent/ranks/user_limits.h"
#include "base/text.h"

namespace lockstep {

std::vector<std::string> hosts_to_ask_for(const std::string& own, const std::vector<RecorderOwner>& owners,
                                          const std::vector<std::string>& remembered, Counters& counters) {
  std::vector<std::string> hosts;
  std::set<std::string> taken{""};
  size_t bytes = 0;
  auto take = [&](const std::string& host) {  // false: there is no room
    if (taken.contains(host)) return true;
    const size_t more = url_part(host).size() + sizeof "&host=";
    if (hosts.size() >= CommandPoll::kHostsMax || bytes + more > kHostBytesMax) return false;
    bytes += more;
    taken.insert(host);
    hosts.push_back(host);
    return true;
  };
  take(own);
  std::map<int64_t, std::vector<std::string>> users;
  for (const RecorderOwner& owner : owners) {
    std::vector<std::string>& names = users[owner.user];
    if (std::find(names.begin(), names.end(), owner.identity.host) == names.end()) names.push_back(owner.identity.host);
  }
  bool any = true;
  for (size_t turn = 0; any; ++turn) {
    any = false;
    for (auto& [user, names] : users) {
      if (turn >= names.size()) continue;
      any = true;
      if (!take(names[turn])) user_limits::count_over(counters, "hosts", static_cast<uid_t>(user));
    }
  }
  for (const std::string& host : remembered) take(host);
  return hosts;
}

}  // namespace lockstep
