// Conversations in the shapes that templates differ in. Its functions have no state, so that every thread may call
// them.
#pragma once

#include "base/json/document.h"
#include "text/template/chat_templates.h"

namespace moracle {

// The arguments of a called function as an object: clients send JSON as text. What is no object becomes one with the
// member "arguments". False: it was none.
bool open_arguments_of(OrderedJson& function, JsonLimits limits = {});
// Of all calls in messages.
void open_arguments(OrderedJson& messages);
// The same as JSON in texts, which some templates write as they are.
void close_arguments(OrderedJson& messages);
// Empty texts in place of content and descriptions that clients leave out. False: there are all.
bool fill_texts(ChatRequest& chat);

}  // namespace moracle
