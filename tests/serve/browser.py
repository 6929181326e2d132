"""A server, Chromium on its page, and what tests do with both. Without selenium or Chromium the program ends with exit
code 77."""

import pathlib
import shutil
import sys
import tempfile
import unittest

from served import Served

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    print("selenium is not installed: scripts/setup browser")
    sys.exit(77)

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not BROWSER or not DRIVER:
    print("chromium and chromium-driver are not installed: scripts/setup browser")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
PICTURES = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None

# Keeps the bodies of requests in window.sent; where window.deltas is set, the page gets these instead of a reply, and
# where window.endless is, the first of them again and again.
RECORDER = """
if (!window.sent) {
  const real = window.fetch;
  window.sent = [];
  window.fetch = (path, options) => {
    if (path !== '/v1/chat/completions') return real(path, options);
    window.sent.push(JSON.parse(options.body));
    if (!window.deltas) return real(path, options);
    const usage = { prompt_tokens: 3, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 0 } };
    const frame = (delta, finish_reason = null) =>
      JSON.stringify({ id: 'chatcmpl-stub', choices: [{ index: 0, delta, finish_reason }], usage });
    const headers = { 'Content-Type': 'text/event-stream' };
    if (window.endless) {
      const event = new TextEncoder().encode('data: ' + frame(window.deltas[0]) + '\\n\\n');
      const body = new ReadableStream({ start: (stream) => { setInterval(() => stream.enqueue(event), 100); } });
      return Promise.resolve(new Response(body, { headers }));
    }
    const frames = [...window.deltas.map((delta) => frame(delta)), frame({}, 'stop'), '[DONE]'];
    const text = frames.map((data) => 'data: ' + data + '\\n\\n').join('');
    return Promise.resolve(new Response(text, { headers }));
  };
}
window.deltas = arguments[0];
window.endless = arguments[1];
"""


def open_browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for switch in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(switch)
    options.add_argument(f"--user-data-dir={folder}/profile")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    browser.set_script_timeout(120)
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": f"{folder}/downloads"})
    clipboard = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": clipboard})
    return browser


class PageTest(unittest.TestCase):
    OPTIONS = ("--batch-invariant=on", "--context", "400")
    KEY = None

    @classmethod
    def setUpClass(cls):
        environment = {"MORACLE_API_KEY": cls.KEY} if cls.KEY else None
        cls.served = Served(PROGRAM, *cls.OPTIONS, environment=environment, key=cls.KEY)
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.browser = open_browser(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.folder.cleanup()
        cls.served.end()
        cls.served.__exit__()

    def setUp(self):
        self.look(1200, 800, dark=False)
        self.open()
        self.module("conversations.js", "m.removeAll()")
        self.open()

    def tearDown(self):
        wrong = [entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
        self.assertEqual(wrong, [])  # an error, or something that the policy kept out
        self.assertTrue(self.served.rests(60))

    def open(self):
        self.browser.get(self.served.url + "/")
        self.until(lambda: "bits" in self.at("model").text)

    def reopen(self):
        """Once the browser has stored what it was given."""
        self.module("store.js", "m.loadAll()")
        self.open()

    def at(self, name):
        return self.browser.find_element(By.ID, name)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        return self.script("return Array.from(document.querySelectorAll(arguments[0]), (e) => e.textContent)", selector)

    def press(self, selector, which=-1):
        """From within: words that arrive move what a pointer aims at."""
        self.browser.execute_script("arguments[0].click()", self.all(selector)[which])

    def until(self, holds, seconds=60):  # under a sanitizer, beside other tests, a reply takes twenty
        return WebDriverWait(self.browser, seconds, 0.05).until(lambda _: holds())

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def module(self, name, expression):
        """The value of an expression of the page's module `m`."""
        return self.browser.execute_async_script(
            f"const done = arguments[0]; import('/page/{name}').then(async (m) => done(await ({expression})));"
        )

    def messages(self):
        return self.module("conversations.js", "m.current().messages")

    def look(self, width, height, dark):
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def picture(self, name):
        if PICTURES:
            PICTURES.mkdir(parents=True, exist_ok=True)
            self.browser.save_screenshot(str(PICTURES / f"{name}.png"))

    def replies(self, *deltas, endless=False):
        """What the page gets instead of the server's replies; nothing: the server's."""
        self.script(RECORDER, list(deltas) or None, endless)

    def replies_text(self, text):
        self.replies(*({"content": text[i : i + 24]} for i in range(0, len(text), 24)))

    def sent(self):
        return self.script("return window.sent")

    def say(self, words):
        count = len(self.texts("article"))
        self.at("words").send_keys(words + Keys.ENTER)
        self.until(lambda: len(self.texts("article")) > count + 1)

    def ended(self):
        return self.at("send").is_displayed() and not self.all("article[aria-busy=true]")

    def ask(self, words):
        self.say(words)
        self.until(self.ended)

    def stop(self):
        self.until(lambda: self.texts("article.assistant .text")[-1].strip())
        self.press("#stop")
        self.until(self.ended)
