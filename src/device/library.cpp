#include "device/library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace moracle {

namespace {

constexpr const char* kUseOwn = "use the object that was built with this program";

std::string version_text(std::uint32_t version, std::uint32_t bytes) {
  return "version " + std::to_string(version) + " of " + std::to_string(bytes) + " bytes";
}

// Set by whoever knows where the object is; empty: nobody.
std::string named_library() {
  const char* const name = std::getenv("MORACLE_CUDA_LIBRARY");
  return name != nullptr ? name : "";
}

// What the loader says of a file, without the path, which the error has.
std::string loader_text(const std::filesystem::path& path) {
  const char* const text = ::dlerror();
  if (text == nullptr) return "none";
  const std::string said = text;
  const std::string lead = path.string() + ": ";
  return said.starts_with(lead) ? said.substr(lead.size()) : said;
}

Result<const DriverApi*> find_library() {
  std::string places;
  for (const std::filesystem::path& path : device_library_paths()) {
    std::error_code failed;
    if (std::filesystem::exists(path, failed)) return open_device_library(path);
    places += (places.empty() ? "" : ", ") + path.string();
  }
  return Error{.code = "device.library",
               .wanted = std::string(kCudaLibraryName) + ", which holds the CUDA kernels",
               .found = "none at " + places,
               .advice = named_library().empty()
                             ? "build with the preset cuda, or set MORACLE_CUDA_LIBRARY to the file"
                             : "correct MORACLE_CUDA_LIBRARY, or unset it to look beside the program"};
}

}  // namespace

Result<const DriverApi*> open_device_library(const std::filesystem::path& path) {
  void* const object = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    return Error{.code = "device.library",
                 .file = path.string(),
                 .wanted = "a shared object with CUDA kernels",
                 .found = loader_text(path),
                 .advice = kUseOwn};
  }
  const auto function = reinterpret_cast<DriverApiFunction>(::dlsym(object, kDriverApiSymbol));
  const DriverApi* const api = function != nullptr ? function() : nullptr;
  if (api == nullptr) {
    ::dlclose(object);
    return Error{.code = "device.library",
                 .file = path.string(),
                 .wanted = std::string("a shared object that exports ") + kDriverApiSymbol,
                 .found = "none of that name",
                 .advice = kUseOwn};
  }
  if (api->version != kDriverApiVersion || api->bytes != sizeof(DriverApi)) {
    Error error{.code = "device.version",
                .file = path.string(),
                .wanted = version_text(kDriverApiVersion, sizeof(DriverApi)),
                .found = version_text(api->version, api->bytes),
                .advice = kUseOwn};
    ::dlclose(object);
    return error;
  }
  return api;
}

std::vector<std::filesystem::path> device_library_paths() {
  if (const std::string named = named_library(); !named.empty()) return {named};
  std::error_code failed;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  std::vector<std::filesystem::path> paths{folder / kCudaLibraryName,
                                           (folder / "../lib/moracle").lexically_normal() / kCudaLibraryName};
  // Of a program that links or loads the library: beside that.
  Dl_info own{};
  if (::dladdr(reinterpret_cast<const void*>(&open_device_library), &own) != 0 && own.dli_fname != nullptr) {
    const auto beside = std::filesystem::canonical(own.dli_fname, failed).parent_path();
    if (!failed && beside != folder) paths.push_back(beside / kCudaLibraryName);
  }
  return paths;
}

const Result<const DriverApi*>& device_library() {
  static const Result<const DriverApi*> found = find_library();
  return found;
}

}  // namespace moracle
