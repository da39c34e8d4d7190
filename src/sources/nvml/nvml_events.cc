#include "sources/nvml/nvml_events.h"

#include "base/text.h"

namespace lockstep::nvml {
namespace {
constexpr uint64_t kWanted = kEventXid | kEventMigChange | kEventUnavailable | kEventRecoveryAction;
}

void Events::close() {
  if (set_ != nullptr) api_->event_set_free.call(set_);
  set_ = nullptr;
}

void Events::listen_to(const std::vector<Device*>& devices) {
  close();
  if (!api_->event_set_create.call || !api_->event_set_free.call || !api_->event_set_wait.call ||
      !api_->events_register.call) {
    notes_->say_once("events", "NVML: this driver reports no events; XIDs come from the kernel log alone");
    return;
  }
  if (const int status = api_->event_set_create.call(&set_); status != kOk) {
    set_ = nullptr;
    notes_->say_once("events", format("NVML: %s: %s (status %d); XIDs come from the kernel log alone",
                                      api_->event_set_create.name, status_text(status), status));
    return;
  }
  for (Device* device : devices) {
    uint64_t supported = kEventXid;
    if (api_->events_supported.call && api_->events_supported.call(device->handle(), &supported) != kOk) {
      supported = kEventXid;
    }
    if ((supported & kWanted) == 0) continue;
    const int status = api_->events_register.call(device->handle(), supported & kWanted, set_);
    if (status != kOk) {
      notes_->say_once("register " + device->info().uuid,
                       format("NVML: %s: GPU %d: %s (status %d); its XIDs come from the kernel log alone",
                              api_->events_register.name, device->info().index, status_text(status), status));
    }
  }
}

int Events::drain(const std::function<void(const EventData&)>& take) {
  if (set_ == nullptr) return kTimeout;
  for (int i = 0; i < kDrainMax; ++i) {
    EventData event;
    const int status = api_->event_set_wait.call(set_, &event, 0);
    if (status != kOk) return status;
    take(event);
  }
  return kOk;
}

}  // namespace lockstep::nvml
