// Adds the keywords of schemas to facts.
#pragma once

#include <set>
#include <string>

#include "base/result.h"
#include "text/constrain/schema/schema_reader.h"

namespace moracle {

// Merges one schema, what it refers to and its allOf into facts; its choices are left for later.
class FactsMerger {
 public:
  // `outermost`: nothing else speaks of the same value, but what this schema holds.
  FactsMerger(SchemaReader& reader, SchemaFacts& facts, bool outermost)
      : reader_(reader), facts_(facts), outermost_(outermost) {}

  Result<> merge(const SchemaRef& ref);

 private:
  Result<> merge_object(const SchemaRef& ref);
  Result<> merge_types(const SchemaRef& ref);
  Result<> merge_values(const SchemaRef& ref);
  Result<> merge_numbers(const SchemaRef& ref);
  Result<> merge_bound(const SchemaRef& ref, const char* keyword, bool low, bool exclusive);
  Result<> merge_texts(const SchemaRef& ref);
  Result<> merge_text(const SchemaRef& ref, const char* keyword);
  Result<> merge_items(const SchemaRef& ref);
  Result<> merge_members(const SchemaRef& ref);
  Result<> merge_unevaluated(const SchemaRef& ref, const char* keyword);
  Result<> merge_combinations(const SchemaRef& ref);
  Result<> merge_range(const SchemaRef& ref, const char* least, const char* most, CountRange& range, JsonType type);
  Result<> merge_list(const SchemaRef& ref, const char* keyword, SchemaRefs& refs);
  void speak(JsonType type) { facts_.spoken = static_cast<std::uint8_t>(facts_.spoken | type); }

  SchemaReader& reader_;
  SchemaFacts& facts_;
  bool outermost_;
  int nested_ = 0;              // schemas around the one that is merged
  std::set<std::string> seen_;  // pointers of schemas that are merged already
};

}  // namespace moracle
