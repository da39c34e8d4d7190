// A node daemon is started as root and should not stay so: what needs root is opened first, then everything is given up
// but what reading other users' jobs takes.
//
// Kept: CAP_DAC_READ_SEARCH and CAP_DAC_OVERRIDE (recorders in other users' folders are read, and removed when they are
// drained), CAP_SYS_PTRACE (environment and threads of other users' jobs), CAP_SYSLOG (the kernel log after a driver
// reload), CAP_NET_RAW (LLDP on a link that comes later). Programs started from here get none of them.
// Thread rule: before the first thread is started.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

// user: a name or a number of /etc/passwd; empty: stay who we are. As another user than root without `user` this does
// nothing. data_folder goes to the user with all that is in it, so that a spool of an earlier root agent stays usable.
// Returns one line for the log that says what is left.
Result<std::string> drop_privileges(const std::string& user, const std::string& data_folder);

}  // namespace lockstep
