// For tests: a socket that says exactly what it is told to, and a server that answers exactly what it is told to.
//
// Thread rule: Confined.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "net/listen_address.h"

namespace lockstep::testing {

class RawSocket {
 public:
  explicit RawSocket(const std::string& address);  // "127.0.0.1:4318"
  bool connected() const { return fd_.valid(); }
  bool send(std::string_view bytes);
  // What came until `end` was seen, the peer closed, or the time was over.
  std::string read_until(std::string_view end, int timeout_ms = 60'000);
  std::string read_until_closed(int timeout_ms = 60'000) { return read_until("", timeout_ms); }
  bool closed_by_peer() const { return closed_; }  // as of the last read
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::string received_;
  bool closed_ = false;
};

// Per connection: for each request in turn one text is written back; after the last one the connection is closed.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::vector<std::string>> connections);
  ~ScriptedServer();
  std::string address() const { return listener_.bound; }
  uint16_t port() const;
  std::vector<std::string> requests();  // as received so far

 private:
  void run();
  std::vector<std::vector<std::string>> connections_;
  ListenSocket listener_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<std::string> requests_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace lockstep::testing
