// Every path and gRPC method that takes data, hands out commands or tells the server's ports, with the role it needs: what api/routes.cc is for
// the API, for the receivers.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <span>
#include <string_view>

#include "access/role.h"

namespace lockstep {

struct ReceiverPath {
  std::string_view path;    // exactly, or what is below it too
  std::string_view method;  // gRPC's are POST too
  Role role;                // a row without one does not compile
  bool has_below = false;   // "/v1/lockstep/uploads/ID/finish"
};
std::span<const ReceiverPath> receiver_paths();
// By path alone; nullptr: none is there.
const ReceiverPath* find_receiver(std::string_view path);

}  // namespace lockstep
