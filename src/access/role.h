// What a caller may do, and the one table of it. Every endpoint and every gRPC method names one role.
//
// admin includes operate, operate includes read; ingest stands alone, so that an agent's token reads nothing.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Role : uint8_t {
  kUnset = 0,  // a row that forgot: does not compile (api/routes.cc) and is never let in
  kAnyone,     // the page itself, /healthz
  kIngest,     // send data, fetch commands for one's own hosts
  kRead,       // see everything of one's tenant
  kOperate,    // commands to agents, feedback, takeover of names
  kAdmin,      // tokens, deletes, snapshots, backups
};

constexpr uint32_t bit_of(Role role) {
  return 1u << static_cast<uint32_t>(role);
}
// Everything that a token with this role may do.
constexpr uint32_t roles_of(Role role) {
  switch (role) {
    case Role::kIngest:
      return bit_of(Role::kAnyone) | bit_of(Role::kIngest);
    case Role::kRead:
      return bit_of(Role::kAnyone) | bit_of(Role::kRead);
    case Role::kOperate:
      return roles_of(Role::kRead) | bit_of(Role::kOperate);
    case Role::kAdmin:
      return roles_of(Role::kOperate) | bit_of(Role::kAdmin);
    default:
      return bit_of(Role::kAnyone);
  }
}
// Where nobody has to say who they are: loopback without tokens, or --insecure.
inline constexpr uint32_t kAllRoles = roles_of(Role::kAdmin) | bit_of(Role::kIngest);

constexpr bool may(uint32_t roles, Role needed) {
  return needed != Role::kUnset && (roles & bit_of(needed)) != 0;
}

struct RoleRow {
  Role role;
  std::string_view name;  // as in `lockstep token create --role`
  std::string_view help;
};
inline constexpr RoleRow kRoles[] = {
    {Role::kIngest, "ingest", "send data, and fetch commands for one's own hosts"},
    {Role::kRead, "read", "see everything of the tenant"},
    {Role::kOperate, "operate", "read, and ask agents for detail, give feedback, take names over"},
    {Role::kAdmin, "admin", "operate, and tokens, deletes, snapshots, backups"},
};

// A row by its name, or by its role. nullptr: there is none.
constexpr const RoleRow* find_role(std::string_view name) {
  for (const RoleRow& row : kRoles) {
    if (row.name == name) return &row;
  }
  return nullptr;
}
constexpr const RoleRow* find_role(Role role) {
  for (const RoleRow& row : kRoles) {
    if (row.role == role) return &row;
  }
  return nullptr;
}

}  // namespace lockstep
