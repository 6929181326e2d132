#include "cli/sandbox.h"

#include <cerrno>
#include <cstring>
#include <string>

#ifdef MORACLE_SECCOMP
#include <fcntl.h>
#include <seccomp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#endif

namespace moracle::cli {

namespace {

Error unavailable(std::string found) {
  return Error{.code = "sandbox.unavailable",
               .wanted = "a filter of system calls",
               .found = std::move(found),
               .advice = "--no-sandbox serves without"};
}

}  // namespace

#ifndef MORACLE_SECCOMP

bool has_sandbox() {
  return false;
}

Result<> enter_sandbox(const SandboxOptions& /*options*/) {
  return unavailable("a program that was built without libseccomp");
}

#else

namespace {

struct Release {
  void operator()(void* filter) const { seccomp_release(filter); }
};
using Filter = std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, Release>;

// Their arguments make no difference. What libseccomp does not know on this architecture is left out by it.
constexpr std::array kDenied = {SCMP_SYS(socket),
                                SCMP_SYS(connect),
                                SCMP_SYS(bind),
                                SCMP_SYS(listen),
                                SCMP_SYS(execve),
                                SCMP_SYS(execveat),
                                SCMP_SYS(ptrace),
                                SCMP_SYS(process_vm_readv),
                                SCMP_SYS(process_vm_writev),
                                SCMP_SYS(creat),
                                SCMP_SYS(openat2),
                                SCMP_SYS(open_by_handle_at),
                                SCMP_SYS(truncate),
                                SCMP_SYS(mknod),
                                SCMP_SYS(mknodat),
                                SCMP_SYS(link),
                                SCMP_SYS(linkat),
                                SCMP_SYS(symlink),
                                SCMP_SYS(symlinkat),
                                SCMP_SYS(rename),
                                SCMP_SYS(renameat),
                                SCMP_SYS(renameat2),
                                SCMP_SYS(pidfd_getfd),
                                SCMP_SYS(pidfd_open),
                                SCMP_SYS(io_uring_setup),
                                SCMP_SYS(io_uring_enter),
                                SCMP_SYS(io_uring_register),
                                SCMP_SYS(mount),
                                SCMP_SYS(umount2),
                                SCMP_SYS(unshare),
                                SCMP_SYS(setns),
                                SCMP_SYS(bpf),
                                SCMP_SYS(userfaultfd),
                                SCMP_SYS(init_module),
                                SCMP_SYS(finit_module),
                                SCMP_SYS(perf_event_open),
                                SCMP_SYS(process_madvise),
                                SCMP_SYS(add_key),
                                SCMP_SYS(request_key),
                                SCMP_SYS(keyctl)};

int deny(const Filter& filter, int call) {
  return seccomp_rule_add_array(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 0, nullptr);
}

// `call` where all bits of `flags` are in its argument.
int deny_flags(const Filter& filter, int call, unsigned argument, std::uint64_t flags) {
  const scmp_arg_cmp having{argument, SCMP_CMP_MASKED_EQ, flags, flags};
  return seccomp_rule_add_array(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 1, &having);
}

int deny_writing(const Filter& filter, int call, unsigned argument, const SandboxOptions& options) {
  int failed = 0;
  for (const int flag : {O_WRONLY, O_CREAT, O_TRUNC, O_APPEND, O_TMPFILE})
    failed = failed != 0 ? failed : deny_flags(filter, call, argument, static_cast<std::uint64_t>(flag));
  if (failed == 0 && !options.opens_devices) failed = deny_flags(filter, call, argument, O_RDWR);
  return failed;
}

}  // namespace

bool has_sandbox() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
  return false;
#else
  return true;
#endif
#else
  return true;
#endif
}

Result<> enter_sandbox(const SandboxOptions& options) {
  const Filter filter(seccomp_init(SCMP_ACT_ALLOW));
  if (filter == nullptr) return unavailable("no memory");
  int failed = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);
  // Calls of another architecture of this processor would go around the rules.
  if (failed == 0) failed = seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
  for (const int call : kDenied) failed = failed != 0 ? failed : deny(filter, call);
  if (failed == 0) failed = deny_writing(filter, SCMP_SYS(open), 1, options);
  if (failed == 0) failed = deny_writing(filter, SCMP_SYS(openat), 2, options);
  if (failed == 0) failed = seccomp_load(filter.get());
  return failed == 0 ? Result<>(Ok{}) : unavailable(std::strerror(-failed));
}

#endif

}  // namespace moracle::cli
