// Whether values meet schemas, and whether two schemas share none.
#include <algorithm>
#include <cmath>

#include "base/unicode/utf8.h"
#include "text/constrain/schema/schema_reader.h"

namespace moracle {

namespace {

constexpr int kMostDepth = 16;

JsonType type_of(const OrderedJson& value) {
  if (value.is_null()) return kNullType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_number()) return kNumberType;
  if (value.is_string()) return kStringType;
  return value.is_array() ? kArrayType : kObjectType;
}

bool above(long double value, const std::optional<NumberBound>& low) {
  return !low || (low->exclusive ? value > low->value : value >= low->value);
}

bool below(long double value, const std::optional<NumberBound>& high) {
  return !high || (high->exclusive ? value < high->value : value <= high->value);
}

bool holds_number(const SchemaFacts& facts, const OrderedJson& value) {
  const auto number = value.is_number_integer() ? static_cast<long double>(value.get<std::int64_t>())
                                                : static_cast<long double>(value.get<double>());
  if (facts.number.whole && number != std::floor(number)) return false;
  if (!above(number, facts.number.low) || !below(number, facts.number.high)) return false;
  return std::all_of(facts.divisors.begin(), facts.divisors.end(), [&](double divisor) {
    const double quotient = static_cast<double>(number) / divisor;
    return quotient == std::floor(quotient);
  });
}

bool holds_text(const SchemaFacts& facts, const std::string& text) {
  return facts.length.holds(static_cast<std::int64_t>(unicode::count_points(text))) &&
         std::all_of(facts.texts.begin(), facts.texts.end(),
                     [&](const TextFact& fact) { return matches(*fact.node, text); });
}

bool numbers_apart(const NumberShape& a, const NumberShape& b) {
  const auto before = [](const NumberShape& first, const NumberShape& second) {
    if (!first.high || !second.low) return false;
    return first.high->value < second.low->value ||
           (first.high->value == second.low->value && (first.high->exclusive || second.low->exclusive));
  };
  return before(a, b) || before(b, a);
}

bool counts_apart(const CountRange& a, const CountRange& b) {
  return (a.most && *a.most < b.least) || (b.most && *b.most < a.least);
}

}  // namespace

Result<bool> SchemaReader::holds(const SchemaRefs& refs, const OrderedJson& value) {
  MORACLE_ASSIGN(const std::vector<SchemaFacts> facts, alternatives(refs));
  for (const SchemaFacts& alternative : facts) {
    MORACLE_ASSIGN(const bool held, holds(alternative, value));
    if (held) return true;
  }
  return false;
}

Result<bool> SchemaReader::holds(const SchemaFacts& facts, const OrderedJson& value) {
  const JsonType type = type_of(value);
  if (facts.never || (facts.types & type) == 0) return false;
  if (facts.values && std::none_of(facts.values->begin(), facts.values->end(),
                                   [&](const OrderedJson& one) { return same_value(one, value); }))
    return false;
  switch (type) {
    case kNumberType:
      return holds_number(facts, value);
    case kStringType:
      return holds_text(facts, value.get_ref<const std::string&>());
    case kArrayType:
      return holds_array(facts, value);
    case kObjectType:
      return holds_object(facts, value);
    default:
      return true;
  }
}

Result<bool> SchemaReader::holds_array(const SchemaFacts& facts, const OrderedJson& value) {
  if (!facts.elements.holds(static_cast<std::int64_t>(value.size()))) return false;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto refs = facts.element(i);
    const bool spoken_of = i < facts.longest_prefix() || facts.speaks_of_rest();
    if (!refs || (facts.closed_items && !spoken_of)) return false;
    MORACLE_ASSIGN(const bool held, holds(*refs, value[i]));
    if (!held) return false;
    const bool again = std::any_of(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const OrderedJson& other) { return same_value(other, value[i]); });
    if (!facts.unique_pointer.empty() && again) return false;
  }
  return true;
}

Result<bool> SchemaReader::holds_object(const SchemaFacts& facts, const OrderedJson& value) {
  if (!facts.count.holds(static_cast<std::int64_t>(value.size()))) return false;
  for (const std::string& name : facts.required) {
    if (!value.contains(name)) return false;
  }
  const std::vector<std::string> names = facts.all_names();
  for (const auto& [name, member] : value.items()) {
    const auto refs = facts.member(name);
    const bool spoken_of = facts.speaks_of_additional() || std::find(names.begin(), names.end(), name) != names.end();
    if (!refs || (facts.closed_members && !spoken_of)) return false;
    MORACLE_ASSIGN(const bool held, holds(*refs, member));
    if (!held) return false;
    MORACLE_ASSIGN(const bool named, holds(facts.names, OrderedJson(name)));
    if (!named) return false;
  }
  return true;
}

Result<bool> SchemaReader::apart(const SchemaFacts& written, const SchemaFacts& other, int depth) {
  MORACLE_TRY(step(written.number_pointer));
  if (depth > kMostDepth) return false;
  if (written.values) {
    for (const OrderedJson& value : *written.values) {
      MORACLE_ASSIGN(const bool own, holds(written, value));
      if (!own) continue;
      MORACLE_ASSIGN(const bool both, holds(other, value));
      if (both) return false;
    }
    return true;
  }
  if (other.values) {
    for (const OrderedJson& value : *other.values) {
      MORACLE_ASSIGN(const bool both, holds(written, value));
      if (both) return false;
    }
    return true;
  }
  const auto common = static_cast<std::uint8_t>(written.written_types() & other.types);
  for (const JsonType type : {kNullType, kBooleanType, kNumberType, kStringType, kArrayType, kObjectType}) {
    if ((common & type) == 0) continue;
    MORACLE_ASSIGN(const bool certain, apart_of_type(written, other, type, depth));
    if (!certain) return false;
  }
  return true;
}

Result<bool> SchemaReader::apart_of_type(const SchemaFacts& written, const SchemaFacts& other, JsonType type,
                                         int depth) {
  switch (type) {
    case kNumberType:
      return numbers_apart(written.number, other.number);
    case kStringType:
      return counts_apart(written.length, other.length);
    case kArrayType:
      return apart_arrays(written, other, depth);
    case kObjectType:
      return apart_objects(written, other, depth);
    default:
      return false;
  }
}

Result<bool> SchemaReader::apart_arrays(const SchemaFacts& written, const SchemaFacts& other, int depth) {
  if (counts_apart(written.elements, other.elements)) return true;
  const std::int64_t both = std::min<std::int64_t>(std::max(written.elements.least, other.elements.least), kMostDepth);
  for (std::int64_t i = 0; i < both; ++i) {
    const auto own = written.element(static_cast<std::size_t>(i));
    const auto others = other.element(static_cast<std::size_t>(i));
    if (!own || !others) return true;
    MORACLE_ASSIGN(const bool certain, apart(*own, *others, depth));
    if (certain) return true;
  }
  return false;
}

// A member that one of them requires tells them apart where the other has none of it, or one of other values.
Result<bool> SchemaReader::apart_objects(const SchemaFacts& written, const SchemaFacts& other, int depth) {
  if (counts_apart(written.count, other.count)) return true;
  const std::vector<std::string> names = written.all_names();
  const auto is_written = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end() || written.writes_additional();
  };
  std::vector<std::string> decisive = written.required;
  for (const std::string& name : other.required) {
    if (!is_written(name)) return true;
    if (!written.requires_name(name)) decisive.push_back(name);
  }
  for (const std::string& name : decisive) {
    const auto own = written.member(name);
    const auto others = other.member(name);
    if (!own || !others) return true;
    MORACLE_ASSIGN(const bool certain, apart(*own, *others, depth));
    if (certain) return true;
  }
  return false;
}

Result<bool> SchemaReader::apart(const SchemaRefs& written, const SchemaRefs& other, int depth) {
  if (depth > kMostDepth) return false;
  MORACLE_ASSIGN(const std::vector<SchemaFacts> own, alternatives(written));
  MORACLE_ASSIGN(const std::vector<SchemaFacts> others, alternatives(other));
  for (const SchemaFacts& a : own) {
    for (const SchemaFacts& b : others) {
      MORACLE_ASSIGN(const bool certain, apart(a, b, depth + 1));
      if (!certain) return false;
    }
  }
  return true;
}

}  // namespace moracle
