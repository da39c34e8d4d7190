// All that the API asks of the fabric.
//
// Thread rule: Thread-safe; what it borrows outlives it.
#pragma once

#include "fabric/flow_observer.h"
#include "fabric/job_places.h"
#include "fabric/topology_store.h"
#include "fabric/version_store.h"
#include "fabric/wait_store.h"

namespace lockstep::fabric {

struct Fabric {
  Fabric(Declared declared, const Clock& clock) : topology(std::move(declared), clock) {}

  TopologyStore topology;
  JobPlaces places;
  WaitStore waits;
  VersionStore versions;
  const FlowObserver* observer = nullptr;  // nullptr: nobody samples packets
};

}  // namespace lockstep::fabric
