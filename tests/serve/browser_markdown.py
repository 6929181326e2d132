"""Markdown in the page: what it looks like, and texts that want to be more than text."""

from browser import By, PageTest
from served import ROOT

PAGE = ROOT / "src" / "serve" / "page"
MARKUP = "<img src=x onerror=\"document.title='broken'\"><b>bold</b> & one two"

MARKDOWN = """# Title

A *b* **c** `d` and <b>no tag</b>, [a link](https://example.org/a?b=1&c=2) and ~~gone~~.

| name | count |
| :--- | ---: |
| one | 1 |

```python
def f(x):
    return "s", 3  # note
```

1. first
2. second
   - nested
   - [x] done

> said

![picture](https://example.org/a.png)
"""

# Each tries to run a script, load something, leave the page, or look like a part of it.
HOSTILE = [
    "<script>window.broken = 1</script>",
    "<ScRiPt src=/v1/status></sCrIpT>",
    "a <img src=x onerror=window.broken=1> b",
    "<svg onload=window.broken=1><a xlink:href='javascript:window.broken=1'><text>x</text></a></svg>",
    "<svg><style><img src=x onerror=window.broken=1></style></svg>",
    "<math><mi//xlink:href=\"data:x,<script>window.broken=1</script>\">",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=window.broken=1&gt;\">",
    "<iframe src=javascript:window.broken=1></iframe><iframe srcdoc='<script>parent.broken=1</script>'></iframe>",
    "<form action=/v1/completions><input name=words><button>Send</button></form>",
    "<form id=ask><input id=key name=attributes></form>",
    "<style>* { display: none }</style><link rel=stylesheet href=//example.org/x.css>",
    "<p style='position:fixed;inset:0' onclick=window.broken=1>p</p>",
    "<base href=//example.org/><meta http-equiv=refresh content='0;url=//example.org'>",
    "<object data=x></object><embed src=x><video src=x onerror=window.broken=1><source></video>",
    "<details open ontoggle=window.broken=1><summary>s</summary></details>",
    "<noscript><p title='</noscript><img src=x onerror=window.broken=1>'></noscript>",
    "<textarea><img title='</textarea><img src=x onerror=window.broken=1>'></textarea>",
    "[a](javascript:window.broken=1) [b](JaVaScRiPt:window.broken=1) [c](java\nscript:window.broken=1)",
    "[a](&#106;avascript:window.broken=1) [b](javascript&colon;window.broken=1) [c](\x01javascript:window.broken=1)",
    "[a](data:text/html,<script>window.broken=1</script>) [b](vbscript:x) [c](file:///etc/passwd) [d](blob:x)",
    "[a](//example.org) [b](/v1/status) [c](#talk) [d](?x)",
    "<javascript:window.broken=1> <data:text/html,x>",
    "![a](javascript:window.broken=1) ![b](data:image/svg+xml,<svg/onload=window.broken=1>) ![c](https://example.org)",
    "![a](x\" onerror=\"window.broken=1) ![\"onerror=window.broken=1](y 'z\" onerror=\"window.broken=1')",
    "[a](https://example.org \"t' onclick='window.broken=1\") [b](<https://example.org\" onclick=\"window.broken=1>)",
    "[a]: javascript:window.broken=1\n\n[a] [x][a]",
    "```\"><img/src=x/onerror=window.broken=1>\ncode\n```",
    "```html\n<script>window.broken = 1</script>\n```\n```js onload=window.broken=1\nx\n```",
    "```json\n{\"a\": \"</code></pre><img src=x onerror=window.broken=1>\"}\n```",
    "`<img src=x onerror=window.broken=1>` ``</code><script>window.broken=1</script>``",
    "|a|b|\n|-|:-:|\n|<img src=x onerror=window.broken=1>|[x](javascript:window.broken=1)|",
    "<!--><img src=x onerror=window.broken=1>--> <![CDATA[<script>window.broken=1</script>]]>",
    "&lt;script&gt;window.broken=1&lt;/script&gt; &#60;img src=x onerror=window.broken=1&#62;",
    "<a href=\"https://example.org\" target=\"_top\" name=\"at\" id=\"words\">x</a>",
    "# <h1 id=send onmouseover=window.broken=1>x</h1>",
    "https://example.org/<script>window.broken=1</script> www.example.org/\"onclick=window.broken=1",
    "<<script>script>window.broken=1<</script>/script>",
    "> " * 300 + "deep",
    "[" * 500 + "a" + "](b)" * 500,
]

# What of elements is not what Markdown is made of; for the whole of a text and for each that a stream shows on its way.
JUDGE = r"""
const [texts, done] = arguments;
const tags = new Set(['P', 'BR', 'HR', 'H1', 'H2', 'H3', 'H4', 'H5', 'H6', 'UL', 'OL', 'LI', 'BLOCKQUOTE', 'PRE',
  'CODE', 'EM', 'STRONG', 'DEL', 'A', 'TABLE', 'THEAD', 'TBODY', 'TR', 'TH', 'TD', 'DIV', 'SPAN', 'BUTTON']);
const names = new Set(['class', 'align', 'start', 'href', 'target', 'rel', 'title', 'type', 'tabindex']);
const wrong = [];
const judge = (element, text) => {
  if (!tags.has(element.tagName)) wrong.push([text, element.tagName]);
  for (const { name, value } of element.attributes) {
    if (!names.has(name)) wrong.push([text, element.tagName, name, value]);
    if (name === 'href' && !/^(https?:\/\/|mailto:)/i.test(value)) wrong.push([text, 'href', value]);
  }
  if (element.tagName === 'BUTTON' && element.textContent !== 'Copy') wrong.push([text, 'BUTTON', element.textContent]);
};
import('/page/markdown.js').then(async ({ markdown, hasMarkdown }) => {
  const place = document.createElement('div');
  document.body.append(place);
  for (const text of texts) {
    const step = Math.max(1, Math.ceil(text.length / 24));
    for (let end = step; ; end += step) {
      place.replaceChildren(markdown(text.slice(0, end)));
      await new Promise((after) => setTimeout(after)); // colours come later
      for (const element of place.querySelectorAll('*')) judge(element, text.slice(0, end));
      if (end >= text.length) break;
    }
  }
  place.remove();
  done({ wrong, hasMarkdown, broken: window.broken ?? null });
});
"""


class Markdown(PageTest):
    def test_markdown_is_shown(self):
        self.replies_text(MARKDOWN)
        self.ask("show me")
        text = self.all("article.assistant .text")[0]
        if not self.module("markdown.js", "m.hasMarkdown"):
            self.assertEqual(self.texts("article.assistant .text"), [MARKDOWN])
            self.skipTest("the build shows plain text")
        for selector, content in (("h1", "Title"), ("em", "b"), ("strong", "c"), ("p code", "d"), ("del", "gone"),
                                  ("td", "one"), ("ol li ul li", "nested"), ("blockquote p", "said")):
            self.assertEqual(text.find_element(By.CSS_SELECTOR, selector).text, content)
        self.assertIn("<b>no tag</b>", text.text)
        links = text.find_elements(By.TAG_NAME, "a")
        self.assertEqual([link.get_attribute("href") for link in links],
                         ["https://example.org/a?b=1&c=2", "https://example.org/a.png"])
        self.assertEqual({link.get_attribute("rel") for link in links}, {"noopener noreferrer"})
        self.assertEqual(text.find_elements(By.TAG_NAME, "td")[1].get_attribute("align"), "right")
        self.until(lambda: self.texts("article.assistant .hljs-keyword") == ["def", "return"])
        self.assertEqual(self.texts("article.assistant pre"), ['def f(x):\n    return "s", 3  # note'])
        self.press("article.assistant .code button")
        self.until(lambda: self.texts("article.assistant .code button") == ["Copied"])
        for name, width, dark in (("light", 1200, False), ("dark", 1200, True), ("phone", 390, False)):
            self.look(width, 800, dark)
            self.script("scrollTo(0, 0)")
            self.picture("markdown-" + name)
            self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), width)

    def test_text_is_no_markup(self):
        self.ask(MARKUP)
        self.assertEqual(self.texts("article.user .text"), [MARKUP])
        self.assertEqual(self.all("article img, article b"), [])
        self.assertEqual(self.browser.title, "Moracle")
        for file in PAGE.glob("*.js"):
            source = file.read_text()
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "location.search"):
                self.assertNotIn(word, source, file.name)

    def test_hostile_markdown_stays_text(self):
        told = self.browser.execute_async_script(JUDGE, [*HOSTILE, MARKDOWN])
        self.assertEqual(told["wrong"], [])
        self.assertIsNone(told["broken"])
        self.replies_text("\n\n".join(HOSTILE))
        self.ask("<script>window.broken = 1</script>")
        self.assertIsNone(self.script("return window.broken ?? null"))
        self.assertEqual(self.browser.title, "Moracle")
        self.assertEqual(self.all("article :is(script, img, svg, iframe, form, style, input, object)"), [])

    def test_nothing_foreign_runs(self):
        self.assertFalse([e for e in self.browser.get_log("browser") if e["level"] == "SEVERE"])
        self.script(
            "const s = document.createElement('script'); s.textContent = 'window.foreign = 1'; document.body.append(s);"
        )
        self.assertIsNone(self.script("return window.foreign ?? null"))
        told = self.browser.get_log("browser")  # since it was last asked
        self.assertTrue(any("Content Security Policy" in entry["message"] for entry in told), told)
