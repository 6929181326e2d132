// The calibration loops that are the same for every instruction set. Included inside the anonymous namespace of each
// per-ISA file, so that every instance is compiled for, and local to, that file.

using Line = std::uint64_t __attribute__((vector_size(64), aligned(64)));

template <int Streams>
std::uint64_t read_streams(const std::byte* data, std::int64_t bytes) {
  const std::int64_t lines = bytes / 64 / Streams;
  const Line* from = reinterpret_cast<const Line*>(data);
  Line sum[Streams] = {};
  for (std::int64_t i = 0; i < lines; ++i) {
#pragma GCC unroll 8
    for (int s = 0; s < Streams; ++s) sum[s] ^= from[s * lines + i];
  }
  std::uint64_t all = 0;
  for (int s = 0; s < Streams; ++s) {
    for (int lane = 0; lane < 8; ++lane) all ^= sum[s][lane];
  }
  return all;
}

inline std::uint64_t read_all(const std::byte* data, std::int64_t bytes, int streams) {
  return streams == 8 ? read_streams<8>(data, bytes) : read_streams<1>(data, bytes);
}

inline std::uint16_t round_bf16(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

inline void expand_group4(const std::uint8_t* codes, std::int64_t half, float zero, float scale, std::uint16_t* out) {
  for (std::int64_t i = 0; i < half; ++i) out[i] = round_bf16((static_cast<float>(codes[i] & 15) - zero) * scale);
  for (std::int64_t i = 0; i < half; ++i) out[half + i] = round_bf16((static_cast<float>(codes[i] >> 4) - zero) * scale);
}

inline void expand_group4(const std::uint8_t* codes, std::int64_t half, const float* table, float scale,
                          std::uint16_t* out) {
  for (std::int64_t i = 0; i < half; ++i) out[i] = round_bf16(table[codes[i] & 15] * scale);
  for (std::int64_t i = 0; i < half; ++i) out[half + i] = round_bf16(table[codes[i] >> 4] * scale);
}

inline void expand_all4(const ExpandArgs& args) {
  const std::int64_t groups = args.cols / args.group;
  for (std::int64_t g = 0; g < args.rows * groups; ++g) {
    const std::uint8_t* codes = args.codes + g * (args.group / 2);
    std::uint16_t* out = args.out + g * args.group;
    if (args.table == nullptr) {
      expand_group4(codes, args.group / 2, args.zero, args.scales[g], out);
    } else {
      expand_group4(codes, args.group / 2, args.table, args.scales[g], out);
    }
  }
}

inline void expand_all8(const ExpandArgs& args) {
  const std::int64_t groups = args.cols / args.group;
  for (std::int64_t g = 0; g < args.rows * groups; ++g) {
    const std::uint8_t* codes = args.codes + g * args.group;
    std::uint16_t* out = args.out + g * args.group;
    const float scale = args.scales[g];
    if (args.table == nullptr) {
      for (std::int64_t i = 0; i < args.group; ++i) out[i] = round_bf16((static_cast<float>(codes[i]) - args.zero) * scale);
    } else {
      for (std::int64_t i = 0; i < args.group; ++i) out[i] = round_bf16(args.table[codes[i]] * scale);
    }
  }
}
