// Shows a block of code: its language, a button that copies it, and colours by highlight.js, which is fetched when the
// first block is shown. A build without it shows the code as it is.
import { button, copy, element } from "./dom.js";

const MOST = 30000; // characters of a block that is still coloured
const POLICY = {
  ALLOWED_TAGS: ["span", "#text"],
  ALLOWED_ATTR: ["class"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
let library = null;

function highlighter() {
  library ??= new Promise((resolve) => {
    const script = element("script");
    script.src = "/page/highlight.js";
    script.onload = script.onerror = () => resolve(globalThis.hljs);
    document.head.append(script);
  });
  return library;
}

async function colour(code, text, language) {
  const hljs = await highlighter();
  if (!hljs?.getLanguage(language) || !globalThis.DOMPurify?.isSupported) return;
  code.replaceChildren(globalThis.DOMPurify.sanitize(hljs.highlight(language, text, true).value, POLICY));
}

export function codeBlock(text, language) {
  const frame = element("div", undefined, "code");
  const head = element("div", undefined, "row");
  const copying = button("Copy", () => copy(text, copying));
  head.append(element("span", language), copying);
  const code = element("code", text);
  const pre = element("pre");
  pre.tabIndex = 0; // it scrolls
  pre.append(code);
  frame.append(head, pre);
  if (language && text.length <= MOST) colour(code, text, language);
  return frame;
}
