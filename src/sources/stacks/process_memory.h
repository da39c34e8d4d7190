// Another process's memory, read while that process runs on: nothing stops it, so what is read may be half old and half
// new. Whoever reads has to expect any bytes.
//
// Thread rule: Confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace lockstep {

struct MemoryPiece {
  uint64_t address = 0;
  void* to = nullptr;
  size_t bytes = 0;
};

class MemoryReader {
 public:
  virtual ~MemoryReader() = default;
  // All of it, or false.
  virtual bool read(uint64_t address, void* to, size_t bytes) = 0;
  // All pieces, or false; as one call where that is cheaper.
  virtual bool read_all(std::span<const MemoryPiece> pieces);

  template <typename T>
  requires std::is_trivially_copyable_v<T>
  bool read_value(uint64_t address, T& value) { return read(address, &value, sizeof value); }
};

// By process_vm_readv: needs the rights of a debugger (same user and dumpable, or CAP_SYS_PTRACE), opens nothing.
class ProcessMemory final : public MemoryReader {
 public:
  static constexpr size_t kPiecesMax = 64;  // of one system call

  explicit ProcessMemory(int32_t pid) : pid_(pid) {}
  bool read(uint64_t address, void* to, size_t bytes) override;
  bool read_all(std::span<const MemoryPiece> pieces) override;
  // errno of the last read that failed; 0: none has.
  int error() const { return error_; }
  // Why memory cannot be read at all, in one line.
  std::string why() const;

 private:
  int32_t pid_;
  int error_ = 0;
};

}  // namespace lockstep
