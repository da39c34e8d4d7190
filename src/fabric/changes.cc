#include "fabric/changes.h"

#include <algorithm>
#include <iterator>

#include "fabric/topology_store.h"
#include "fabric/version_store.h"

namespace lockstep::fabric {

Change as_change(const TopologyChange& change) {
  return {change.time_unix_ns, (change.is_gpu ? "gpu:" : "nic:") + change.subject, change.is_gpu ? "gpu" : "link",
          change.before, change.after};
}

Changes find_changes(const TopologyStore& topology, const VersionStore& versions, const ChangeQuestion& question) {
  Changes found;
  found.shown = versions.changes(question.from_unix_ns, question.to_unix_ns);
  for (const TopologyChange& one :
       topology.changes(TopologyStore::kChangesMax, question.from_unix_ns, question.to_unix_ns))
    found.shown.push_back(as_change(one));
  std::erase_if(found.shown, [&](const Change& one) {
    return (!question.component.empty() && one.component != question.component) ||
           (!question.what.empty() && one.what != question.what);
  });
  std::stable_sort(found.shown.begin(), found.shown.end(),
                   [](const Change& a, const Change& b) { return a.time_unix_ns > b.time_unix_ns; });
  found.total = found.shown.size();
  found.shown.resize(std::min(found.total, question.limit));
  return found;
}

}  // namespace lockstep::fabric
