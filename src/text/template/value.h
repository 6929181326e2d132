// Values of the template language: Python's data model as far as a template can see it. Values belong to one rendering,
// and so to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/random/keyed_hash.h"

namespace moracle::jinja {

class Value;
class Interpreter;

// nullopt: the evaluation failed and the interpreter holds the error.
using Maybe = std::optional<Value>;

// Positional and named arguments of a call, filter or test.
struct Arguments;

// A name, attribute or item that is not there. It prints as nothing; most other uses fail with `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
  bool forbidden = false;  // refused by the sandbox rather than missing
};
struct None {};

struct Text;
struct Sequence;
class Dict;
struct Iterator;
struct Namespace;
class Object;
using TextPtr = std::shared_ptr<const Text>;
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using IteratorPtr = std::shared_ptr<Iterator>;
using NamespacePtr = std::shared_ptr<Namespace>;
using ObjectPtr = std::shared_ptr<Object>;

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, std::int64_t, double, TextPtr, SequencePtr, DictPtr, IteratorPtr,
                            NamespacePtr, ObjectPtr>;
  Value() = default;
  Value(Data data) : data_(std::move(data)) {}  // NOLINT(google-explicit-constructor)
  static Value none() { return Value(Data(None{})); }
  static Value boolean(bool value) { return Value(Data(value)); }
  static Value integer(std::int64_t value) { return Value(Data(value)); }
  static Value real(double value) { return Value(Data(value)); }
  // Without limits: for text whose room was taken (Interpreter::room), or that the template's source holds.
  static Value text(std::string bytes, bool markup = false);

  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&data_);
  }
  [[nodiscard]] bool is_undefined() const { return as<Undefined>() != nullptr; }
  [[nodiscard]] bool is_none() const { return as<None>() != nullptr; }
  [[nodiscard]] const Text* text() const;
  [[nodiscard]] const Sequence* sequence() const;
  [[nodiscard]] const Dict* dict() const;
  [[nodiscard]] bool is_number() const { return as<std::int64_t>() || as<double>() || as<bool>(); }
  // An int or a bool, as Python's operator.index takes them.
  [[nodiscard]] std::optional<std::int64_t> index() const;
  [[nodiscard]] double number() const;  // of an int, a bool or a float
  [[nodiscard]] bool truthy() const;
  // Both are kept where the value was made: a container shares its parts, so that walking it may take 2^depth steps.
  [[nodiscard]] int depth() const;
  [[nodiscard]] bool hashable() const;
  [[nodiscard]] const void* address() const;  // of what is on the heap, else nullptr
  // Python's name of the type, for messages.
  [[nodiscard]] std::string_view type_name() const;

 private:
  Data data_;
};

// UTF-8, always valid. `markup`: already escaped (the safe and escape filters); joining escapes the other side.
struct Text {
  std::string bytes;
  bool markup = false;
};

enum class SequenceKind : std::uint8_t { list, tuple, range, keys, values, items };

// `depth` of a container is one more than the deepest value inside. It is bounded when a container is made, so that
// comparing, printing and destroying values may recurse. Only the interpreter walks a value, and takes steps for it.
struct Sequence {
  Sequence(std::vector<Value> values, SequenceKind of);
  std::vector<Value> items;
  SequenceKind kind;
  int depth = 1;
  bool hashable;
  std::int64_t start = 0, stop = 0, step = 1;  // of a range
};

class Dict {
 public:
  // `key` is not there yet (Interpreter::insert).
  void add(Value key, Value value);
  // `place` is what find gave; the first key stays, as in Python.
  void replace(const Value* place, Value value);
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  [[nodiscard]] std::size_t size() const { return items_.size(); }
  // Positions of the keys that are not text.
  [[nodiscard]] const std::vector<std::size_t>& others() const { return others_; }
  int depth = 1;

 private:
  std::vector<std::pair<Value, Value>> items_;
  // Views of the keys' own texts; empty while the dict is so small that looking at each key is faster.
  std::unordered_map<std::string_view, std::size_t, KeyedHash> by_text_;
  std::vector<std::size_t> others_;
};

// What a generator is in Python: true, without a length, and used up by the first reader.
struct Iterator {
  std::vector<Value> items;
  std::size_t next = 0;
  int depth = 1;
};

// namespace(): the only thing a template can change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  [[nodiscard]] const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// Macros, bound methods, globals, loop, cycler and joiner: everything that can be called.
class Object {
 public:
  virtual ~Object() = default;
  virtual Maybe call(Interpreter& in, Arguments& arguments);
  // nullptr in `found` where the object has no such attribute.
  virtual Maybe attribute(Interpreter& in, std::string_view name);
  [[nodiscard]] virtual bool callable() const { return true; }
  [[nodiscard]] virtual std::string repr() const { return "<function>"; }
  int depth = 1;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Equality of what has no parts: numbers, none and undefined by value, all else by identity. Texts and containers are
// compared by Interpreter::equal.
bool scalar_equal(const Value& a, const Value& b);

std::string format_float(double value);  // repr of a Python float

}  // namespace moracle::jinja
