// The fields that say how tokens are drawn: one table that the engine's checks, generation_config.json, the command
// line, the server and the C interface are made from. The table is constant, and every thread may read it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "kernels/args/sample.h"

namespace moracle {

using SamplingOptions = SampleParams;

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct SamplingField {
  std::string_view name;  // of JSON, of C and, with dashes, of the command line
  std::variant<double SamplingOptions::*, std::int64_t SamplingOptions::*> member;
  double low = 0;
  double high = kNoLimit;
  bool above_low = false;                               // `low` itself is out of range
  bool draws_only = false;                              // without meaning at temperature 0
  bool minus_one_is_off = false;                        // in files; in requests, too, where `request_low` is -1
  std::optional<double> request_low{}, request_high{};  // of a request to the server, where they are its own
  std::string_view request_text;                        // what a request's field does
  std::string_view option_value;                        // "P"
  std::string_view option_text;                         // what the option does, with its default
  std::string_view option_alias{};                      // ",--other-name"

  [[nodiscard]] constexpr bool is_whole() const {
    return std::holds_alternative<std::int64_t SamplingOptions::*>(member);
  }
  // Written so that NaN is refused.
  [[nodiscard]] constexpr bool accepts(double value) const {
    return (above_low ? value > low : value >= low) && value <= high && value < kNoLimit;
  }
  // "a number above 0 and at most 1".
  [[nodiscard]] std::string limits() const;
  [[nodiscard]] std::string option() const;  // "top-k"
};

// In the order in which they are applied, penalties last.
inline constexpr std::array kSamplingFields = {
    SamplingField{.name = "temperature",
                  .member = &SamplingOptions::temperature,
                  .request_high = 100,
                  .request_text = "0 is greedy; else logits are divided by it",
                  .option_value = "X",
                  .option_text = "0 is greedy (default: as generation_config.json says where it samples, else greedy)"},
    SamplingField{.name = "top_k",
                  .member = &SamplingOptions::top_k,
                  .draws_only = true,
                  .minus_one_is_off = true,
                  .request_low = -1,
                  .request_text = "Draw among the k likeliest tokens; 0 and -1: off",
                  .option_value = "K",
                  .option_text = "Keep the K likeliest tokens; 0: all (default: as generation_config.json says, else "
                                 "all)"},
    SamplingField{.name = "top_p",
                  .member = &SamplingOptions::top_p,
                  .high = 1,
                  .above_low = true,
                  .draws_only = true,
                  .minus_one_is_off = true,
                  .request_text = "Draw among the likeliest tokens whose mass reaches it",
                  .option_value = "P",
                  .option_text = "Keep the likeliest tokens that together reach probability P (default: as "
                                 "generation_config.json says, else all)"},
    SamplingField{.name = "min_p",
                  .member = &SamplingOptions::min_p,
                  .high = 1,
                  .draws_only = true,
                  .minus_one_is_off = true,
                  .request_text = "Leave out what is less likely than min_p times the likeliest",
                  .option_value = "P",
                  .option_text = "Drop tokens less likely than P times the likeliest (default: as "
                                 "generation_config.json says, else none)"},
    SamplingField{.name = "repetition_penalty",
                  .member = &SamplingOptions::repetition_penalty,
                  .above_low = true,
                  .minus_one_is_off = true,
                  .request_text = "Divides positive logits of tokens that occurred",
                  .option_value = "X",
                  .option_text = "Divide positive logits of tokens in prompt and answer by X, multiply negative ones "
                                 "(default: as generation_config.json says, else off)",
                  .option_alias = ",--repeat-penalty"},
    SamplingField{.name = "presence_penalty",
                  .member = &SamplingOptions::presence_penalty,
                  .low = -2,
                  .high = 2,
                  .request_text = "Subtracted once from logits of tokens that the reply has",
                  .option_value = "X",
                  .option_text = "Subtract X from logits of tokens that occur in the answer (default: off)"},
    SamplingField{
        .name = "frequency_penalty",
        .member = &SamplingOptions::frequency_penalty,
        .low = -2,
        .high = 2,
        .request_text = "Subtracted from a logit for each time that the reply has the token",
        .option_value = "X",
        .option_text = "Subtract X from a token's logit for each time it occurs in the answer (default: off)"},
};

// Null: no field has the name.
[[nodiscard]] const SamplingField* find_sampling_field(std::string_view name);

// Errors: "sampling.range" naming the field.
[[nodiscard]] Result<> check(const SamplingOptions& options);

// The fields that a caller chooses; all others are the publisher's, else off.
class SamplingChoice {
 public:
  template <class Number>
  SamplingChoice& set(Number SamplingOptions::* member, Number value) {
    values_.*member = value;
    chosen_[index_of(member)] = true;
    return *this;
  }
  template <class Number>
  [[nodiscard]] std::optional<Number> get(Number SamplingOptions::* member) const {
    return chosen_[index_of(member)] ? std::optional(values_.*member) : std::nullopt;
  }
  [[nodiscard]] bool has(const SamplingField& field) const { return chosen_[index_of(field.member)]; }
  void apply(SamplingOptions& to) const;

 private:
  [[nodiscard]] static std::size_t index_of(decltype(SamplingField::member) member);

  SamplingOptions values_{};
  std::array<bool, kSamplingFields.size()> chosen_{};
};

}  // namespace moracle
