#!/usr/bin/env python3
"""The page in Chromium: browser_test.py PROGRAM [FOLDER for screenshots]. Exit code 77 where it is not installed."""

import json
import pathlib
import shutil
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from served import ROOT, Served

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
MARKUP = "<img src=x onerror=\"document.title='broken'\"><b>bold</b> & one two"


def open_browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for switch in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"):
        options.add_argument(switch)
    options.add_argument(f"--user-data-dir={folder}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Served(PROGRAM, "--batch-invariant=on", "--context", "400")
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
        self.browser.get(self.served.url + "/")
        self.until(lambda: "bits" in self.at("model").text)

    def tearDown(self):
        wrong = [entry for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
        self.assertEqual(wrong, [])  # an error, or something that the policy kept out
        self.assertTrue(self.served.rests(60))

    def at(self, name):
        return self.browser.find_element(By.ID, name)

    def until(self, holds, seconds=60):  # under a sanitizer, beside other tests, a reply takes twenty
        return WebDriverWait(self.browser, seconds, 0.05).until(lambda _: holds())

    def script(self, text):
        return self.browser.execute_script(text)

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

    def say(self, words):
        self.at("words").send_keys(words + Keys.ENTER)
        self.until(lambda: self.at("stop").is_displayed() or self.ended())

    def ended(self):
        return self.browser.find_elements(By.CSS_SELECTOR, "article footer") and not self.at("stop").is_displayed()

    def stop(self):
        self.until(lambda: self.browser.find_elements(By.CSS_SELECTOR, "article.assistant")[-1].text.strip())
        self.script("if (running) at('stop').click()")  # from within: words that arrive move the button under a pointer
        self.until(self.ended)

    def counts(self, request=""):
        """The first event of /v1/routing that tells of the request, once it has ended."""
        path = "/v1/routing" + (f"?request={request}" if request else "")
        with urllib.request.urlopen(self.served.url + path, timeout=60) as stream:
            for line in stream:
                event = json.loads(line[6:]) if line.startswith(b"data: ") else None
                if event and (not request or (event["request"] and not event["request"]["running"])):
                    return event
        return None

    def test_a_reply_streams_and_stops(self):
        # The page itself presses the button, however late the driver is: a reply that fills the context leaves no room.
        self.script(
            "new MutationObserver(() => { const all = document.querySelectorAll('article.assistant');"
            " if (running && all[all.length - 1].textContent.length > 60) at('stop').click(); })"
            ".observe(at('talk'), { subtree: true, childList: true, characterData: true });"
        )
        self.say("one two three")
        self.until(self.ended)
        self.assertLess(len(self.browser.find_element(By.CSS_SELECTOR, "article.assistant").text), 1000)
        articles = self.browser.find_elements(By.TAG_NAME, "article")
        self.assertEqual([article.get_attribute("class") for article in articles], ["user", "assistant"])
        self.assertRegex(articles[1].find_element(By.TAG_NAME, "footer").text, r"^[0-9.]+ tokens/s · \d+ \+ \d+ tokens")
        self.say("four")  # with what was said before
        self.until(lambda: len(self.browser.find_elements(By.CSS_SELECTOR, "article footer")) == 2)
        self.assertEqual(self.script("return messages.map((m) => m.role)"), ["user", "assistant"] * 2)
        self.at("clear").click()
        self.assertEqual(self.browser.find_elements(By.TAG_NAME, "article"), [])
        self.assertTrue(self.at("welcome").is_displayed())

    def test_reasoning_is_folded(self):
        # The model of the tests does not reason: what one says comes instead of the server's answer.
        self.script(
            "const real = window.fetch; window.fetch = (path, options) => {"
            " if (path !== '/v1/chat/completions') return real(path, options);"
            " const usage = { prompt_tokens: 3, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 0 } };"
            " const deltas = [{ role: 'assistant', content: '' }, { reasoning: 'first <b>this</b>, ' },"
            "   { reasoning: 'then that' }, { content: 'The answer.' }, {}];"
            " const frame = (delta) => JSON.stringify({ id: 'chatcmpl-stub', choices: [{ index: 0, delta }], usage });"
            " const text = deltas.map((delta) => 'data: ' + frame(delta) + '\\n\\n').join('') + 'data: [DONE]\\n\\n';"
            " return Promise.resolve(new Response(text, { headers: { 'Content-Type': 'text/event-stream' } })); };"
        )
        self.say("why?")
        self.until(self.ended)
        article = self.browser.find_element(By.CSS_SELECTOR, "article.assistant")
        details = article.find_element(By.TAG_NAME, "details")
        self.assertTrue(details.is_displayed())
        self.assertIsNone(details.get_attribute("open"))
        self.assertEqual(details.find_element(By.TAG_NAME, "summary").text, "Reasoning")
        told = details.find_element(By.TAG_NAME, "div")
        self.assertEqual(told.get_property("textContent"), "first <b>this</b>, then that")
        self.assertIn("The answer.", article.text)
        folded = details.get_property("offsetHeight")
        self.picture("reasoning")
        details.find_element(By.TAG_NAME, "summary").click()
        self.assertEqual(details.get_attribute("open"), "true")
        self.assertGreater(details.get_property("offsetHeight"), folded)
        self.assertEqual(self.script("return messages.map((m) => m.content)"), ["why?", "The answer."])

    def test_text_is_no_markup(self):
        self.say(MARKUP)
        self.stop()
        self.assertEqual(self.browser.find_element(By.CSS_SELECTOR, "article.user").text, MARKUP)
        self.assertEqual(self.browser.find_elements(By.CSS_SELECTOR, "article img, article b"), [])
        self.assertEqual(self.browser.title, "Moracle")
        source = (ROOT / "src" / "serve" / "page" / "page.js").read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "location.search"):
            self.assertNotIn(word, source)

    def test_the_map_is_what_the_server_counted(self):
        self.say("one two three four five")
        self.stop()
        request = self.until(lambda: self.script("return latest?.request?.id"))
        self.assertTrue(request.startswith("chatcmpl-"))
        self.assertTrue(self.served.rests(60))
        told = self.counts(request)
        self.until(lambda: self.script("return latest?.request?.running") is False)
        self.until(lambda: self.script("return latest?.all") == told["all"])
        rows = told["request"]["counts"]
        self.assertEqual(self.script("return latest.request.counts"), rows)
        self.assertEqual((len(rows), len(rows[0])), (told["layers"], told["experts"]))
        self.assertEqual(len({sum(row) for row in rows if any(row)}), 1)  # each layer sees each token
        for one, all_ in zip(sum(rows, []), sum(told["all"], [])):
            self.assertLessEqual(one, all_)
        # The brightest pixel is the busiest expert's, the coldest one's is the sheet's.
        pixels = self.script(
            "const c = at('request-map'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "return [c.width, c.height, Array.from(d), colours()]"
        )
        self.assertEqual(pixels[:2], [told["experts"], told["layers"]])
        flat = sum(rows, [])
        hottest = flat.index(max(flat))
        self.assertEqual(pixels[2][4 * hottest : 4 * hottest + 3], pixels[3][2])
        if 0 in flat:
            self.assertEqual(pixels[2][4 * flat.index(0) : 4 * flat.index(0) + 3], pixels[3][0])
        self.assertIn(f"{sum(count > 0 for count in flat)} of {len(flat)} experts", self.at("request-words").text)

    def test_decisions_have_every_reason(self):
        self.at("show-decisions").click()
        self.until(lambda: self.browser.find_elements(By.CSS_SELECTOR, "#table td"))
        text = self.at("table").text
        layers = self.served.get("/v1/decision")["layers"]
        self.assertEqual(len(self.browser.find_elements(By.CSS_SELECTOR, "#table td:last-child.serves")), len(layers))
        for layer in layers:
            self.assertIn(", ".join(layer["names"]), text)
            for backend in layer.get("trace", []):
                self.assertIn(backend["backend"], text)
                for reason in backend.get("reasons", []):
                    self.assertIn(f"{reason['rule']}: wanted {reason['wanted']}, found {reason['found']}", text)
        self.picture("decisions")

    def test_nothing_foreign_runs(self):
        self.assertFalse([e for e in self.browser.get_log("browser") if e["level"] == "SEVERE"])
        self.script(
            "const s = document.createElement('script'); s.textContent = 'window.foreign = 1'; document.body.append(s);"
        )
        self.assertIsNone(self.script("return window.foreign ?? null"))
        told = self.browser.get_log("browser")  # since it was last asked
        self.assertTrue(any("Content Security Policy" in entry["message"] for entry in told), told)

    def test_it_looks_well_everywhere(self):
        for name, width, height, dark in (
            ("light", 1200, 800, False),
            ("dark", 1200, 800, True),
            ("phone", 390, 844, False),
            ("phone-dark", 390, 844, True),
        ):
            self.look(width, height, dark)
            self.browser.get(self.served.url + "/")
            self.until(lambda: "bits" in self.at("model").text)
            self.picture(name + "-welcome")
            self.say("Which experts answer this?")
            time.sleep(0.8)
            self.stop()
            self.until(lambda: self.script("return latest?.request?.running") is False)
            self.picture(name)
            wide = self.script("return document.documentElement.scrollWidth")
            self.assertLessEqual(wide, width, name)
            background = self.script("return getComputedStyle(document.body).backgroundColor")
            self.assertEqual(background == "rgb(18, 21, 24)", dark)
            self.at("show-experts").click()
            self.assertTrue(self.at("all-map").is_displayed())
            self.assertFalse(self.at("words").is_displayed())
            self.picture(name + "-experts")
            self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), width, name)


if __name__ == "__main__":
    unittest.main(verbosity=1)
