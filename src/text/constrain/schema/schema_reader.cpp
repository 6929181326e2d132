#include "text/constrain/schema/schema_reader.h"

#include <algorithm>
#include <utility>

#include "text/constrain/schema/facts_merger.h"
#include "text/constrain/schema/formats.h"
#include "text/constrain/schema/keywords.h"

namespace moracle {

namespace {

Error too_complex(std::string pointer, std::string wanted, std::string found) {
  return {.code = "constrain.complex",
          .where = std::move(pointer),
          .wanted = std::move(wanted),
          .found = std::move(found),
          .advice = "make it smaller"};
}

// What a walk over the whole document finds.
struct Survey {
  std::map<std::string, SchemaRef>& anchors;
  std::size_t properties = 0;

  Result<> walk(const OrderedJson& value, const std::string& pointer, int depth) {
    if (depth > kSchemaDepth)
      return too_complex(pointer, "at most " + std::to_string(kSchemaDepth) + " levels", "more");
    if (value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i)
        MORACLE_TRY(walk(value[i], pointer_to(pointer, std::to_string(i)), depth + 1));
    }
    if (!value.is_object()) return Ok{};
    for (const auto& [name, member] : value.items()) {
      const std::string place = pointer_to(pointer, name);
      if (name == "properties" && member.is_object()) properties += member.size();
      if (name == "$anchor" && member.is_string())
        anchors.try_emplace(member.get<std::string>(), SchemaRef{&value, pointer});
      if (name == "$id" && member.is_string() && depth > 1) {
        return Error{.code = "schema.unsupported",
                     .where = place,
                     .wanted = "one document",
                     .found = "a schema with an address of its own",
                     .advice = "take $id out"};
      }
      MORACLE_TRY(walk(member, place, depth + 1));
    }
    if (properties > kSchemaProperties)
      return too_complex(pointer, "at most " + std::to_string(kSchemaProperties) + " properties", "more");
    return Ok{};
  }
};

// "%25" and the like, as in addresses.
std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    out += escaped ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (escaped) i += 2;
  }
  return out;
}

}  // namespace

Result<SchemaReader> SchemaReader::open(const OrderedJson& document) {
  if (!document.is_object() && !document.is_boolean()) return wrong_value("", "a JSON schema", document);
  if (document.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).size() > kSchemaBytes)
    return too_complex("", "at most " + std::to_string(kSchemaBytes) + " bytes", "more");
  SchemaReader reader(document);
  Survey survey{reader.anchors_};
  MORACLE_TRY(survey.walk(document, "", 1));
  return reader;
}

Result<> SchemaReader::step(const std::string& pointer) {
  if (++steps_ <= kSchemaSteps) return Ok{};
  return too_complex(pointer, "combinations of at most " + std::to_string(kSchemaSteps) + " schemas", "more");
}

Result<SchemaRef> SchemaReader::resolve(const std::string& reference, const std::string& pointer) const {
  const auto unknown = [&](const char* wanted) {
    return Error{.code = "schema.reference", .where = pointer, .wanted = wanted, .found = "\"" + reference + "\""};
  };
  std::string fragment = reference;
  const auto id = root_->find("$id");
  if (id != root_->end() && id->is_string()) {
    const auto& base = id->get_ref<const std::string&>();
    if (!base.empty() && fragment.starts_with(base)) fragment.erase(0, base.size());
    if (fragment.empty()) return root();
  }
  if (!fragment.starts_with("#")) return unknown("a reference into this document, which begins with \"#\"");
  fragment = percent_decoded(fragment.substr(1));
  if (!fragment.empty() && fragment[0] != '/') {
    const auto anchor = anchors_.find(fragment);
    if (anchor == anchors_.end()) return unknown("an $anchor of this document");
    return anchor->second;
  }
  const OrderedJson* at = root_;
  for (std::size_t begin = 1; begin <= fragment.size() && !fragment.empty();) {
    const std::size_t end = std::min(fragment.find('/', begin), fragment.size());
    std::string name = fragment.substr(begin, end - begin);
    for (std::size_t tilde = name.find('~'); tilde != std::string::npos; tilde = name.find('~', tilde + 1))
      if (tilde + 1 < name.size()) name.replace(tilde, 2, name[tilde + 1] == '1' ? "/" : "~");
    const bool index = at->is_array() && !name.empty() && name.size() < 9 &&
                       std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (index && std::stoul(name) < at->size()) {
      at = &(*at)[std::stoul(name)];
    } else if (at->is_object() && at->contains(name)) {
      at = &at->at(name);
    } else {
      return unknown("a place of this document");
    }
    begin = end + 1;
  }
  if (!at->is_object() && !at->is_boolean()) return unknown("a schema");
  return SchemaRef{at, fragment};
}

Result<std::shared_ptr<const RegexNode>> SchemaReader::text_of(const std::string& spelled, const std::string& pointer,
                                                               bool is_format) {
  if (const auto known = texts_.find(pointer); known != texts_.end()) return known->second;
  std::string_view expression = spelled;
  if (is_format) {
    const auto format = expression_of_format(spelled);
    if (!format) {
      return Error{.code = "schema.unsupported",
                   .where = pointer,
                   .wanted = "a format that a reply can be held to",
                   .found = "\"" + spelled + "\"",
                   .advice = "take it out, or spell it as a pattern"};
    }
    if (format->empty()) return std::shared_ptr<const RegexNode>();
    expression = *format;
  }
  auto regex = parse_regex(expression);
  if (!regex.ok()) {
    Error error = std::move(regex).error();
    error.found += " at " + error.where;
    error.where = pointer;
    return error;
  }
  auto node = std::make_shared<const RegexNode>(is_format ? whole(*regex) : searched(*regex));
  texts_.emplace(pointer, node);
  return node;
}

Result<std::vector<SchemaFacts>> SchemaReader::alternatives(const SchemaRefs& refs) {
  SchemaFacts facts;
  FactsMerger merger(*this, facts, refs.size() == 1);
  for (const SchemaRef& ref : refs) MORACLE_TRY(merger.merge(ref));
  std::vector<SchemaFacts> out;
  MORACLE_TRY(expand(std::move(facts), out));
  return out;
}

Result<> SchemaReader::expand(SchemaFacts facts, std::vector<SchemaFacts>& out) {
  if (facts.never) return Ok{};
  if (facts.choices.empty()) {
    const std::string pointer = facts.number_pointer;
    if (out.size() == kSchemaAlternatives)
      return too_complex(pointer, "at most " + std::to_string(kSchemaAlternatives) + " alternatives", "more");
    out.push_back(std::move(facts));
    return Ok{};
  }
  const SchemaChoice choice = std::move(facts.choices.back());
  facts.choices.pop_back();
  std::vector<std::vector<SchemaFacts>> branches;
  for (const SchemaRef& branch : choice.branches) {
    MORACLE_TRY(step(branch.pointer));
    SchemaFacts with = facts;
    FactsMerger merger(*this, with, false);
    MORACLE_TRY(merger.merge(branch));
    MORACLE_TRY(expand(std::move(with), branches.emplace_back()));
  }
  if (choice.exclusive) MORACLE_TRY(check_apart(branches, choice.pointer));
  for (std::vector<SchemaFacts>& branch : branches) {
    for (SchemaFacts& alternative : branch) out.push_back(std::move(alternative));
  }
  if (out.size() > kSchemaAlternatives)
    return too_complex(choice.pointer, "at most " + std::to_string(kSchemaAlternatives) + " alternatives", "more");
  return Ok{};
}

Result<> SchemaReader::check_apart(const std::vector<std::vector<SchemaFacts>>& branches, const std::string& pointer) {
  for (std::size_t a = 0; a < branches.size(); ++a) {
    for (std::size_t b = 0; b < branches.size(); ++b) {
      if (a == b) continue;
      for (const SchemaFacts& written : branches[a]) {
        for (const SchemaFacts& other : branches[b]) {
          MORACLE_ASSIGN(const bool certain, apart(written, other));
          if (certain) continue;
          return Error{.code = "schema.unsupported",
                       .where = pointer,
                       .wanted = "schemas of which no two hold for one value",
                       .found = "numbers " + std::to_string(a) + " and " + std::to_string(b) + ", which may",
                       .advice = "spell it anyOf, or tell them apart by a required member of different values"};
        }
      }
    }
  }
  return Ok{};
}

}  // namespace moracle
