// The web UI: files of one folder. A path that is no file and looks like a page answers index.html, so that URLs of
// pages work. Nothing outside the folder is ever read: odd path segments are refused, and links are resolved before the
// file is opened.
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr uint64_t kFileBytesMax = 64ull << 20;
constexpr size_t kDepthMax = 32;

std::string_view content_type_of(std::string_view path) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".html", "text/html; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".json", "application/json"},
      {".map", "application/json"},
      {".png", "image/png"},
      {".ico", "image/x-icon"},
      {".woff2", "font/woff2"},
      {".txt", "text/plain; charset=utf-8"},
      {".md", "text/plain; charset=utf-8"},  // of the documents, which the page sets; a browser shows them as they are
      {".webmanifest", "application/manifest+json"},
  };
  for (const auto& [ending, type] : kTypes) {
    if (path.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

bool is_plain(std::string_view path) {
  if (!path.starts_with('/') || path.size() > 1024 || path.find('\0') != std::string_view::npos ||
      path.find('\\') != std::string_view::npos)
    return false;
  for (std::string_view segment : split(path.substr(1), '/')) {
    if (segment.starts_with('.')) return false;  // "..", "." and hidden files
  }
  return true;
}

// Pages of things that others have named.
bool is_named(std::string_view path) {
  for (const char* start : {"/jobs/", "/nodes/", "/gpus/", "/services/"}) {
    if (path.starts_with(start)) return true;
  }
  return false;
}

// The file's real path if it lies in the folder; empty where it does not.
std::string resolve(const std::string& folder, const std::string& path) {
  std::unique_ptr<char, decltype(&std::free)> root(realpath(folder.c_str(), nullptr), &std::free);
  std::unique_ptr<char, decltype(&std::free)> file(realpath((folder + path).c_str(), nullptr), &std::free);
  if (!root || !file) return {};
  std::string real = file.get();
  return real.starts_with(std::string(root.get()) + "/") ? real : std::string();
}

// Addresses in index.html are relative to it ("./assets/..."), and a page may be any number of levels below: as many are
// gone up. So it works under whatever prefix a proxy serves it, without knowing that.
std::string from_below(const std::string& page, size_t depth) {
  if (depth == 0) return page;
  std::string up;
  for (size_t i = 0; i < depth; ++i) up += "../";
  constexpr std::string_view kHere = "=\"./";
  std::string out;
  size_t from = 0;
  for (size_t at = page.find(kHere); at != std::string::npos; at = page.find(kHere, from)) {
    out.append(page, from, at - from).append("=\"").append(up);
    from = at + kHere.size();
  }
  return out.append(page, from);
}

}  // namespace

HttpResponse get_web_file(const ApiContext& context, const std::string& path, size_t depth) {
  if (context.web_folder.empty()) {
    if (path != "/")
      return error_answer(404, "no such page, and this server was started without its web UI (see --web)");
    return text_answer(200, "text/html; charset=utf-8",
                       "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Lockstep</title><p>Lockstep is "
                       "running, without its web UI: the files were not found. "
                       "Start <code>lockstepd</code> with <code>--web DIR</code>. The API is at <a "
                       "href=\"/api/jobs\">/api/jobs</a>.</p></html>\n");
  }
  if (!is_plain(path)) return error_answer(404, "no such page");
  std::string wanted = path == "/" ? "/index.html" : path;
  Result<std::string> content = Error{"not in the folder"};
  if (std::string file = resolve(context.web_folder, wanted); !file.empty()) content = read_file(file, kFileBytesMax);
  // A job may be called llama-3.1, a host node-1.example: there everything is a page.
  bool is_page = is_named(wanted) || wanted.substr(wanted.rfind('/')).find('.') == std::string::npos;
  if (!content.ok() && is_page) {
    wanted = "/index.html";
    if (std::string file = resolve(context.web_folder, wanted); !file.empty()) content = read_file(file, kFileBytesMax);
  }
  if (!content.ok()) return error_answer(404, format("no such page: %.200s", path.c_str()));
  if (wanted == "/index.html") content = from_below(*content, std::min(depth, kDepthMax));
  HttpResponse response = text_answer(200, content_type_of(wanted), std::move(*content));
  response.headers.emplace_back("content-security-policy", "default-src 'self'; frame-ancestors 'none'");
  for (auto& [name, value] : response.headers) {
    // Built files under /assets/ carry a hash of their content in their name; everything else may change with an
    // update.
    if (name == "cache-control")
      value = wanted.starts_with("/assets/") ? "public, max-age=31536000, immutable" : "no-cache";
  }
  return response;
}

}  // namespace lockstep
