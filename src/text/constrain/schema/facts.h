// What a schema, and all that it refers to and combines, asks of a value, in one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/document.h"
#include "text/constrain/regex/regex_syntax.h"
#include "text/constrain/schema/number_rules.h"

namespace moracle {

// A schema within the document, and where it is.
struct SchemaRef {
  const OrderedJson* schema = nullptr;
  std::string pointer{};
};
// Schemas that a value meets all of; none: any value.
using SchemaRefs = std::vector<SchemaRef>;

// Types of JSON values, or-ed.
enum JsonType : std::uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kNumberType = 4,
  kStringType = 8,
  kArrayType = 16,
  kObjectType = 32,
  kEveryType = 63,
};

// Whether two values are one to JSON Schema: members have no order, and 1.0 is 1.
[[nodiscard]] std::string value_key(const OrderedJson& value);  // one text for all that are one
[[nodiscard]] bool same_value(const OrderedJson& a, const OrderedJson& b);

// How many elements, members or characters.
struct CountRange {
  std::int64_t least = 0;
  std::optional<std::int64_t> most{};  // empty: any number
  std::string pointer{};               // of the keyword that says so last

  [[nodiscard]] bool holds(std::int64_t count) const { return count >= least && (!most || count <= *most); }
  [[nodiscard]] bool empty() const { return most && *most < least; }
};

// The keywords of one schema about the elements of an array.
struct ItemsPart {
  SchemaRefs prefix;
  std::optional<SchemaRef> rest{};  // of elements behind the prefix; empty: any
};

// The keywords of one schema about the members of an object.
struct MembersPart {
  std::vector<std::pair<std::string, SchemaRef>> properties;
  std::optional<SchemaRef> additional{};  // of members without a name of `properties`; empty: any
};

// A choice between schemas.
struct SchemaChoice {
  SchemaRefs branches;
  bool exclusive = false;  // oneOf
  std::string pointer;
};

// The texts of a pattern or a format.
struct TextFact {
  std::string name;  // as spelled
  std::string pointer;
  std::shared_ptr<const RegexNode> node;
};

struct SchemaFacts {
  std::uint8_t types = kEveryType;  // JsonType
  std::uint8_t spoken = 0;          // types that keywords speak of
  bool typed = false;               // by `type`, `enum` or `const`
  bool never = false;               // nothing meets it
  std::optional<std::vector<OrderedJson>> values{};

  NumberShape number{};
  std::vector<double> divisors{};
  std::string number_pointer{};

  CountRange length{};
  std::vector<TextFact> texts{};

  std::vector<ItemsPart> items{};
  CountRange elements{};
  bool closed_items = false;     // what no schema speaks of may not be there
  std::string unique_pointer{};  // empty: elements need not differ

  std::vector<MembersPart> members{};
  std::vector<std::string> required{};
  CountRange count{};  // of members
  bool closed_members = false;
  SchemaRefs names{};

  std::vector<SchemaChoice> choices{};

  // The types that replies are written with: where no `type` says so, those that its keywords speak of.
  [[nodiscard]] std::uint8_t written_types() const { return typed || spoken == 0 ? types : types & spoken; }
  [[nodiscard]] bool requires_name(std::string_view name) const;
  // Of an element, and of a member. Empty: there may be none.
  [[nodiscard]] std::optional<SchemaRefs> element(std::size_t at) const;
  [[nodiscard]] std::optional<SchemaRefs> member(std::string_view name) const;
  // Of elements behind every prefix, and of members that no schema names.
  [[nodiscard]] std::optional<SchemaRefs> rest() const;
  [[nodiscard]] std::optional<SchemaRefs> additional() const;
  [[nodiscard]] std::size_t longest_prefix() const;
  // All names, in the order of the schemas.
  [[nodiscard]] std::vector<std::string> all_names() const;
  // Whether schemas say what elements behind every prefix, and members without a name, may be.
  [[nodiscard]] bool speaks_of_rest() const;
  [[nodiscard]] bool speaks_of_additional() const;
  // Whether replies have members that no schema names, and elements behind every prefix: where a schema allows them,
  // or says nothing about any.
  [[nodiscard]] bool writes_additional() const;
  [[nodiscard]] bool writes_rest() const;
};

}  // namespace moracle
