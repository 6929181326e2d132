#include "text/template/syntax/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/template/syntax/parser_impl.h"

namespace moracle::jinja {
namespace {

class Parser : public ExprParser {
 public:
  using ExprParser::ExprParser;
  Result<Body> run();

 private:
  using Statement = Result<std::unique_ptr<Stmt>>;
  using Ends = std::initializer_list<std::string_view>;

  // Statements up to, and with "{%" consumed before, a tag named in `ends`; the tag's name is the next token.
  Result<Body> body(Ends ends);
  Result<Body> body_to(std::string_view end);  // consumes the closing tag, too
  Result<Ok> block_end();
  Statement statement();
  Statement branch();
  Statement loop();
  Statement assign();
  Statement macro();
  Statement call_block();
  Statement filter_block();
  Statement with();
  Statement print();
  Statement jump(StmtKind kind);
  Result<Ok> parameters(Stmt* stmt);
  // The body of something that Jinja compiles to a function of its own: no break out of it.
  Result<Body> function_body(std::string_view end);

  [[nodiscard]] std::unique_ptr<Stmt> make(StmtKind kind) const {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = peek().line;
    return stmt;
  }

  int loops_ = 0;
};

Result<Body> Parser::run() {
  return body({});
}

Result<Ok> Parser::block_end() {
  if (peek().kind != TokenKind::block_end) return unexpected("the end of the block");
  take();
  return Ok{};
}

Result<Body> Parser::body(Ends ends) {
  const Level level(&level_);
  if (level_ > depth_limit_) return too_deep();
  Body out;
  for (;;) {
    const Token& token = take();
    if (token.kind == TokenKind::data) {
      auto stmt = make(StmtKind::data);
      stmt->text = token.text;
      out.statements.push_back(std::move(stmt));
    } else if (token.kind == TokenKind::variable_begin) {
      auto stmt = make(StmtKind::output);
      MORACLE_ASSIGN(stmt->expr, tuple(true));
      if (peek().kind != TokenKind::variable_end) return unexpected("the end of the expression");
      take();
      out.statements.push_back(std::move(stmt));
    } else if (token.kind == TokenKind::block_begin) {
      if (peek().kind != TokenKind::name) return unexpected("the name of a tag");
      if (std::find(ends.begin(), ends.end(), peek().text) != ends.end()) return out;
      MORACLE_ASSIGN(auto stmt, statement());
      out.statements.push_back(std::move(stmt));
    } else if (ends.size() == 0) {
      return out;
    } else {
      return unexpected("'" + std::string(*(ends.end() - 1)) + "'");
    }
  }
}

Result<Body> Parser::body_to(std::string_view end) {
  MORACLE_TRY(block_end());
  MORACLE_ASSIGN(Body out, body({end}));
  take();
  MORACLE_TRY(block_end());
  return out;
}

Result<Body> Parser::function_body(std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  MORACLE_ASSIGN(Body out, body_to(end));
  loops_ = loops;
  return out;
}

Parser::Statement Parser::statement() {
  const std::string name = peek().text;
  if (name == "if") return branch();
  if (name == "for") return loop();
  if (name == "set") return assign();
  if (name == "macro") return macro();
  if (name == "call") return call_block();
  if (name == "filter") return filter_block();
  if (name == "with") return with();
  if (name == "print") return print();
  if (name == "break") return jump(StmtKind::leave);
  if (name == "continue") return jump(StmtKind::next);
  if (name == "generation") {
    auto stmt = make(StmtKind::scope);
    take();
    MORACLE_ASSIGN(Body inner, function_body("endgeneration"));
    stmt->bodies.push_back(std::move(inner));
    return stmt;
  }
  static constexpr std::string_view kRefused[] = {"include", "import", "from", "extends", "block"};
  if (std::find(std::begin(kRefused), std::end(kRefused), name) != std::end(kRefused))
    return syntax_error(file_, peek().line, "the tag '" + name + "', which a chat template may not use");
  return unexpected("a known tag");
}

Parser::Statement Parser::branch() {
  auto stmt = make(StmtKind::branch);
  take();
  for (;;) {
    MORACLE_ASSIGN(ExprPtr condition, tuple(false));
    stmt->conditions.push_back(std::move(condition));
    MORACLE_TRY(block_end());
    MORACLE_ASSIGN(Body inner, body({"elif", "else", "endif"}));
    stmt->bodies.push_back(std::move(inner));
    if (!at_name("elif")) break;
    take();
  }
  if (take_name("else")) {
    MORACLE_TRY(block_end());
    MORACLE_ASSIGN(Body inner, body({"endif"}));
    stmt->bodies.push_back(std::move(inner));
  }
  take();
  MORACLE_TRY(block_end());
  return stmt;
}

Parser::Statement Parser::loop() {
  auto stmt = make(StmtKind::loop);
  take();
  MORACLE_ASSIGN(stmt->target, target(false));
  if (!take_name("in")) return unexpected("'in'");
  MORACLE_ASSIGN(stmt->expr, tuple(false));
  if (take_name("if")) {
    MORACLE_ASSIGN(stmt->condition, expression());
  }
  stmt->recursive = take_name("recursive");
  MORACLE_TRY(block_end());
  ++loops_;
  MORACLE_ASSIGN(Body inner, body({"endfor", "else"}));
  --loops_;
  stmt->bodies.push_back(std::move(inner));
  if (take_name("else")) {
    MORACLE_TRY(block_end());
    MORACLE_ASSIGN(Body otherwise, body({"endfor"}));
    stmt->bodies.push_back(std::move(otherwise));
  }
  take();
  MORACLE_TRY(block_end());
  return stmt;
}

Parser::Statement Parser::assign() {
  auto stmt = make(StmtKind::assign);
  take();
  MORACLE_ASSIGN(stmt->target, target(true));
  if (take_op("=")) {
    MORACLE_ASSIGN(stmt->expr, tuple(true));
    MORACLE_TRY(block_end());
    return stmt;
  }
  if (at_op("|")) {
    MORACLE_ASSIGN(stmt->filter, filter_chain(nullptr));
  }
  MORACLE_ASSIGN(Body inner, body_to("endset"));
  stmt->bodies.push_back(std::move(inner));
  return stmt;
}

Result<Ok> Parser::parameters(Stmt* stmt) {
  MORACLE_TRY(expect_op("("));
  while (!at_op(")")) {
    if (!stmt->parameters.empty()) MORACLE_TRY(expect_op(","));
    Parameter parameter;
    MORACLE_ASSIGN(parameter.name, expect_name());
    if (take_op("=")) {
      MORACLE_ASSIGN(parameter.fallback, expression());
    } else if (!stmt->parameters.empty() && stmt->parameters.back().fallback) {
      return unexpected("a default, as the parameter before has one");
    }
    stmt->parameters.push_back(std::move(parameter));
  }
  take();
  return Ok{};
}

Parser::Statement Parser::macro() {
  auto stmt = make(StmtKind::macro);
  take();
  MORACLE_ASSIGN(stmt->text, expect_name());
  const Reads outer = std::exchange(reads_, Reads{});
  MORACLE_TRY(parameters(stmt.get()));
  MORACLE_ASSIGN(Body inner, function_body("endmacro"));
  stmt->bodies.push_back(std::move(inner));
  stmt->takes_rest = reads_.rest;
  stmt->takes_named_rest = reads_.named_rest;
  stmt->takes_caller = reads_.caller;
  reads_ = {outer.rest || reads_.rest, outer.named_rest || reads_.named_rest, outer.caller || reads_.caller};
  return stmt;
}

Parser::Statement Parser::call_block() {
  auto stmt = make(StmtKind::call);
  take();
  if (at_op("(")) MORACLE_TRY(parameters(stmt.get()));
  MORACLE_ASSIGN(stmt->expr, expression());
  if (stmt->expr->kind != ExprKind::call) return unexpected("a call");
  MORACLE_ASSIGN(Body inner, function_body("endcall"));
  stmt->bodies.push_back(std::move(inner));
  stmt->text = "caller";
  return stmt;
}

Parser::Statement Parser::filter_block() {
  auto stmt = make(StmtKind::filter);
  take();
  auto head = ExprParser::make(ExprKind::filter);
  MORACLE_ASSIGN(head->name, expect_name());
  head->children.emplace_back();
  if (at_op("(")) MORACLE_TRY(arguments(head.get()));
  MORACLE_ASSIGN(ExprPtr chain, finish(std::move(head)));
  MORACLE_ASSIGN(stmt->filter, filter_chain(std::move(chain)));
  MORACLE_ASSIGN(Body inner, body_to("endfilter"));
  stmt->bodies.push_back(std::move(inner));
  return stmt;
}

Parser::Statement Parser::with() {
  auto stmt = make(StmtKind::scope);
  take();
  while (peek().kind != TokenKind::block_end) {
    if (!stmt->targets.empty()) MORACLE_TRY(expect_op(","));
    MORACLE_ASSIGN(ExprPtr name, target(false));
    MORACLE_TRY(expect_op("="));
    MORACLE_ASSIGN(ExprPtr value, expression());
    stmt->targets.push_back(std::move(name));
    stmt->values.push_back(std::move(value));
  }
  MORACLE_ASSIGN(Body inner, body_to("endwith"));
  stmt->bodies.push_back(std::move(inner));
  return stmt;
}

Parser::Statement Parser::print() {
  auto stmt = make(StmtKind::output);
  take();
  MORACLE_ASSIGN(stmt->expr, tuple(true));
  MORACLE_TRY(block_end());
  return stmt;
}

Parser::Statement Parser::jump(StmtKind kind) {
  if (loops_ == 0) return syntax_error(file_, peek().line, "'" + peek().text + "' outside a loop");
  auto stmt = make(kind);
  take();
  MORACLE_TRY(block_end());
  return stmt;
}

}  // namespace

Result<Body> parse_template(std::string_view source, const std::string& file, int depth) {
  MORACLE_ASSIGN(std::vector<Token> tokens, tokenize(source, file));
  return Parser(std::move(tokens), file, depth).run();
}

}  // namespace moracle::jinja
