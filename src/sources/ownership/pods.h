// Kubernetes on this node: which pod holds which GPU (kubelet), and which pod a process is in (its cgroup has the pod's
// uid, and the kubelet's log folders have uid and name). Needs no API server.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sources/ownership/pod_resources.h"
#include "sources/ownership/processes.h"

namespace lockstep {

struct PodRef {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  bool operator==(const PodRef&) const = default;
};

// socket, method ("/v1.PodResourcesLister/List"), request message; gives the response message. It must come back within
// half a second or so, with an error if need be: whoever calls it reads the whole node.
using UnaryCall = std::function<Result<std::string>(const std::string& socket, const std::string& method,
                                                    const std::string& request)>;

class Pods {
 public:
  static constexpr int64_t kAskEveryNs = 2'000'000'000;     // at most
  static constexpr int64_t kAfterErrorNs = 30'000'000'000;  // the kubelet restarts, or we may not ask

  Pods(std::string root, std::string socket, UnaryCall call)
      : root_(std::move(root)), socket_(root_ + socket), call_(std::move(call)) {}

  // Asks the kubelet, where there is one and it is time. Lines for the log are appended to `notes`.
  void refresh(int64_t now_ns, std::vector<std::string>& notes);
  // The same now, whatever the time. False: it did not answer, or not what was asked for.
  bool ask(std::vector<std::string>& notes);
  // By GPU uuid. Several pods hold a GPU that is shared out in slices; old kubelets also tell of pods that have ended.
  std::map<std::string, std::vector<PodRef>> holders(const std::vector<GpuInfo>& gpus) const;
  // Of a process in a pod; `on_its_gpus`: who holds the GPUs that it is on, which decides where nothing else does.
  std::optional<PodRef> of_process(const ProcessFacts& process, const std::vector<PodRef>& on_its_gpus);

  bool answered() const { return answered_; }  // and still does
  const std::string& socket() const { return socket_; }
  int64_t failures() const { return failures_; }

 private:
  std::optional<PodRef> by_uid(const std::string& uid);

  const std::string root_;
  const std::string socket_;
  const UnaryCall call_;
  std::vector<PodDevice> devices_;
  bool answered_ = false;
  bool failing_ = false;
  bool claims_reported_ = false;
  bool left_out_reported_ = false;
  int64_t ask_again_ns_ = INT64_MIN;
  int64_t failures_ = 0;
  std::map<std::string, PodRef> by_uid_;
  bool names_fresh_ = false;  // the folders were listed since the last refresh
};

}  // namespace lockstep
