#include <algorithm>
#include <string>
#include <utility>

#include "text/template/syntax/parser_impl.h"

namespace moracle::jinja {

Error ExprParser::unexpected(std::string_view wanted) const {
  const Token& token = peek();
  std::string found = "'" + token.text + "'";
  if (token.kind == TokenKind::end) found = "the end of the template";
  if (token.kind == TokenKind::block_end) found = "the end of the block";
  if (token.kind == TokenKind::variable_end) found = "the end of the expression";
  Error error = syntax_error(file_, token.line, std::move(found));
  error.wanted = wanted;
  return error;
}

Error ExprParser::too_deep() const {
  return {.code = "template.limit",
          .file = file_,
          .where = "line " + std::to_string(peek().line),
          .wanted = "nesting of at most " + std::to_string(depth_limit_),
          .found = "deeper nesting"};
}

Result<Ok> ExprParser::expect_op(std::string_view text) {
  if (!take_op(text)) return unexpected("'" + std::string(text) + "'");
  return Ok{};
}

Result<std::string> ExprParser::expect_name() {
  if (peek().kind != TokenKind::name) return unexpected("a name");
  return take().text;
}

ExprPtr ExprParser::make(ExprKind kind, std::string name) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = peek().line;
  node->name = std::move(name);
  return node;
}

ExprParser::Parsed ExprParser::finish(ExprPtr node) const {
  int below = 0;
  for (const auto& child : node->children) below = std::max(below, child ? child->depth : 0);
  for (const auto& child : node->arguments) below = std::max(below, child->depth);
  for (const auto& [name, child] : node->named) below = std::max(below, child->depth);
  if (node->rest) below = std::max(below, node->rest->depth);
  if (node->named_rest) below = std::max(below, node->named_rest->depth);
  node->depth = below + 1;
  if (node->depth > depth_limit_) return too_deep();
  return node;
}

ExprParser::Parsed ExprParser::conditional(bool with_condition) {
  const Level level(&level_);
  if (level_ > depth_limit_) return too_deep();
  MORACLE_ASSIGN(ExprPtr value, disjunction());
  while (with_condition && take_name("if")) {
    auto node = make(ExprKind::conditional);
    MORACLE_ASSIGN(ExprPtr condition, disjunction());
    ExprPtr other;
    if (take_name("else")) {
      MORACLE_ASSIGN(other, conditional(true));
    }
    node->children.push_back(std::move(condition));
    node->children.push_back(std::move(value));
    node->children.push_back(std::move(other));
    MORACLE_ASSIGN(value, finish(std::move(node)));
  }
  return value;
}

ExprParser::Parsed ExprParser::joined(std::string_view word, ExprKind kind, Parsed (ExprParser::*operand)()) {
  MORACLE_ASSIGN(ExprPtr first, (this->*operand)());
  if (!at_name(word)) return first;
  auto node = make(kind);
  node->children.push_back(std::move(first));
  while (take_name(word)) {
    MORACLE_ASSIGN(ExprPtr next, (this->*operand)());
    node->children.push_back(std::move(next));
  }
  return finish(std::move(node));
}

ExprParser::Parsed ExprParser::disjunction() {
  return joined("or", ExprKind::disjunction, &ExprParser::conjunction);
}

ExprParser::Parsed ExprParser::conjunction() {
  return joined("and", ExprKind::conjunction, &ExprParser::negation);
}

ExprParser::Parsed ExprParser::negation() {
  if (!at_name("not")) return comparison();
  const Level level(&level_);
  if (level_ > depth_limit_) return too_deep();
  auto node = make(ExprKind::negation);
  take();
  MORACLE_ASSIGN(ExprPtr value, negation());
  node->children.push_back(std::move(value));
  return finish(std::move(node));
}

ExprParser::Parsed ExprParser::comparison() {
  MORACLE_ASSIGN(ExprPtr first, binary(0));
  auto node = make(ExprKind::compare);
  node->children.push_back(std::move(first));
  for (;;) {
    static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [this](std::string_view candidate) { return at_op(candidate); });
    if (found != std::end(kOperators)) {
      take();
      node->names.emplace_back(*found);
    } else if (take_name("in")) {
      node->names.emplace_back("in");
    } else if (at_name("not") && peek(1).kind == TokenKind::name && peek(1).text == "in") {
      take();
      take();
      node->names.emplace_back("not in");
    } else {
      break;
    }
    MORACLE_ASSIGN(ExprPtr next, binary(0));
    node->children.push_back(std::move(next));
  }
  if (node->names.empty()) return std::move(node->children.front());
  return finish(std::move(node));
}

// Precedence 0: + and -; then ~; 1: * / // %; 2: **. All group to the left, ** as well.
ExprParser::Parsed ExprParser::binary(int precedence) {
  static constexpr std::string_view kLevels[][4] = {{"+", "-"}, {"*", "/", "//", "%"}, {"**"}};
  const auto operand = [&]() -> Parsed {
    if (precedence == 0) return concat();
    return precedence == 1 ? binary(2) : unary(true);
  };
  MORACLE_ASSIGN(ExprPtr left, operand());
  for (;;) {
    const auto& operators = kLevels[precedence];
    const auto* found = std::find_if(std::begin(operators), std::end(operators),
                                     [this](std::string_view candidate) { return at_op(candidate); });
    if (found == std::end(operators)) return left;
    auto node = make(ExprKind::binary, std::string(*found));
    take();
    MORACLE_ASSIGN(ExprPtr right, operand());
    node->children.push_back(std::move(left));
    node->children.push_back(std::move(right));
    MORACLE_ASSIGN(left, finish(std::move(node)));
  }
}

ExprParser::Parsed ExprParser::concat() {
  MORACLE_ASSIGN(ExprPtr first, binary(1));
  if (!at_op("~")) return first;
  auto node = make(ExprKind::concat);
  node->children.push_back(std::move(first));
  while (take_op("~")) {
    MORACLE_ASSIGN(ExprPtr next, binary(1));
    node->children.push_back(std::move(next));
  }
  return finish(std::move(node));
}

ExprParser::Parsed ExprParser::unary(bool with_filters) {
  const Level level(&level_);
  if (level_ > depth_limit_) return too_deep();
  ExprPtr node;
  if (at_op("-") || at_op("+")) {
    node = make(at_op("-") ? ExprKind::negative : ExprKind::positive);
    take();
    MORACLE_ASSIGN(ExprPtr value, unary(false));
    node->children.push_back(std::move(value));
    MORACLE_ASSIGN(node, finish(std::move(node)));
  } else {
    MORACLE_ASSIGN(node, primary());
  }
  MORACLE_ASSIGN(node, postfix(std::move(node)));
  if (!with_filters) return node;
  return filters(std::move(node));
}

ExprParser::Parsed ExprParser::primary() {
  const Token& token = peek();
  auto node = make(ExprKind::constant);
  if (token.kind == TokenKind::name) {
    const std::string name = take().text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      node->constant = Value::boolean(name == "true" || name == "True");
    } else if (name == "none" || name == "None") {
      node->constant = Value::none();
    } else {
      node->kind = ExprKind::name;
      node->name = name;
      if (name == "varargs") reads_.rest = true;
      if (name == "kwargs") reads_.named_rest = true;
      if (name == "caller") reads_.caller = true;
    }
    return node;
  }
  if (token.kind == TokenKind::string) {
    std::string text = take().text;
    while (peek().kind == TokenKind::string) text += take().text;
    node->constant = Value::text(std::move(text));
    return node;
  }
  if (token.kind == TokenKind::integer) {
    node->constant = Value::integer(take().integer);
    return node;
  }
  if (token.kind == TokenKind::real) {
    node->constant = Value::real(take().real);
    return node;
  }
  if (take_op("(")) {
    MORACLE_ASSIGN(node, tuple(true, true));
    MORACLE_TRY(expect_op(")"));
    return node;
  }
  if (at_op("[")) return list_literal();
  if (at_op("{")) return dict_literal();
  return unexpected("an expression");
}

ExprParser::Parsed ExprParser::list_literal() {
  auto node = make(ExprKind::list);
  take();
  while (!at_op("]")) {
    if (!node->children.empty()) {
      MORACLE_TRY(expect_op(","));
      if (at_op("]")) break;
    }
    MORACLE_ASSIGN(ExprPtr item, expression());
    node->children.push_back(std::move(item));
  }
  take();
  return finish(std::move(node));
}

ExprParser::Parsed ExprParser::dict_literal() {
  auto node = make(ExprKind::dict);
  take();
  while (!at_op("}")) {
    if (!node->children.empty()) {
      MORACLE_TRY(expect_op(","));
      if (at_op("}")) break;
    }
    MORACLE_ASSIGN(ExprPtr key, expression());
    MORACLE_TRY(expect_op(":"));
    MORACLE_ASSIGN(ExprPtr value, expression());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
  }
  take();
  return finish(std::move(node));
}

bool ExprParser::at_tuple_end() const {
  const TokenKind kind = peek().kind;
  return kind == TokenKind::variable_end || kind == TokenKind::block_end || at_op(")");
}

ExprParser::Parsed ExprParser::tuple(bool with_condition, bool parenthesized) {
  auto node = make(ExprKind::tuple);
  bool is_tuple = false;
  while (!at_tuple_end()) {
    if (!node->children.empty()) {
      if (!take_op(",")) break;
      is_tuple = true;
      if (at_tuple_end()) break;
    }
    MORACLE_ASSIGN(ExprPtr item, conditional(with_condition));
    node->children.push_back(std::move(item));
  }
  if (!is_tuple && !node->children.empty()) return std::move(node->children.front());
  if (node->children.empty() && !parenthesized) return unexpected("an expression");
  return finish(std::move(node));
}

ExprParser::Parsed ExprParser::target_item(bool with_members) {
  const Level level(&level_);
  if (level_ > depth_limit_) return too_deep();
  if (take_op("(")) {
    MORACLE_ASSIGN(ExprPtr node, target(with_members));
    MORACLE_TRY(expect_op(")"));
    return node;
  }
  auto node = make(ExprKind::name);
  MORACLE_ASSIGN(node->name, expect_name());
  static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), node->name) != std::end(kReserved))
    return syntax_error(file_, node->line, "an assignment to '" + node->name + "'");
  if (with_members && take_op(".")) {
    node->kind = ExprKind::member;
    MORACLE_ASSIGN(std::string member, expect_name());
    node->names.push_back(std::move(member));
  }
  return node;
}

ExprParser::Parsed ExprParser::target(bool with_members) {
  MORACLE_ASSIGN(ExprPtr first, target_item(with_members));
  if (!at_op(",")) return first;
  auto node = make(ExprKind::tuple);
  node->children.push_back(std::move(first));
  while (take_op(",")) {
    if (at_tuple_end()) break;
    MORACLE_ASSIGN(ExprPtr next, target_item(with_members));
    node->children.push_back(std::move(next));
  }
  return finish(std::move(node));
}

ExprParser::Parsed ExprParser::postfix(ExprPtr node) {
  for (;;) {
    if (at_op(".") || at_op("[")) {
      MORACLE_ASSIGN(node, subscript(std::move(node)));
    } else if (at_op("(")) {
      auto call = make(ExprKind::call);
      call->children.push_back(std::move(node));
      MORACLE_TRY(arguments(call.get()));
      MORACLE_ASSIGN(node, finish(std::move(call)));
    } else {
      return node;
    }
  }
}

ExprParser::Parsed ExprParser::subscript(ExprPtr object) {
  auto node = make(ExprKind::attribute);
  node->children.push_back(std::move(object));
  if (take_op(".")) {
    if (peek().kind == TokenKind::integer) {
      auto index = make(ExprKind::constant);
      index->constant = Value::integer(take().integer);
      node->kind = ExprKind::item;
      node->children.push_back(std::move(index));
    } else {
      MORACLE_ASSIGN(node->name, expect_name());
    }
    return finish(std::move(node));
  }
  take();
  node->kind = ExprKind::item;
  std::vector<ExprPtr> parts(1);
  bool slice = false;
  while (!at_op("]")) {
    if (at_op(":")) {
      slice = true;
      if (parts.size() == 3) return unexpected("']'");
      take();
      parts.emplace_back();
      continue;
    }
    if (parts.back()) break;
    MORACLE_ASSIGN(parts.back(), expression());
  }
  // a[1, 2] and a[] look a tuple up.
  if (!slice && (at_op(",") || !parts.front())) {
    auto key = make(ExprKind::tuple);
    if (parts.front()) key->children.push_back(std::move(parts.front()));
    while (take_op(",")) {
      MORACLE_ASSIGN(ExprPtr next, expression());
      key->children.push_back(std::move(next));
    }
    MORACLE_ASSIGN(parts.front(), finish(std::move(key)));
  }
  MORACLE_TRY(expect_op("]"));
  if (slice) {
    node->kind = ExprKind::slice;
    parts.resize(3);
  }
  for (auto& part : parts) node->children.push_back(std::move(part));
  return finish(std::move(node));
}

ExprParser::Parsed ExprParser::filters(ExprPtr node) {
  for (;;) {
    if (at_op("|")) {
      MORACLE_ASSIGN(node, filter_chain(std::move(node)));
    } else if (take_name("is")) {
      MORACLE_ASSIGN(node, test(std::move(node)));
    } else if (at_op("(")) {
      auto call = make(ExprKind::call);
      call->children.push_back(std::move(node));
      MORACLE_TRY(arguments(call.get()));
      MORACLE_ASSIGN(node, finish(std::move(call)));
    } else {
      return node;
    }
  }
}

ExprParser::Parsed ExprParser::filter_chain(ExprPtr node) {
  while (take_op("|")) {
    auto filter = make(ExprKind::filter);
    MORACLE_ASSIGN(filter->name, expect_name());
    while (take_op(".")) {
      MORACLE_ASSIGN(const std::string part, expect_name());
      filter->name += "." + part;
    }
    filter->children.push_back(std::move(node));
    if (at_op("(")) MORACLE_TRY(arguments(filter.get()));
    MORACLE_ASSIGN(node, finish(std::move(filter)));
  }
  return node;
}

ExprParser::Parsed ExprParser::test(ExprPtr node) {
  const bool negated = take_name("not");
  auto check = make(ExprKind::test);
  MORACLE_ASSIGN(check->name, expect_name());
  while (take_op(".")) {
    MORACLE_ASSIGN(const std::string part, expect_name());
    check->name += "." + part;
  }
  check->children.push_back(std::move(node));
  const TokenKind kind = peek().kind;
  if (at_op("(")) {
    MORACLE_TRY(arguments(check.get()));
  } else if ((kind == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and")) ||
             kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::real || at_op("[") ||
             at_op("{")) {
    if (at_name("is")) return syntax_error(file_, peek().line, "a test of a test");
    MORACLE_ASSIGN(ExprPtr argument, primary());
    MORACLE_ASSIGN(argument, postfix(std::move(argument)));
    check->arguments.push_back(std::move(argument));
  }
  MORACLE_ASSIGN(ExprPtr result, finish(std::move(check)));
  if (!negated) return result;
  auto negation = make(ExprKind::negation);
  negation->children.push_back(std::move(result));
  return finish(std::move(negation));
}

Result<Ok> ExprParser::arguments(Expr* node) {
  MORACLE_TRY(expect_op("("));
  bool first = true;
  while (!at_op(")")) {
    if (!first) {
      MORACLE_TRY(expect_op(","));
      if (at_op(")")) break;
    }
    first = false;
    if (at_op("*") || at_op("**")) {
      ExprPtr& rest = take().text == "*" ? node->rest : node->named_rest;
      if (rest) return unexpected("one list of further arguments");
      MORACLE_ASSIGN(rest, expression());
    } else if (peek().kind == TokenKind::name && peek(1).kind == TokenKind::op && peek(1).text == "=") {
      std::string name = take().text;
      take();
      MORACLE_ASSIGN(ExprPtr value, expression());
      node->named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!node->named.empty() || node->rest || node->named_rest) return unexpected("a named argument");
      MORACLE_ASSIGN(ExprPtr value, expression());
      node->arguments.push_back(std::move(value));
    }
  }
  take();
  return Ok{};
}

}  // namespace moracle::jinja
