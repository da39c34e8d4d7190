// What the driver tells by itself: XIDs, a recovery action that changed, a GPU that became unavailable, MIG changes.
// Asked for without waiting, so that no thread is needed.
//
// Thread rule: Confined.
// Limits:      kDrainMax events per drain(); the rest stays with the driver until the next.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sources/nvml/nvml_device.h"

namespace lockstep::nvml {

class Events {
 public:
  static constexpr int kDrainMax = 256;

  Events(const Api& api, Notes& notes) : api_(&api), notes_(&notes) {}
  ~Events() { close(); }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // Listens to exactly these GPUs from now on. What an earlier set still held is lost.
  void listen_to(const std::vector<Device*>& devices);
  // A status other than kOk and kTimeout is handed back: the set is of no more use, or the driver is gone.
  int drain(const std::function<void(const EventData&)>& take);
  void close();

 private:
  const Api* api_;
  Notes* notes_;
  Handle set_ = nullptr;
};

}  // namespace lockstep::nvml
