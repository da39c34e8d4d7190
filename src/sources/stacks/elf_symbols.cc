#include "sources/stacks/elf_symbols.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kProgramHeadersMax = 64;
constexpr size_t kDynamicMax = 256;
constexpr uint32_t kBucketsMax = 1u << 22;
constexpr size_t kChainMax = 4096;
constexpr size_t kNameMax = 64;

struct GnuHashHeader {
  uint32_t buckets, first, bloom_words, bloom_shift;
};

uint32_t gnu_hash(std::string_view name) {
  uint32_t hash = 5381;
  for (char c : name) hash = hash * 33 + static_cast<uint8_t>(c);
  return hash;
}

}  // namespace

std::vector<LoadedFile> loaded_files_untrusted(std::string_view maps, std::string_view name_begins, size_t most) {
  std::vector<LoadedFile> files;
  while (!maps.empty() && files.size() < most) {
    const size_t end = std::min(maps.find('\n'), maps.size());
    const std::string_view line = maps.substr(0, end);
    maps.remove_prefix(std::min(end + 1, maps.size()));
    // 7f31c0a00000-7f31c0ae9000 r--p 00000000 fe:01 1234   /usr/lib/libpython3.11.so.1.0
    const size_t slash = line.find('/');
    if (slash == std::string_view::npos || line.find(" 00000000 ") == std::string_view::npos) continue;
    const std::string_view path = line.substr(slash);
    if (!path.substr(path.rfind('/') + 1).starts_with(name_begins)) continue;
    LoadedFile file;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), file.base, 16);
    if (parsed.ec != std::errc() || file.base == 0) continue;
    file.path = path;
    // A file may be mapped from its beginning twice; its header is where it is first.
    if (std::none_of(files.begin(), files.end(), [&](const LoadedFile& seen) { return seen.path == file.path; }))
      files.push_back(std::move(file));
  }
  return files;
}

Result<ElfSymbols> ElfSymbols::open(MemoryReader& memory, uint64_t base) {
  Elf64_Ehdr header{};
  if (!memory.read_value(base, header)) return Error{"its first page cannot be read"};
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_phentsize != sizeof(Elf64_Phdr) ||
      header.e_phnum > kProgramHeadersMax)
    return Error{"no 64-bit ELF file of the usual kind"};
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  if (!memory.read(base + header.e_phoff, parts.data(), parts.size() * sizeof(Elf64_Phdr)))
    return Error{"its program headers cannot be read"};
  uint64_t dynamic = 0, dynamic_bytes = 0, first_address = UINT64_MAX;
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type == PT_LOAD) first_address = std::min<uint64_t>(first_address, part.p_vaddr & ~uint64_t{4095});
    if (part.p_type == PT_DYNAMIC) {
      dynamic = part.p_vaddr;
      dynamic_bytes = part.p_memsz;
    }
  }
  if (dynamic == 0 || first_address == UINT64_MAX) return Error{"it exports nothing"};
  ElfSymbols symbols;
  symbols.bias_ = base - first_address;  // 0 where it was linked to lie there
  std::vector<Elf64_Dyn> entries(std::min<size_t>(dynamic_bytes / sizeof(Elf64_Dyn), kDynamicMax));
  if (!memory.read(symbols.bias_ + dynamic, entries.data(), entries.size() * sizeof(Elf64_Dyn)))
    return Error{"its dynamic section cannot be read"};
  uint64_t hash = 0;
  for (const Elf64_Dyn& entry : entries) {
    // glibc has added the bias already, other loaders leave the file's number.
    const uint64_t at = entry.d_un.d_ptr < base ? entry.d_un.d_ptr + symbols.bias_ : entry.d_un.d_ptr;
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) symbols.symbols_ = at;
    if (entry.d_tag == DT_STRTAB) symbols.strings_ = at;
    if (entry.d_tag == DT_STRSZ) symbols.strings_bytes_ = entry.d_un.d_val;
    if (entry.d_tag == DT_GNU_HASH) hash = at;
  }
  GnuHashHeader table{};
  if (hash == 0 || symbols.symbols_ == 0 || symbols.strings_ == 0 || !memory.read_value(hash, table) ||
      table.buckets == 0 || table.buckets > kBucketsMax || table.bloom_words > kBucketsMax)
    return Error{"it has no table of names that is known here"};
  symbols.bucket_count_ = table.buckets;
  symbols.first_ = table.first;
  symbols.buckets_ = hash + sizeof table + uint64_t{table.bloom_words} * sizeof(uint64_t);
  symbols.chains_ = symbols.buckets_ + uint64_t{table.buckets} * sizeof(uint32_t);
  return symbols;
}

std::optional<uint64_t> ElfSymbols::find(MemoryReader& memory, std::string_view name) const {
  const uint32_t hash = gnu_hash(name);
  uint32_t index = 0;
  if (name.size() >= kNameMax ||
      !memory.read_value(buckets_ + uint64_t{hash % bucket_count_} * sizeof(uint32_t), index) || index < first_)
    return std::nullopt;
  for (size_t steps = 0; steps < kChainMax; ++steps, ++index) {
    uint32_t link = 0;
    if (!memory.read_value(chains_ + uint64_t{index - first_} * sizeof link, link)) return std::nullopt;
    if ((link | 1) == (hash | 1)) {
      Elf64_Sym symbol{};
      char text[kNameMax] = {};
      if (!memory.read_value(symbols_ + uint64_t{index} * sizeof symbol, symbol)) return std::nullopt;
      if (symbol.st_name < strings_bytes_ && symbol.st_shndx != SHN_UNDEF &&
          memory.read(strings_ + symbol.st_name, text, name.size() + 1) && text[name.size()] == '\0' &&
          name == std::string_view(text, name.size()))
        return bias_ + symbol.st_value;
    }
    if ((link & 1) != 0) break;  // the chain ends
  }
  return std::nullopt;
}

}  // namespace lockstep
