// The two halves of the parser: expressions (parser_expr.cpp) and statements (parser.cpp).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/syntax/ast.h"
#include "text/template/syntax/lexer.h"

namespace moracle::jinja {

class ExprParser {
 public:
  ExprParser(std::vector<Token> tokens, const std::string& file, int depth)
      : tokens_(std::move(tokens)), file_(file), depth_limit_(depth) {}

 protected:
  using Parsed = Result<ExprPtr>;

  // One more level of recursion while it lives.
  class Level {
   public:
    explicit Level(int* level) : level_(level) { ++*level_; }
    ~Level() { --*level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int* level_;
  };

  [[nodiscard]] const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[nodiscard]] bool at_op(std::string_view text) const { return peek().kind == TokenKind::op && peek().text == text; }
  [[nodiscard]] bool at_name(std::string_view text) const {
    return peek().kind == TokenKind::name && peek().text == text;
  }
  bool take_op(std::string_view text) { return at_op(text) && (take(), true); }
  bool take_name(std::string_view text) { return at_name(text) && (take(), true); }
  Result<Ok> expect_op(std::string_view text);
  Result<std::string> expect_name();
  [[nodiscard]] Error unexpected(std::string_view wanted) const;
  [[nodiscard]] Error too_deep() const;

  [[nodiscard]] ExprPtr make(ExprKind kind, std::string name = {}) const;
  // Sets the depth of the finished node.
  Parsed finish(ExprPtr node) const;

  Parsed expression() { return conditional(true); }
  Parsed expression_without_condition() { return disjunction(); }
  // A list without brackets. A comma at its end is taken before the end of a tag or a bracket only.
  Parsed tuple(bool with_condition, bool parenthesized = false);
  Parsed target(bool with_members);
  Parsed postfix(ExprPtr node);
  Parsed filters(ExprPtr node);
  Parsed filter_chain(ExprPtr node);
  Parsed primary();
  Parsed unary(bool with_filters);
  Result<Ok> arguments(Expr* node);

  int level_ = 0;
  // Which of a macro's implicit names the text read so far mentions.
  struct Reads {
    bool rest = false, named_rest = false, caller = false;
  };
  Reads reads_;

 private:
  Parsed conditional(bool with_condition);
  // Operands with `word` between them; one alone is itself.
  Parsed joined(std::string_view word, ExprKind kind, Parsed (ExprParser::*operand)());
  Parsed disjunction();
  Parsed conjunction();
  Parsed negation();
  Parsed comparison();
  Parsed binary(int precedence);
  Parsed concat();
  Parsed target_item(bool with_members);
  Parsed subscript(ExprPtr object);
  Parsed test(ExprPtr node);
  Parsed list_literal();
  Parsed dict_literal();
  [[nodiscard]] bool at_tuple_end() const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;

 protected:
  const std::string& file_;
  int depth_limit_;
};

}  // namespace moracle::jinja
