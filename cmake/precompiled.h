// The standard headers that nearly every file reads: compiled once in the dev preset (LOCKSTEP_PRECOMPILE).
// No header of our own belongs here: a change to it would compile everything again.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
