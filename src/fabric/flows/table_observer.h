// The table of recent flows as the path finder asks it: the ports that packets of a five-tuple were sampled on.
//
// Where all of the five-tuple is given it costs a look into a hash table for each window, else a walk over the table.
// Thread rule: Thread-safe.
#pragma once

#include "fabric/flow_observer.h"
#include "fabric/flows/flow_table.h"

namespace lockstep {

class TableObserver final : public fabric::FlowObserver {
 public:
  explicit TableObserver(const FlowTable& flows) : flows_(flows) {}

  std::vector<fabric::ObservedPort> observed_ports(const FlowKey& flow, int64_t from_unix_ns,
                                                   int64_t to_unix_ns) const override;

 private:
  const FlowTable& flows_;
};

}  // namespace lockstep
