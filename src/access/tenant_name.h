// What a tenant may be called: a folder's name that needs no quoting anywhere.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Whose folder is the data folder itself. As tokens write it; Caller::tenant is empty for it.
inline constexpr std::string_view kDefaultTenant = "default";

// [a-z0-9][a-z0-9_-]{0,62}
inline bool is_tenant_name(std::string_view name) {
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 63 && is_plain(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_plain(c) || c == '_' || c == '-'; });
}

// Whether whoever has these may speak for that one; "*" is any.
inline bool speaks_for(const std::vector<std::string>& tenants, std::string_view tenant) {
  return std::any_of(tenants.begin(), tenants.end(),
                     [&](const std::string& one) { return one == "*" || one == tenant; });
}

}  // namespace lockstep
