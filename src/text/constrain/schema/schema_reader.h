// Reads a JSON schema: what each part of a value must meet, once references are followed and combinations resolved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/constrain/schema/facts.h"

namespace moracle {

// Schemas that together hold no more.
inline constexpr std::size_t kSchemaBytes = std::size_t{256} << 10;
inline constexpr std::size_t kSchemaProperties = 2'000;
inline constexpr int kSchemaDepth = 64;
// Schemas read while combinations are resolved, and alternatives that one schema may come to.
inline constexpr std::int64_t kSchemaSteps = 50'000;
inline constexpr std::size_t kSchemaAlternatives = 512;

class SchemaReader {
 public:
  // The document outlives the reader. Errors: "constrain.complex" (the limits above), "schema.value".
  static Result<SchemaReader> open(const OrderedJson& document);

  [[nodiscard]] SchemaRef root() const { return {root_, ""}; }
  // What values that meet all of `refs` are: those that meet any of the facts, which have no choices left. None:
  // nothing meets them. Errors, with the JSON pointer: those of check_keywords, "schema.value", "schema.reference",
  // "schema.unsupported", "regex.*", "constrain.complex".
  Result<std::vector<SchemaFacts>> alternatives(const SchemaRefs& refs);

  // Whether a value meets all of `refs`, or the facts. Errors: likewise.
  Result<bool> holds(const SchemaRefs& refs, const OrderedJson& value);
  Result<bool> holds(const SchemaFacts& facts, const OrderedJson& value);
  // Whether it is certain that no reply that is written for `written` meets `other`. Errors: likewise.
  Result<bool> apart(const SchemaFacts& written, const SchemaFacts& other, int depth = 0);

 private:
  explicit SchemaReader(const OrderedJson& document) : root_(&document) {}

  Result<> expand(SchemaFacts facts, std::vector<SchemaFacts>& out);
  Result<> check_apart(const std::vector<std::vector<SchemaFacts>>& branches, const std::string& pointer);
  Result<bool> apart(const SchemaRefs& written, const SchemaRefs& other, int depth);
  Result<bool> apart_of_type(const SchemaFacts& written, const SchemaFacts& other, JsonType type, int depth);
  Result<bool> apart_arrays(const SchemaFacts& written, const SchemaFacts& other, int depth);
  Result<bool> apart_objects(const SchemaFacts& written, const SchemaFacts& other, int depth);
  Result<bool> holds_array(const SchemaFacts& facts, const OrderedJson& value);
  Result<bool> holds_object(const SchemaFacts& facts, const OrderedJson& value);
  Result<bool> holds_choices(const SchemaFacts& facts, const OrderedJson& value);
  Result<> step(const std::string& pointer);

  friend class FactsMerger;
  Result<SchemaRef> resolve(const std::string& reference, const std::string& pointer) const;
  Result<std::shared_ptr<const RegexNode>> text_of(const std::string& spelled, const std::string& pointer,
                                                   bool is_format);

  const OrderedJson* root_;
  std::map<std::string, SchemaRef> anchors_;
  std::map<std::string, std::shared_ptr<const RegexNode>> texts_;  // by pointer
  std::int64_t steps_ = 0;
};

}  // namespace moracle
