// All NVIDIA GPUs of a node through NVML. Made by open_nvml_reader() (sources/gpu/gpu_reader.h).
//
// Thread rule: Confined.
// On error:    a lost GPU stays in the snapshot with lost = true and is looked for again at slow ticks; the driver
// going
//              away as a whole is an error of read(). Everything is given back in the destructor, so that GPUs can be
//              reset and split while no reader is there.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sources/gpu/gpu_reader.h"
#include "sources/nvml/nvml_device.h"
#include "sources/nvml/nvml_events.h"
#include "sources/nvml/nvml_library.h"

namespace lockstep::nvml {

class Reader final : public GpuReader {
 public:
  static Result<std::unique_ptr<GpuReader>> open(const std::string& library);
  ~Reader() override;

  Result<GpuSnapshot> read(const GpuTick& tick) override;

 private:
  struct Gpu {
    GpuInfo info;
    std::unique_ptr<Device> device;  // null while it is lost
  };

  explicit Reader(Library library) : library_(std::move(library)) {}
  const Api& api() const { return library_.api(); }

  Result<void> start();
  void stop();
  Result<void> find_gpus(bool at_start, int64_t unix_ns, GpuSnapshot* out);
  Result<void> poll_gpus(int64_t unix_ns, GpuSnapshot& out);
  Result<void> take_events(int64_t unix_ns, GpuSnapshot& out);
  void take_event(const EventData& event, int64_t unix_ns, GpuSnapshot& out);
  void lose(Gpu& gpu, int status, int64_t unix_ns, GpuSnapshot& out);
  void listen();

  Library library_;
  bool initialized_ = false;
  std::string driver_;
  Notes notes_;
  std::vector<std::unique_ptr<Gpu>> gpus_;  // never shrinks: a lost GPU is still ours to report
  std::unique_ptr<Events> events_;
  bool listen_again_ = false;
  bool read_once_ = false;
  int looks_ = 0;
};

}  // namespace lockstep::nvml
