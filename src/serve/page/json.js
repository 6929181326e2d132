// Indents JSON without reading its values: numbers and names stay as they were written.

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g;

function indented(text) {
  let out = "";
  let depth = 0;
  let before = "";
  const line = () => "\n" + "  ".repeat(depth);
  for (const [token] of text.matchAll(TOKENS)) {
    const opens = before === "{" || before === "[";
    if (token === "}" || token === "]") {
      --depth;
      out += (opens ? "" : line()) + token;
    } else if (token === ":" || token === ",") {
      out += token === ":" ? ": " : ",";
    } else {
      out += (opens || before === "," ? line() : "") + token;
      if (token === "{" || token === "[") ++depth;
    }
    before = token;
  }
  return out;
}

// An object or a list of JSON, indented; null where the text is something else.
export function readableJson(text) {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  return indented(text);
}
