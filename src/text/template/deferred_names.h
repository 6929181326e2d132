// Names that are undefined before the statement that sets them, whatever the context holds.
#pragma once

#include "text/template/syntax/ast.h"

namespace moracle::jinja {

// Follows jinja2's compiler, which makes a local variable of a name that a frame sets before it reads it: blocks inside
// read that variable, also above the statement that sets it. Frames are the template, loops, macros, {% call %},
// {% filter %}, {% with %} and the bodies of {% set %}. An {% if %} is a part of the frame around it; a name that it
// sets stays the context's (jinja2 makes it local where body, elif and else all set it). Fills Body::deferred.
void find_deferred_names(Body& body);

}  // namespace moracle::jinja
