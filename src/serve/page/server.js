// Requests to the server that gave out this page, with the key that guards it.
import { at } from "./dom.js";

function headers() {
  const all = { "Content-Type": "application/json" };
  if (at("key").value) all.Authorization = "Bearer " + at("key").value; // the field alone holds the key
  return all;
}

// Throws an Error with the server's sentence. Where the server wants a key its field is shown.
export async function ask(path, options) {
  const answer = await fetch(path, { ...options, headers: headers() });
  if (answer.status === 401) {
    at("key-field").hidden = false;
    if (!at("key").value) throw new Error("This server wants a key.");
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => null);
    throw new Error(body?.error?.message ?? "status " + answer.status);
  }
  return answer;
}

// Yields the objects of a stream of server-sent events.
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (event.startsWith("data: ") && event !== "data: [DONE]") yield JSON.parse(event.slice(6));
    }
  }
}
