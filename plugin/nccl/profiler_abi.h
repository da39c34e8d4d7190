// NCCL's profiler plugin interface, v1 (NCCL 2.23) to v7 (NCCL 2.31): one header per version, and what they share.
//
// A plugin exports one data symbol per version it speaks, `ncclProfiler_v1` to `ncclProfiler_v7`, each a vtable; NCCL
// takes the newest that both know.
//
// Thread rule: Immutable (plain data).
#pragma once

#include "plugin/nccl/abi/common.h"
#include "plugin/nccl/abi/v1.h"
#include "plugin/nccl/abi/v2.h"
#include "plugin/nccl/abi/v3.h"
#include "plugin/nccl/abi/v4.h"
#include "plugin/nccl/abi/v5.h"
#include "plugin/nccl/abi/v6.h"
#include "plugin/nccl/abi/v7.h"
#include "plugin/nccl/abi/versions.h"
