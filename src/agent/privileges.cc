#include "agent/privileges.h"

#include <fts.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr int kKept[] = {CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE, CAP_SYS_PTRACE, CAP_SYSLOG, CAP_NET_RAW, CAP_KILL};

// Everything but kKept goes, as far as it was there: a container may have given less.
bool limit_capabilities() {
  __user_cap_header_struct header{};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  uint32_t wanted[2]{};
  for (int capability : kKept) wanted[capability / 32] |= 1u << (capability % 32);
  for (int i = 0; i < 2; ++i) {
    data[i].permitted &= wanted[i];
    data[i].effective = data[i].permitted;
    data[i].inheritable = 0;
  }
  return syscall(SYS_capset, &header, data) == 0;
}

// lchown: a link inside is taken as a link, never followed out of the folder.
bool give_folder(const std::string& folder, uid_t user, gid_t group) {
  char* roots[] = {const_cast<char*>(folder.c_str()), nullptr};
  FTS* walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, nullptr);
  if (walk == nullptr) return false;
  bool done = true;
  while (FTSENT* entry = fts_read(walk)) {
    if (entry->fts_info == FTS_DP) continue;
    done &= lchown(entry->fts_accpath, user, group) == 0;
  }
  fts_close(walk);
  return done;
}

}  // namespace

Result<std::string> drop_privileges(const std::string& user, const std::string& data_folder) {
  if (geteuid() != 0) {
    if (!user.empty()) return Error{format("--user %s: only root can become another user", user.c_str())};
    return format("running as user %u", static_cast<unsigned>(geteuid()));
  }
  auto failed = [&](const char* what) {
    return Error{format("--user %s: %s: %s", user.c_str(), what, std::strerror(errno))};
  };
  if (!user.empty()) {
    errno = 0;
    const passwd* entry = getpwnam(user.c_str());
    if (entry == nullptr) {
      if (const auto number = parse_uint(user); number && *number <= UINT32_MAX)
        entry = getpwuid(static_cast<uid_t>(*number));
    }
    if (entry == nullptr) return Error{format("--user %s: there is no such user", user.c_str())};
    const uid_t uid = entry->pw_uid;
    const gid_t gid = entry->pw_gid;
    if (!give_folder(data_folder, uid, gid)) return failed("cannot give it the data folder");
    // The capabilities outlive the change of user, and are cut down right after it.
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return failed("cannot keep capabilities");
    if (initgroups(entry->pw_name, gid) != 0) return failed("cannot set its groups");
    if (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0) return failed("cannot become it");
  }
  if (!limit_capabilities()) return failed("cannot give up capabilities");
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // A change of user makes a process undumpable, and its /proc files root's: its own status must stay readable.
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  return format("running as user %u with the capabilities it needs to read other users' jobs, and no others",
                static_cast<unsigned>(geteuid()));
}

}  // namespace lockstep
