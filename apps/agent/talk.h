// Commands of lockstep-agent for a person at the node: drain, resume and status speak to the running agent; gpus reads
// the GPUs once, by itself.
//
// Thread rule: Confined; the whole of a process.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The process's exit code: 0 done, 1 could not, 2 misuse.
int run_talk_command(const std::string& command, const std::vector<std::string>& arguments);
const char* talk_commands_help();

}  // namespace lockstep
