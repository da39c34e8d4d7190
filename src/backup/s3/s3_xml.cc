#include "backup/s3/s3_xml.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/characters.h"
#include "base/text.h"

namespace lockstep::backup {
namespace {

constexpr size_t kDepthMax = 16;
constexpr size_t kEntityBytesMax = 10;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':';
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// "amp" and "#x2F", as between '&' and ';'. False: there is no such character.
bool append_entity(std::string_view name, std::string& to) {
  constexpr std::pair<std::string_view, char> kNamed[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& [known, c] : kNamed) {
    if (name == known) {
      to += c;
      return true;
    }
  }
  if (name.size() < 2 || name[0] != '#') return false;
  const bool is_hex = name[1] == 'x';
  uint32_t code = 0;
  for (const char c : name.substr(is_hex ? 2 : 1)) {
    const int digit = hex_digit(c), base = is_hex ? 16 : 10;
    if (digit < 0 || digit >= base) return false;
    code = code * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit);
    if (code > 0x10ffff) return false;
  }
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code == 0 || is_surrogate || name.size() == (is_hex ? 2u : 1u)) return false;
  append_utf8(to, code);
  return true;
}

// Hands on each element where it ends: its path ("ListBucketResult/Contents/Key") and the text right in it.
class XmlReader {
 public:
  using Element = std::function<Result<void>(std::string_view path, const std::string& text)>;
  XmlReader(std::string_view xml, Element element) : rest_(xml), element_(std::move(element)) {}

  Result<void> read() {
    if (rest_.size() > kXmlBytesMax) return wrong("it is too long");
    skip_blanks();
    if (rest_.starts_with("<?xml")) {
      const size_t end = rest_.find("?>");
      if (end == std::string_view::npos) return wrong("its first line does not end");
      rest_.remove_prefix(end + 2);
      skip_blanks();
    }
    if (!rest_.starts_with('<')) return wrong("it is no XML");
    LOCKSTEP_TRY(open());
    while (!open_.empty()) LOCKSTEP_TRY(rest_.starts_with("</") ? close() : rest_.starts_with('<') ? open() : text());
    skip_blanks();
    if (!rest_.empty()) return wrong("something follows its end");
    return {};
  }

 private:
  struct Open {
    size_t path_bytes;  // of what it is in
    std::string text;
  };

  static Error wrong(const char* why) { return Error{std::string("the store's answer cannot be read: ") + why}; }
  void skip_blanks() {
    while (!rest_.empty() && is_blank(rest_.front())) rest_.remove_prefix(1);
  }
  std::string_view name() {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_name_character);
    const std::string_view found = rest_.substr(0, static_cast<size_t>(end - rest_.begin()));
    rest_.remove_prefix(found.size());
    return found;
  }

  Result<void> open() {
    rest_.remove_prefix(1);
    const std::string_view found = name();
    if (found.empty()) return wrong("an element has no name");
    if (open_.size() >= kDepthMax) return wrong("it is too deep");
    open_.push_back({path_.size(), {}});
    if (!path_.empty()) path_ += '/';
    path_ += found;
    LOCKSTEP_TRY(attributes());
    if (rest_.starts_with("/>")) {
      rest_.remove_prefix(2);
      return ended();
    }
    if (!rest_.starts_with('>')) return wrong("an element's beginning does not end");
    rest_.remove_prefix(1);
    return {};
  }
  // Namespaces and the like: nothing that we want is in them.
  Result<void> attributes() {
    for (skip_blanks(); !rest_.empty() && is_name_character(rest_.front()); skip_blanks()) {
      (void)name();
      if (!rest_.starts_with("=\"") && !rest_.starts_with("='")) return wrong("an attribute has no value");
      const size_t end = rest_.find(rest_[1], 2);
      if (end == std::string_view::npos) return wrong("an attribute does not end");
      rest_.remove_prefix(end + 1);
    }
    return {};
  }
  Result<void> close() {
    rest_.remove_prefix(2);
    const std::string_view found = name();
    const size_t from = open_.back().path_bytes;
    if (std::string_view(path_).substr(from == 0 ? 0 : from + 1) != found) return wrong("another element ends");
    skip_blanks();
    if (!rest_.starts_with('>')) return wrong("an element's end does not end");
    rest_.remove_prefix(1);
    return ended();
  }
  Result<void> ended() {
    Result<void> taken = element_(path_, open_.back().text);
    path_.resize(open_.back().path_bytes);
    open_.pop_back();
    return taken;
  }
  Result<void> text() {
    std::string& to = open_.back().text;
    while (!rest_.empty() && rest_.front() != '<') {
      const size_t plain = std::min(rest_.find_first_of("<&"), rest_.size());
      to += rest_.substr(0, plain);
      rest_.remove_prefix(plain);
      if (!rest_.starts_with('&')) continue;
      const size_t end = rest_.substr(0, kEntityBytesMax).find(';');
      if (end == std::string_view::npos || !append_entity(rest_.substr(1, end - 1), to))
        return wrong("it has a character that is none");
      rest_.remove_prefix(end + 1);
    }
    if (rest_.empty()) return wrong("it is cut off");
    return {};
  }

  std::string_view rest_;
  const Element element_;
  std::string path_;
  std::vector<Open> open_;
};

Error not_a_list(const char* why) {
  return Error{std::string("the store's list cannot be used: ") + why};
}

}  // namespace

Result<ListPage> read_list_page(std::string_view xml_untrusted) {
  ListPage page;
  std::optional<std::string> name, bytes, is_truncated;
  bool is_list = false;
  LOCKSTEP_TRY(XmlReader(xml_untrusted, [&](std::string_view path, const std::string& text) -> Result<void> {
                 if (path == "ListBucketResult/Contents/Key") name = text;
                 if (path == "ListBucketResult/Contents/Size") bytes = text;
                 if (path == "ListBucketResult/IsTruncated") is_truncated = text;
                 if (path == "ListBucketResult/NextContinuationToken") page.next = text;
                 if (path == "ListBucketResult") is_list = true;
                 if (path != "ListBucketResult/Contents") return {};
                 const std::optional<uint64_t> size = bytes ? parse_uint(*bytes) : std::nullopt;
                 if (!name || name->empty() || !size) return not_a_list("an object has no name or no size");
                 if (page.entries.size() >= kPageEntriesMax) return not_a_list("it has too many objects");
                 page.entries.push_back({std::move(*name), *size});
                 name.reset();
                 bytes.reset();
                 return {};
               }).read());
  if (!is_list || (is_truncated != "true" && is_truncated != "false")) return not_a_list("it is none");
  // Taken for the last page, half of the objects would look lost.
  if (is_truncated == "true" && page.next.empty()) return not_a_list("it goes on, but does not say where");
  if (is_truncated == "false") page.next.clear();
  return page;
}

std::string refusal_code(std::string_view xml_untrusted) {
  std::string code;
  const Result<void> read = XmlReader(xml_untrusted, [&](std::string_view path, const std::string& text) {
                              if (path == "Error/Code") code = text;
                              return Result<void>();
                            }).read();
  const bool is_word = code.size() <= 64 &&
                       std::all_of(code.begin(), code.end(), [](char c) { return is_name_character(c) && c != ':'; });
  return read.ok() && is_word ? code : "";
}

}  // namespace lockstep::backup
