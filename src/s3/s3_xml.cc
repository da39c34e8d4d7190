#include "s3/s3_xml.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/characters.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::s3 {
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

int64_t xml_time_unix_s(const std::string& text) {
  const Result<int64_t> ns = unix_ns_from_rfc3339(text);
  return ns.ok() && text.ends_with('Z') ? *ns / 1'000'000'000 : 0;
}

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&' || c == '<' || c == '>' || c == '"') {
      out += format("&#%d;", c);
    } else {
      out += c;
    }
  }
  return out;
}

Result<ListPage> read_list_page(std::string_view xml_untrusted) {
  ListPage page;
  std::optional<std::string> name, bytes, is_truncated;
  int64_t modified_unix_s = 0;
  bool is_list = false;
  LOCKSTEP_TRY(XmlReader(xml_untrusted, [&](std::string_view path, const std::string& text) -> Result<void> {
                 if (path == "ListBucketResult/Contents/Key") name = text;
                 if (path == "ListBucketResult/Contents/Size") bytes = text;
                 if (path == "ListBucketResult/Contents/LastModified") modified_unix_s = xml_time_unix_s(text);
                 if (path == "ListBucketResult/IsTruncated") is_truncated = text;
                 if (path == "ListBucketResult/NextContinuationToken") page.next = text;
                 if (path == "ListBucketResult") is_list = true;
                 if (path != "ListBucketResult/Contents") return {};
                 const std::optional<uint64_t> size = bytes ? parse_uint(*bytes) : std::nullopt;
                 if (!name || name->empty() || !size) return not_a_list("an object has no name or no size");
                 if (page.entries.size() >= kPageEntriesMax) return not_a_list("it has too many objects");
                 page.entries.push_back({std::move(*name), *size, std::exchange(modified_unix_s, 0)});
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

Result<UploadsPage> read_uploads_page(std::string_view xml_untrusted) {
  UploadsPage page;
  UploadEntry one;
  std::string is_truncated = "false";
  bool is_list = false;
  LOCKSTEP_TRY(XmlReader(xml_untrusted, [&](std::string_view path, const std::string& text) -> Result<void> {
                 if (path == "ListMultipartUploadsResult/Upload/Key") one.name = text;
                 if (path == "ListMultipartUploadsResult/Upload/UploadId") one.id = text;
                 if (path == "ListMultipartUploadsResult/Upload/Initiated") one.begun_unix_s = xml_time_unix_s(text);
                 if (path == "ListMultipartUploadsResult/IsTruncated") is_truncated = text;
                 if (path == "ListMultipartUploadsResult/NextKeyMarker") page.next_key = text;
                 if (path == "ListMultipartUploadsResult/NextUploadIdMarker") page.next_id = text;
                 if (path == "ListMultipartUploadsResult") is_list = true;
                 if (path != "ListMultipartUploadsResult/Upload") return {};
                 if (one.name.empty() || one.id.empty()) return not_a_list("an upload has no name or no id");
                 if (page.uploads.size() >= kPageEntriesMax) return not_a_list("it has too many uploads");
                 page.uploads.push_back(std::exchange(one, {}));
                 return {};
               }).read());
  if (!is_list) return not_a_list("it is none");
  if (is_truncated == "true" && page.next_key.empty()) return not_a_list("it goes on, but does not say where");
  if (is_truncated != "true") page.next_key = page.next_id = "";
  return page;
}

Result<PartsPage> read_parts_page(std::string_view xml_untrusted) {
  PartsPage page;
  std::string number, bytes, etag, is_truncated = "false";
  bool is_list = false;
  LOCKSTEP_TRY(XmlReader(xml_untrusted, [&](std::string_view path, const std::string& text) -> Result<void> {
                 if (path == "ListPartsResult/Part/PartNumber") number = text;
                 if (path == "ListPartsResult/Part/Size") bytes = text;
                 if (path == "ListPartsResult/Part/ETag") etag = text;
                 if (path == "ListPartsResult/IsTruncated") is_truncated = text;
                 if (path == "ListPartsResult/NextPartNumberMarker") page.next = text;
                 if (path == "ListPartsResult") is_list = true;
                 if (path != "ListPartsResult/Part") return {};
                 const std::optional<uint64_t> part = parse_uint(number), size = parse_uint(bytes);
                 if (!part || *part == 0 || *part > kPageEntriesMax || !size || etag.empty() || etag.size() > 200)
                   return not_a_list("a part has no number, size or etag");
                 if (page.parts.size() >= kPageEntriesMax) return not_a_list("it has too many parts");
                 page.parts.push_back({static_cast<uint32_t>(*part), *size, etag});
                 number = bytes = etag = "";
                 return {};
               }).read());
  if (!is_list) return not_a_list("it is none");
  if (is_truncated == "true" && page.next.empty()) return not_a_list("it goes on, but does not say where");
  if (is_truncated != "true") page.next.clear();
  return page;
}

Result<std::string> read_upload_id(std::string_view xml_untrusted) {
  std::string id;
  LOCKSTEP_TRY(XmlReader(xml_untrusted, [&](std::string_view path, const std::string& text) -> Result<void> {
                 if (path == "InitiateMultipartUploadResult/UploadId") id = text;
                 return {};
               }).read());
  if (id.empty() || id.size() > 1024) return Error{"the store's answer names no upload"};
  return id;
}

bool is_completed(std::string_view xml_untrusted) {
  bool is_done = false;
  const Result<void> read = XmlReader(xml_untrusted, [&](std::string_view path, const std::string&) {
                              if (path == "CompleteMultipartUploadResult") is_done = true;
                              return Result<void>();
                            }).read();
  return read.ok() && is_done;
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

}  // namespace lockstep::s3
