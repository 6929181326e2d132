// Conversations in the shapes that templates differ in.
#pragma once

#include "base/json/document.h"
#include "text/template/chat_templates.h"

namespace moracle {

// Arguments of calls in earlier turns as objects: clients send JSON as text. What is no object becomes one with the
// member "arguments". False: the arguments of the function were no JSON object.
bool open_arguments(OrderedJson& function, JsonLimits limits = {});
// The same as JSON in texts, which some templates write as they are.
void close_arguments(OrderedJson& messages);
// Empty texts in place of content and descriptions that clients leave out. False: there are all.
bool fill_texts(ChatRequest& chat);

}  // namespace moracle
