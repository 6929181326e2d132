// Makes elements of a model's Markdown. Two libraries stand between: marked, which is told that there is no HTML in it,
// so that tags are shown as they were written, and DOMPurify, which lets through what marked makes and nothing else. A
// build without them shows the text as it is.
import { codeBlock } from "./code.js";
import { element } from "./dom.js";

const { marked, DOMPurify } = globalThis;
export const hasMarkdown = Boolean(marked && DOMPurify?.isSupported);

const MOST = 200000; // characters of a text that is still read as Markdown
const TAGS = ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em"];
const LINK = /^(https?|mailto):/i;
const POLICY = {
  ALLOWED_TAGS: [...TAGS, "strong", "del", "a", "table", "thead", "tbody", "tr", "th", "td", "#text"],
  ALLOWED_ATTR: ["href", "align", "start", "class"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: LINK,
  ADD_URI_SAFE_ATTR: ["align", "start"],
  RETURN_DOM_FRAGMENT: true,
};

// Text of a marked token is escaped already; addresses are DOMPurify's to judge.
const attribute = (text) => text.replace(/&(?!#?\w+;)/g, "&amp;").replace(/"/g, "&quot;").replace(/</g, "&lt;");

if (hasMarkdown) {
  marked.use({
    gfm: true,
    breaks: true,
    headerIds: false,
    mangle: false,
    tokenizer: { html: () => undefined, tag: () => undefined },
    renderer: {
      image: (href, title, text) => `<a href="${attribute(href ?? "")}">${text || "image"}</a>`, // nothing is fetched
      checkbox: (checked) => (checked ? "☑ " : "☐ "),
    },
  });
}

function plain(text) {
  return element("div", text, "plain");
}

// A table may be wider than the page; a link opens beside it.
function finish(fragment) {
  for (const code of fragment.querySelectorAll("pre > code")) {
    const language = /(?:^| )language-(\S+)/.exec(code.className)?.[1] ?? "";
    code.parentElement.replaceWith(codeBlock(code.textContent.replace(/\n$/, ""), language));
  }
  for (const table of fragment.querySelectorAll("table")) {
    const frame = element("div", undefined, "table");
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const link of fragment.querySelectorAll("a")) {
    if (!LINK.test(link.getAttribute("href") ?? "")) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.target = "_blank";
    link.rel = "noopener noreferrer";
    link.title = link.href;
  }
  return fragment;
}

export function markdown(text) {
  if (!hasMarkdown || text.length > MOST) return plain(text);
  try {
    return finish(DOMPurify.sanitize(marked.parse(text), POLICY));
  } catch {
    return plain(text); // nested deeper than the libraries go
  }
}
