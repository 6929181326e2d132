// Makes the n-th call of a kind fail, by taking the place of what the system offers: memory, files, threads. Linked
// into a test program, or loaded before a program as it is (preload.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace moracle::test {

enum class Call : std::uint8_t {
  none,
  allocate,  // malloc and its like, and so operator new; under sanitizers operator new alone
  open,      // of files: open, openat, fopen
  read,      // read, pread
  map,       // mmap
  thread,    // pthread_create
  accept,    // accept, accept4
  write,     // to sockets: send, sendmsg
};
[[nodiscard]] std::optional<Call> call_named(std::string_view name);  // as above
[[nodiscard]] std::string_view name_of(Call call);

// From now on the `at`-th call of this kind fails, counted from 1, and with `for_good` all later ones too. 0: none
// does.
void arm(Call call, std::int64_t at, bool for_good = false);

// Calls of the calling thread fail no more, and are not counted.
void spare_this_thread();

// What ~basic_json() of nlohmann::json allocates fails no more; the next allocation does in its place. It cannot be
// caught, and ends the process. Knows functions by the names that the program exports.
void spare_json_destructors();

// Ends it. Returns how many calls of the kind there were.
std::int64_t disarm();

// Until the next disarm(): of the calls that come from one stack of callers, up to 64 deep, the first is noted. Stacks
// are told apart by a hash of 64 bits; the first 65,536 are kept.
void note_callers();
// The numbers of these calls, ascending.
[[nodiscard]] std::vector<std::int64_t> noted_calls();

// Blocks of memory that are in use, where malloc is counted; else 0.
[[nodiscard]] std::int64_t live_blocks();

}  // namespace moracle::test
