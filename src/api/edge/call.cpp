#include "api/edge/call.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "base/printable.h"
#include "base/unicode/utf8.h"

namespace moracle::api {

namespace {

constexpr std::uint32_t kLeastStruct = 8;        // the first two members
constexpr std::uint32_t kMaxStruct = 64U << 10;  // more is no struct of ours

moracle_status status_of(const Error& error) {
  const auto begins = [&](std::string_view area) { return error.code.starts_with(area); };
  if (begins("handle.") || begins("argument.")) return MORACLE_INVALID;
  if (begins("memory.") || error.code == "threads.start") return MORACLE_NO_MEMORY;
  return error.code == "call.interrupted" ? MORACLE_INTERRUPTED : MORACLE_FAILED;
}

const moracle_error& without_memory() {
  static const moracle_error error{.size = sizeof(moracle_error),
                                   .status = MORACLE_NO_MEMORY,
                                   .code = "memory.exhausted",
                                   .file = "",
                                   .where = "",
                                   .wanted = "memory",
                                   .found = "none left",
                                   .advice = "",
                                   .message = "wanted memory, found none left [memory.exhausted]"};
  return error;
}

void* allocate(std::size_t bytes) {
  void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

moracle_status fail_without_memory(moracle_error** error) noexcept {
  if (error != nullptr) *error = const_cast<moracle_error*>(&without_memory());  // moracle_error_free knows it
  return MORACLE_NO_MEMORY;
}

moracle_status fail(moracle_error** error, const Error& what) noexcept {
  const moracle_status status = status_of(what);
  if (error == nullptr) return status;
  try {
    const std::string message = what.message();
    const std::array<const std::string*, 7> texts{&what.code,  &what.file,   &what.where, &what.wanted,
                                                  &what.found, &what.advice, &message};
    std::size_t bytes = sizeof(moracle_error);
    for (const std::string* text : texts) bytes += text->size() + 1;
    char* at = static_cast<char*>(allocate(bytes));
    auto* const made = new (at) moracle_error{};
    at += sizeof(moracle_error);
    const std::array<const char**, 7> members{&made->code,  &made->file,   &made->where,  &made->wanted,
                                              &made->found, &made->advice, &made->message};
    for (std::size_t i = 0; i < texts.size(); ++i) {
      *members[i] = at;
      at = std::copy(texts[i]->begin(), texts[i]->end(), at);
      *at++ = '\0';
    }
    made->size = sizeof(moracle_error);
    made->status = status;
    *error = made;
    return status;
  } catch (...) {
    return fail_without_memory(error);
  }
}

moracle_status close(Kind kind, const void* handle) noexcept {
  return call(nullptr, "close a handle", [&]() -> Result<> {
    MORACLE_ASSIGN(const std::shared_ptr<void> object, close_handle(kind, handle));
    return Ok{};
  });
}

Error wrong_argument(std::string rule, std::string_view name, std::string wanted, std::string found) {
  return Error{.code = "argument." + std::move(rule),
               .where = std::string(name),
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

Error null_argument(std::string_view name) {
  return wrong_argument("null", name, "a pointer", "null");
}

Result<> read_struct(const void* from, std::string_view name, std::size_t known, void* to) {
  if (from == nullptr) return Ok{};
  std::uint32_t size = 0;
  std::memcpy(&size, from, sizeof size);
  if (size < kLeastStruct || size > kMaxStruct) {
    return wrong_argument("size", name, "a struct that begins with its size, up to " + std::to_string(known),
                          std::to_string(size));
  }
  const auto* const bytes = static_cast<const unsigned char*>(from);
  const std::size_t common = std::min<std::size_t>(size, known);
  if (std::any_of(bytes + common, bytes + size, [](unsigned char byte) { return byte != 0; })) {
    return wrong_argument("newer", name,
                          "a struct of at most " + std::to_string(known) + " bytes, or zeros behind them",
                          "members that this version of the library does not know");
  }
  std::memcpy(to, from, common);
  return Ok{};
}

Result<> write_struct(const void* from, std::size_t known, void* to, std::string_view name) {
  MORACLE_TRY(check_not_null(to, name));
  std::uint32_t size = 0;
  std::memcpy(&size, to, sizeof size);
  if (size < kLeastStruct || size > kMaxStruct) {
    return wrong_argument("size", name, "a struct that begins with its size, up to " + std::to_string(known),
                          std::to_string(size));
  }
  std::memset(to, 0, size);
  std::memcpy(to, from, std::min<std::size_t>(size, known));
  std::memcpy(to, &size, sizeof size);
  return Ok{};
}

Result<std::string> read_text(const char* text, std::string_view name) {
  MORACLE_TRY(check_not_null(text, name));
  std::string copy(text);
  if (!unicode::is_utf8(copy)) return wrong_argument("utf8", name, "UTF-8", "other bytes");
  return copy;
}

Result<Policy> read_policy(const moracle_policy* policy) {
  MORACLE_ASSIGN(const moracle_policy asked, read_struct(policy, "policy"));
  Policy result;
  if (asked.numerics != MORACLE_EXACT && asked.numerics != MORACLE_FAST) {
    return wrong_argument("range", "policy.numerics", "MORACLE_EXACT or MORACLE_FAST", std::to_string(asked.numerics));
  }
  result.numerics = asked.numerics == MORACLE_FAST ? Numerics::fast : Numerics::exact;
  result.batch_invariant = asked.batch_invariant != 0;
  if (asked.backend != nullptr) {
    MORACLE_ASSIGN(result.pinned, read_text(asked.backend, "policy.backend"));
  }
  if (asked.preferred != nullptr) {
    MORACLE_ASSIGN(result.preferred, read_text(asked.preferred, "policy.preferred"));
  }
  return result;
}

Result<std::string> read_device(const char* device) {
  return device == nullptr ? Result<std::string>("cpu") : read_text(device, "options.device");
}

Result<std::optional<KvType>> read_kv(const char* kv) {
  if (kv == nullptr) return std::optional<KvType>();
  MORACLE_ASSIGN(const std::string name, read_text(kv, "options.kv"));
  const std::optional<KvType> type = kv_type_of(name);
  if (!type) return wrong_argument("name", "options.kv", "f32, bf16 or int8", name);
  return type;
}

char* copy_text(std::string_view text) {
  auto* const copy = static_cast<char*>(allocate(text.size() + 1));
  std::copy(text.begin(), text.end(), copy);
  copy[text.size()] = '\0';
  return copy;
}

std::int32_t* copy_ids(std::span<const std::int32_t> ids) {
  auto* const copy = static_cast<std::int32_t*>(allocate(ids.size_bytes()));
  std::copy(ids.begin(), ids.end(), copy);
  return copy;
}

char* copy_json(const Json& document) {
  return copy_text(printable_json(document.dump(2, ' ', false, Json::error_handler_t::replace)));
}

}  // namespace moracle::api

extern "C" {

uint32_t moracle_abi_version(void) {
  return MORACLE_ABI_VERSION;
}

const char* moracle_version(void) {
  return MORACLE_VERSION;
}

void moracle_error_free(moracle_error* error) {
  if (error != &moracle::api::without_memory()) std::free(error);
}

void moracle_free(void* memory) {
  std::free(memory);
}

}  // extern "C"
