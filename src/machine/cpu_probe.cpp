#include "machine/cpu_probe.h"

#include <array>
#include <cstring>
#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace moracle {

#if defined(__x86_64__)
namespace {

struct Registers {
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
};

// Zeros for a leaf the CPU does not have.
Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool bit(std::uint64_t word, unsigned index) {
  return ((word >> index) & 1U) != 0;
}

// XCR0: which register files the system saves. Written as an instruction because the intrinsic needs -mxsave.
std::uint64_t saved_state() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32U) | low;
}

constexpr std::uint64_t kYmmState = 0x6;       // SSE and AVX halves
constexpr std::uint64_t kZmmState = 0xE6;      // and mask registers, upper halves, ZMM16-31
constexpr std::uint64_t kTileState = 0x60000;  // tile configuration and tile data

// Since Linux 5.16 a process asks once for the 8 KiB of tile data.
bool tiles_permitted() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures amx_features(const Registers& leaf7) {
  CpuFeatures features = 0;
  if (!bit(leaf7.edx, 24)) return features;
  features = features | CpuFeature::amx_tile;
  if (bit(leaf7.edx, 25)) features = features | CpuFeature::amx_int8;
  if (bit(leaf7.edx, 22)) features = features | CpuFeature::amx_bf16;
  if (bit(cpuid(0x1E, 1).eax, 4)) features = features | CpuFeature::amx_fp8;
  return features;
}

CpuFeatures avx512_features(const Registers& leaf7) {
  constexpr std::array kBase{16U, 17U, 30U, 31U};  // F, DQ, BW, VL
  for (const unsigned index : kBase) {
    if (!bit(leaf7.ebx, index)) return 0;
  }
  auto features = static_cast<CpuFeatures>(CpuFeature::avx512);
  if (bit(leaf7.ecx, 11)) features = features | CpuFeature::avx512_vnni;
  if (bit(leaf7.ecx, 1)) features = features | CpuFeature::avx512_vbmi;
  if (bit(cpuid(7, 1).eax, 5)) features = features | CpuFeature::avx512_bf16;
  return features;
}

void withhold(CpuFacts& facts, CpuFeatures features, std::string_view why) {
  if (features == 0) return;
  if (!facts.note.empty()) facts.note += "; ";
  facts.note += feature_list(features) + " not usable: " + std::string(why);
}

void read_features(CpuFacts& facts) {
  const Registers leaf1 = cpuid(1);
  const Registers leaf7 = cpuid(7);
  const bool avx2 = bit(leaf1.ecx, 28) && bit(leaf1.ecx, 12) && bit(leaf1.ecx, 29) && bit(leaf7.ebx, 5);
  if (!avx2) return;
  const std::uint64_t saved = bit(leaf1.ecx, 27) ? saved_state() : 0;
  constexpr std::string_view kNotSaved = "the operating system does not save its registers";
  const CpuFeatures wide = avx512_features(leaf7);
  const CpuFeatures tiles = amx_features(leaf7);
  if ((saved & kYmmState) != kYmmState) {
    withhold(facts, wide | tiles | CpuFeature::avx2, kNotSaved);
    return;
  }
  facts.features = facts.features | CpuFeature::avx2;
  if (bit(cpuid(7, 1).eax, 4)) facts.features = facts.features | CpuFeature::avx_vnni;
  if ((saved & kZmmState) == kZmmState) {
    facts.features |= wide;
  } else {
    withhold(facts, wide, kNotSaved);
  }
  if ((saved & kTileState) != kTileState) {
    withhold(facts, tiles, kNotSaved);
  } else if (tiles != 0 && !tiles_permitted()) {
    withhold(facts, tiles, "the operating system refuses permission for tile data (arch_prctl)");
  } else {
    facts.features |= tiles;
  }
}

std::string brand() {
  if (cpuid(0x80000000U).eax < 0x80000004U) return "";
  std::array<char, 49> text{};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002U + i);
    std::memcpy(text.data() + 16 * i, &r, 16);
  }
  std::string name(text.data());
  const std::size_t first = name.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return name.substr(first, name.find_last_not_of(' ') - first + 1);
}

// Deterministic cache parameters: leaf 4 (Intel) and 0x8000001D (AMD) share one form.
void read_caches(CpuFacts& facts, std::uint32_t leaf) {
  for (std::uint32_t index = 0; index < 16; ++index) {
    const Registers r = cpuid(leaf, index);
    const std::uint32_t type = r.eax & 31U;
    if (type == 0) return;
    const std::uint32_t level = (r.eax >> 5U) & 7U;
    const std::uint64_t ways = (r.ebx >> 22U) + 1U;
    const std::uint64_t partitions = ((r.ebx >> 12U) & 0x3FFU) + 1U;
    const std::uint64_t line = (r.ebx & 0xFFFU) + 1U;
    const std::uint64_t bytes = ways * partitions * line * (std::uint64_t{r.ecx} + 1U);
    if (level == 2 && type != 2) facts.l2_bytes = bytes;
    if (level == 3) facts.l3_bytes = bytes;
  }
}

}  // namespace

CpuFacts probe_cpu() {
  CpuFacts facts;
  read_features(facts);
  facts.model = brand();
  read_caches(facts, 4);
  if (facts.l2_bytes == 0) read_caches(facts, 0x8000001DU);
  return facts;
}

#elif defined(__aarch64__)
namespace {

struct Core {
  std::uint32_t part;
  const char* name;
};
constexpr Core kArmCores[] = {{0xD0C, "Neoverse N1"}, {0xD40, "Neoverse V1"}, {0xD49, "Neoverse N2"},
                              {0xD4F, "Neoverse V2"}, {0xD83, "Neoverse V3"}, {0xD8E, "Neoverse N3"}};

// By the main ID register, which Linux lets programs read where HWCAP_CPUID says so.
std::string core_name(std::uint64_t hwcap) {
  constexpr std::uint32_t kArm = 0x41;
  if ((hwcap & HWCAP_CPUID) == 0) return "";
  std::uint64_t id = 0;
  __asm__("mrs %0, MIDR_EL1" : "=r"(id));
  const auto implementer = static_cast<std::uint32_t>(id >> 24U & 0xFFU);
  const auto part = static_cast<std::uint32_t>(id >> 4U & 0xFFFU);
  for (const Core& core : kArmCores) {
    if (implementer == kArm && core.part == part) return core.name;
  }
  return "implementer " + std::to_string(implementer) + ", part " + std::to_string(part);
}

}  // namespace

CpuFacts probe_cpu() {
  const std::uint64_t hwcap = getauxval(AT_HWCAP);
  CpuFacts facts;
  facts.model = core_name(hwcap);
  constexpr std::uint64_t kNeon = HWCAP_ASIMD | HWCAP_ASIMDDP;
  if ((hwcap & kNeon) == kNeon) facts.features = static_cast<CpuFeatures>(CpuFeature::neon);
  return facts;
}

#else

CpuFacts probe_cpu() {
  return {};
}

#endif

}  // namespace moracle
