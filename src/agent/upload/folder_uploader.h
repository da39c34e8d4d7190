// Keeps files of captures in a folder of this machine, <folder>/<job>/<capture>/<file>, gzip: for an agent without a
// server (--export file:DIR), and for tests.
//
// A file is whole or not there: it is written beside and renamed. Job ids are percent-encoded.
// Thread rule: Thread-safe.
#pragma once

#include <string>

#include "agent/upload/uploader.h"

namespace lockstep {

class FolderUploader final : public Uploader {
 public:
  explicit FolderUploader(std::string folder) : folder_(std::move(folder)) {}
  Result<Uploaded> upload(int fd, const UploadOrder& order, const std::function<void(uint64_t)>& progress) override;

 private:
  const std::string folder_;
};

}  // namespace lockstep
