// Filters that make numbers.
#pragma once

#include "text/template/interpreter.h"

namespace moracle::jinja {

Maybe filter_int(Interpreter& in, const Value& value, Arguments& arguments);
Maybe filter_float(Interpreter& in, const Value& value, Arguments& arguments);
Maybe filter_round(Interpreter& in, const Value& value, Arguments& arguments);
Maybe filter_abs(Interpreter& in, const Value& value, Arguments& arguments);

}  // namespace moracle::jinja
