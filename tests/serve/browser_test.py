#!/usr/bin/env python3
"""The page in Chromium: browser_test.py PROGRAM [FOLDER for screenshots]. Exit code 77 where it is not installed."""

import json
import pathlib
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from browser import By, PageTest
from browser_markdown import Markdown  # noqa: F401 (unittest finds it here)


class Chat(PageTest):
    def test_a_reply_streams_and_stops(self):
        # The page itself presses the button, however late the driver is: a reply that fills the context leaves no room.
        self.script(
            "new MutationObserver(() => { const last = document.querySelector('article.assistant:last-child .text');"
            " if (last?.textContent.length > 60) document.getElementById('stop').click(); })"
            ".observe(document.getElementById('messages'), { subtree: true, childList: true, characterData: true });"
        )
        ends_not = '{ "ignore_eos": true }'
        self.module("conversations.js", f"m.current().settings.more = '{ends_not}'")
        self.ask("one two three")
        self.assertLess(len(self.all("article.assistant")[0].text), 1000)
        self.assertEqual(self.script("return Array.from(document.querySelectorAll('article'), (a) => a.className)"),
                         ["user", "assistant"])
        footer = self.all("article.assistant footer")[0].text
        self.assertRegex(footer, r"^[0-9.]+ tokens/s · \d+ \+ \d+ tokens.* · stopped$")
        prompt, completion = self.messages()[-1]["usage"]["prompt"], self.messages()[-1]["usage"]["completion"]
        self.assertEqual(self.at("context-words").text, f"{prompt + completion} of 400 tokens")
        self.ask("four")  # with what was said before
        self.assertEqual([message["role"] for message in self.messages()], ["user", "assistant"] * 2)
        self.assertGreater(self.messages()[-1]["usage"]["prompt"], prompt + completion)

    def test_reasoning_calls_and_json_are_folded(self):
        self.replies(
            {"role": "assistant", "content": ""},
            {"reasoning": "first <b>this</b>, "},
            {"reasoning": "then that"},
            {"content": "The answer."},
            {"tool_calls": [{"index": 0, "id": "c0", "function": {"name": "f<b>", "arguments": ""}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "<b>Os'}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": 'lo</b>", "big": 12345678901234567890}'}}]},
        )
        self.ask("why?")
        reasoning, call = (self.all(f"article.assistant details.{name}")[0] for name in ("reasoning", "call"))
        self.assertEqual(reasoning.find_element(By.TAG_NAME, "summary").text, "Reasoning")
        self.assertEqual(call.find_element(By.TAG_NAME, "summary").text, "Calls f<b>")
        self.assertEqual(self.texts("details.reasoning .plain"), ["first <b>this</b>, then that"])
        shown = self.texts("details.call code")[0]
        self.assertEqual(shown, '{\n  "city": "<b>Oslo</b>",\n  "big": 12345678901234567890\n}')
        self.assertIn("The answer.", self.all("article.assistant")[0].text)
        self.picture("folded")
        for details in (reasoning, call):
            self.assertIsNone(details.get_attribute("open"))
            folded = details.get_property("offsetHeight")
            details.find_element(By.TAG_NAME, "summary").click()
            self.assertEqual(details.get_attribute("open"), "true")
            self.assertGreater(details.get_property("offsetHeight"), folded)
        self.picture("unfolded")
        # What is said next is the call's result.
        self.assertEqual(self.at("words").get_attribute("placeholder"), "Result of f<b>")
        self.replies({"content": '{"degrees": [1, {}, []], "text": "a\\"{b}"}'})
        self.ask('{"degrees": 3}')
        said = self.sent()[-1]["messages"]
        self.assertEqual([message["role"] for message in said], ["user", "assistant", "tool"])
        self.assertEqual(said[2]["tool_call_id"], said[1]["tool_calls"][0]["id"])
        self.assertEqual(said[1]["reasoning"], "first <b>this</b>, then that")
        summaries = [element.text for element in self.all("details.json summary") if element.is_displayed()]
        self.assertEqual(summaries, ["Result of f<b>", "JSON"])
        shown = self.texts("article:last-child details.json code")[0]
        self.assertEqual(shown, '{\n  "degrees": [\n    1,\n    {},\n    []\n  ],\n  "text": "a\\"{b}"\n}')
        self.assertEqual(self.at("words").get_attribute("placeholder"), "Ask something")

    def test_messages_are_copied_edited_regenerated_and_deleted(self):
        self.replies_text("first")
        self.ask("a")
        self.replies_text("second")
        self.ask("b")
        self.press("article.assistant .copy")
        self.until(lambda: self.texts("article.assistant .copy")[-1] == "Copied")
        copied = self.browser.execute_async_script(
            "const done = arguments[0]; navigator.clipboard.readText().then(done, (e) => done(String(e)))"
        )
        self.assertEqual(copied, "second")
        self.replies_text("third")
        self.press("article.assistant .regenerate")
        self.until(lambda: self.ended() and self.texts("article.assistant .text")[-1] == "third\n")
        self.assertEqual([m["content"] for m in self.sent()[-1]["messages"]], ["a", "first", "b"])
        # An edited question is answered anew, and what came after it is gone.
        self.replies_text("fourth")
        self.press("article.user .edit", 0)
        field = self.all("article.user .editing textarea")[0]
        field.clear()
        field.send_keys("c\nd")
        self.press("article.user .cancel")
        self.assertEqual(self.texts("article.user .text"), ["a", "b"])
        self.press("article.user .edit", 0)
        field = self.all("article.user .editing textarea")[0]
        self.assertEqual(field.get_property("value"), "a")
        field.clear()
        field.send_keys("c")
        self.press("article.user .save")
        self.until(lambda: self.ended() and self.texts("article.assistant .text")[-1] == "fourth\n")
        self.assertEqual([m["content"] for m in self.messages()], ["c", "fourth"])
        self.assertEqual([m["content"] for m in self.sent()[-1]["messages"]], ["c"])
        # An edited reply stays; a deleted one leaves its question, which can be answered again.
        requests = len(self.sent())
        self.press("article.assistant .edit")
        self.all("article.assistant .editing textarea")[0].send_keys(" and more")
        self.press("article.assistant .save")
        self.assertEqual(self.messages()[-1]["content"], "fourth and more")
        self.replies_text(" of it")
        self.press("article.assistant .go-on")
        self.until(lambda: self.ended() and self.messages()[-1]["content"] == "fourth and more of it")
        body = self.sent()[-1]
        self.assertEqual([m["content"] for m in body["messages"]], ["c", "fourth and more"])
        self.assertEqual((body["continue_final_message"], body["add_generation_prompt"]), (True, False))
        self.replies()
        self.press("article.assistant .go-on")
        self.until(lambda: self.messages()[-1].get("usage", {}).get("prompt", 0) > 3 and self.ended())
        self.assertTrue(self.messages()[-1]["content"].startswith("fourth and more of it"))
        self.assertNotIn("error", self.messages()[-1])
        requests += 2
        self.press("article.assistant .erase")
        self.assertEqual([m["content"] for m in self.messages()], ["c"])
        self.assertEqual(len(self.sent()), requests)
        self.replies_text("fifth")
        self.press("article.user .regenerate")
        self.until(lambda: self.ended() and len(self.texts("article")) == 2)
        self.press("article.user .erase")
        self.assertEqual(self.messages(), [])
        self.assertTrue(self.at("welcome").is_displayed())

    def test_an_error_is_shown_and_not_sent(self):
        self.at("show-settings").click()
        self.until(lambda: self.all("#sampling input"))
        self.at("more").send_keys('{"tfs_z": 2}')
        self.at("close-settings").click()
        self.ask("a")
        self.assertIn("tfs_z", self.texts("article.assistant .wrong")[0])
        self.browser.get_log("browser")  # which has the status 400
        self.at("show-settings").click()
        self.at("more").clear()
        self.at("more").send_keys("[1")
        self.at("system").click()
        self.assertIn("JSON object", self.at("settings-say").text)
        self.at("close-settings").click()
        self.replies_text("b")
        self.ask("c")
        self.assertIn("JSON object", self.texts("article.assistant .wrong")[-1])
        self.assertEqual(self.sent(), [])

    def test_settings_are_the_servers_fields(self):
        fields = self.served.get("/openapi.json")["components"]["schemas"]["ChatRequest"]["properties"]
        marked = (name for name in fields if "x-sampling" in fields[name])
        wanted = sorted(marked, key=lambda name: fields[name]["x-sampling"])
        self.assertEqual(wanted[0], "temperature")
        self.at("show-settings").click()
        self.until(lambda: self.all("#sampling input"))
        self.assertEqual([field.get_attribute("name") for field in self.all("#sampling input")], wanted)
        for name in wanted:
            self.assertIn(fields[name]["description"], self.at("sampling").text)
        self.picture("settings")

        def enter(name, text):
            field = self.all(f"#sampling input[name={name}]")[0]
            field.clear()
            field.send_keys(text)
            self.at("system").click()

        for name, value in (("temperature", "0.5"), ("seed", "7"), ("max_tokens", "9"),
                            ("top_k", "1.5"), ("top_p", "0"), ("min_p", "2")):  # none of these three
            enter(name, value)
        self.assertEqual(self.module("conversations.js", "m.current().settings.sampling"),
                         {"temperature": 0.5, "seed": 7, "max_tokens": 9})
        self.at("system").send_keys("Be brief.")
        self.at("more").send_keys('{"stop": ["zz"], "messages": []}')
        self.at("close-settings").click()
        self.replies()
        self.ask("one two three")
        body = self.sent()[0]
        self.assertEqual([body[name] for name in ("temperature", "seed", "max_tokens", "stop")], [0.5, 7, 9, ["zz"]])
        self.assertEqual([m["role"] for m in body["messages"]], ["system", "user"])
        self.assertLessEqual(self.messages()[-1]["usage"]["completion"], 9)
        self.assertIn(self.messages()[-1]["finish"], ("length", "stop"))
        first = self.messages()[-1]["content"]
        self.press("article.assistant .regenerate")
        self.until(lambda: len(self.sent()) == 2 and self.ended())
        self.assertEqual(self.messages()[-1]["content"], first)  # the same seed and bits
        self.at("new-chat").click()
        self.assertEqual(self.module("conversations.js", "m.current().settings.sampling.seed"), 7)
        self.at("show-settings").click()
        self.at("reset-settings").click()
        settings = self.module("conversations.js", "m.current().settings")
        self.assertEqual(settings, {"system": "", "sampling": {}, "more": ""})
        self.at("close-settings").click()


class Conversations(PageTest):
    def titles(self):
        return self.texts("#conversations .open")

    def accept(self, text):
        alert = self.until(lambda: self.browser.switch_to.alert)
        self.assertIn(text, alert.text)
        alert.accept()

    def two(self):
        self.replies_text("an *answer*")
        self.ask("first <b>question</b>")
        self.at("new-chat").click()
        self.assertEqual(self.texts("article"), [])
        self.replies_text("another")
        self.ask("second question")

    def test_they_outlive_the_page(self):
        self.two()
        titles = ["second question", "first <b>question</b>"]
        self.assertEqual(self.titles(), titles)
        self.reopen()
        self.assertEqual(self.titles(), titles)
        self.assertEqual(self.texts("article .text"), ["second question", "another\n"])
        self.press("#conversations .open", 1)
        self.assertEqual(self.texts("article.user .text"), ["first <b>question</b>"])
        self.press("#conversations .erase", 0)
        self.accept("second question")
        self.assertEqual(self.titles(), titles[1:])
        self.press("#conversations .rename", 0)
        alert = self.browser.switch_to.alert
        alert.send_keys("a name")
        alert.accept()
        self.reopen()
        self.assertEqual(self.titles(), ["a name"])

    def test_a_reply_under_way_is_kept(self):
        self.replies({"content": "word "}, endless=True)
        self.say("a question")
        self.until(lambda: len(self.messages()[-1]["content"]) > 75)  # after a second and a half
        self.open()
        self.assertTrue(self.messages()[-1]["content"].startswith("word word word"))
        self.assertEqual([m["role"] for m in self.messages()], ["user", "assistant"])
        self.assertTrue(self.texts("footer")[-1].endswith("not finished"))

    def test_a_browser_that_keeps_nothing_is_told_of(self):
        script = "Object.defineProperty(window, 'indexedDB', { value: { open() { throw new Error('no'); } } })"
        added = self.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        try:
            self.open()
            self.replies_text("an answer")
            self.ask("a question")
            self.assertEqual(self.titles(), ["a question"])
            self.assertIn("keeps nothing", self.at("kept").text)
        finally:
            self.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    def test_another_can_be_read_while_a_reply_is_written(self):
        self.replies_text("an answer")
        self.ask("first")
        self.at("new-chat").click()
        self.replies()
        self.say("one two three")
        self.press("#conversations .open", 1)
        self.assertEqual(self.texts("article.user .text"), ["first"])
        self.assertTrue(self.at("send").is_displayed())
        self.press("#conversations .open", 0)
        self.until(self.ended)
        self.assertEqual(self.titles(), ["one two three", "first"])
        self.assertTrue(self.messages()[-1]["content"])

    def test_they_go_to_files_and_come_back(self):
        self.two()
        before = self.module("conversations.js", "m.list()")
        self.at("export").click()
        downloads = pathlib.Path(self.folder.name) / "downloads"
        self.until(lambda: list(downloads.glob("*.json")))
        file = next(downloads.glob("*.json"))
        self.assertEqual(json.loads(file.read_text())["conversations"], before)
        self.at("import-file").send_keys(str(file))  # what is here already
        self.until(lambda: self.at("list-says").text == "0 conversations added.")
        self.at("clear").click()
        self.accept("all conversations")
        self.assertEqual(self.titles(), [])
        self.reopen()
        self.assertEqual(self.titles(), [])
        self.at("import-file").send_keys(str(file))
        self.until(lambda: self.at("list-says").text == "2 conversations added.")
        self.assertEqual(self.module("conversations.js", "m.list()"), before)
        self.reopen()
        self.assertEqual(self.module("conversations.js", "m.list()"), before)

    def test_files_may_hold_anything(self):
        one = {"id": "<i>", "title": "<img src=x onerror=window.broken=1>", "changed": 1, "messages": [
            {"role": "assistant", "content": "<script>window.broken=1</script>", "calls": [{"id": "1", "name": "<b>",
             "arguments": "{\"a\": \"<img src=x onerror=window.broken=1>\"}"}], "other": {"role": "user"}}]}
        file = pathlib.Path(self.folder.name) / "file.json"

        def read(value):
            file.write_text(value if isinstance(value, str) else json.dumps(value))
            self.script("document.getElementById('list-says').textContent = ''")
            self.at("import-file").send_keys(str(file))
            return self.until(lambda: self.at("list-says").text)

        def changed(**members):
            return {"moracle": 1, "conversations": [{**one, **members}]}

        for bad in ("", "{", "[]", "null", "1", {"moracle": 2}, {"moracle": 1}, {"moracle": 1, "conversations": {}},
                    {"moracle": 1, "conversations": [None]}, changed(id=1), changed(title=None), changed(changed="x"),
                    changed(messages={}), changed(messages=[{"role": "system", "content": "x"}]),
                    changed(messages=[{"role": "user", "content": {}}]), changed(settings=[1]),
                    changed(settings={"more": 1}),
                    changed(settings={"sampling": {"top_k": "1"}}),
                    changed(messages=[{"role": "assistant", "content": "", "calls": [{"id": {}}]}])):
            self.assertIn("Not read: ", read(bad), bad)
        self.assertEqual(self.module("conversations.js", "m.list()"), [])
        self.assertEqual(read(changed()), "1 conversation added.")
        self.assertEqual(self.titles(), [one["title"]])
        self.assertNotIn("other", self.messages()[0])
        self.assertEqual(self.all("article :is(script, img, b), #conversations :is(img, i)"), [])
        self.assertIsNone(self.script("return window.broken ?? null"))


class Views(PageTest):
    def counts(self, request=""):
        """The first event of /v1/routing that tells of the request, once it has ended."""
        path = "/v1/routing" + (f"?request={request}" if request else "")
        with urllib.request.urlopen(self.served.url + path, timeout=60) as stream:
            for line in stream:
                event = json.loads(line[6:]) if line.startswith(b"data: ") else None
                if event and (not request or (event["request"] and not event["request"]["running"])):
                    return event
        return None

    def latest(self, path):
        return self.module("experts.js", "m.latestEvent()" + path)

    def test_the_map_is_what_the_server_counted(self):
        self.say("one two three four five")
        self.stop()
        request = self.until(lambda: self.latest("?.request?.id"))
        self.assertTrue(request.startswith("chatcmpl-"))
        self.assertTrue(self.served.rests(60))
        told = self.counts(request)
        self.until(lambda: self.latest("?.request?.running") is False)
        self.until(lambda: self.latest("?.all") == told["all"])
        rows = told["request"]["counts"]
        self.assertEqual(self.latest(".request.counts"), rows)
        self.assertEqual((len(rows), len(rows[0])), (told["layers"], told["experts"]))
        self.assertEqual(len({sum(row) for row in rows if any(row)}), 1)  # each layer sees each token
        for one, all_ in zip(sum(rows, []), sum(told["all"], [])):
            self.assertLessEqual(one, all_)
        # The brightest pixel is the busiest expert's, the coldest one's is the sheet's.
        width, height, pixels = self.script(
            "const c = document.getElementById('request-map');"
            "return [c.width, c.height, Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)]"
        )
        cold, _, hot = self.module("experts.js", "m.colours()")
        self.assertEqual([width, height], [told["experts"], told["layers"]])
        flat = sum(rows, [])
        hottest = flat.index(max(flat))
        self.assertEqual(pixels[4 * hottest : 4 * hottest + 3], hot)
        if 0 in flat:
            self.assertEqual(pixels[4 * flat.index(0) : 4 * flat.index(0) + 3], cold)
        self.assertIn(f"{sum(count > 0 for count in flat)} of {len(flat)} experts", self.at("request-words").text)

    def test_slots_are_told_where_there_are_some(self):
        def words(status):
            return self.module("experts.js", f"m.slotWords({json.dumps(status)})")

        self.assertEqual(words({"prompt_tokens": 3, "generated_tokens": 1}), "")
        slots = {"slots": 40, "experts": 96, "uses": 200, "hits": 150, "reads": 50, "read_bytes": 6 << 20}
        self.assertEqual(words({"prompt_tokens": 3, "generated_tokens": 1, "experts": slots}),
                         "40 of 96 experts have room in memory · 75 % found there · 50 read · 1.5 MiB a token")
        self.assertEqual(self.at("slots-words").text, "")

    def test_decisions_have_every_reason(self):
        self.at("show-decisions").click()
        self.until(lambda: self.texts("#table section"))
        layers = self.served.get("/v1/decision")["layers"]
        decisions = {json.dumps({name: layer[name] for name in layer if name != "names"}) for layer in layers}
        self.assertEqual(len(self.texts("#table .winner")), len(decisions))
        for layer in layers:
            title = next(title for title in self.script(
                "return Array.from(document.querySelectorAll('#table h3'), (e) => e.title.split('\\n'))")
                if layer["names"][0] in title)
            self.assertLessEqual(set(layer["names"]), set(title))
        headings = "\n".join(self.texts("#table h3"))
        for words in ("q_proj, o_proj", "of all 3 layers", "experts of all 3 layers", "lm_head"):
            self.assertIn(words, headings)
        self.picture("decisions")
        text = "\n".join(self.texts("#table section"))
        for layer in layers:
            self.assertIn(layer["backend"] + " serves: ", text)
            for card in layer.get("trace", []):
                self.assertIn(card["card"], text)
                for reason in card.get("reasons", []):
                    self.assertIn(self.words(reason), text)

    @staticmethod
    def words(reason):
        """What tells of a reason: of two lists of features, those that are missing."""
        wanted, found = reason["wanted"], reason["found"]
        if reason["rule"] == "device":
            if " with " in wanted and " with " in found:
                there = found.split(" with ")[1].split("+")
                return "lacks " + ", ".join(one for one in wanted.split(" with ")[1].split("+") if one not in there)
            return "needs " + wanted
        if reason["rule"] == "not_built":
            return "is not in this build" + ("" if found == "none" else f" ({found})")
        return f"{reason['rule'].replace('_', ' ')}: wants {wanted}, not {found}"

    def test_headings_are_short(self):
        def heading(names, total):
            return self.module("decisions.js", f"m.heading({json.dumps(names)}, {total})")

        def modules(path, layers):
            return [f"model.layers.{layer}.{path}" for layer in layers]

        self.assertEqual(heading(modules("self_attn.q_proj", range(4)) + modules("self_attn.o_proj", range(4)), 4),
                         "q_proj, o_proj of all 4 layers")
        self.assertEqual(heading(modules("mlp.experts", [1, 2, 3, 7, 9, 10]), 11), "experts of layers 1–3, 7, 9–10")
        self.assertEqual(heading(modules("mlp.down_proj", [0]) + ["lm_head"], 9), "down_proj of layer 0; lm_head")
        self.assertEqual(heading(modules("mlp.shared_experts.up_proj", [1, 2]) + modules("mlp.up_proj", [0]), 3),
                         "shared_experts.up_proj of layers 1–2; up_proj of layer 0")
        self.assertEqual(heading(modules("self_attn.q_proj", [0]) + modules("linear_attn.q_proj", [1]), 2),
                         "self_attn.q_proj of layer 0; linear_attn.q_proj of layer 1")
        wanted, found = "cpu with avx512+avx512_bf16+amx_tile", "cpu x86_64 with avx2+avx512"
        reason = {"rule": "device", "wanted": wanted, "found": found}
        words = self.module("decisions.js", f"m.reasonWords({json.dumps(reason)})")
        self.assertEqual(words, "lacks avx512_bf16, amx_tile")

    def test_it_looks_well_everywhere(self):
        for name, width, height, dark in (
            ("light", 1200, 800, False),
            ("dark", 1200, 800, True),
            ("phone", 390, 844, False),
            ("phone-dark", 390, 844, True),
        ):
            self.look(width, height, dark)
            self.open()
            self.press("#new-chat")
            self.picture(name + "-welcome")
            self.say("Which experts answer this?")
            time.sleep(0.8)
            self.stop()
            self.until(lambda: self.latest("?.request?.running") is False)
            self.picture(name)
            wide = "return document.documentElement.scrollWidth"
            self.assertLessEqual(self.script(wide), width, name)
            background = self.script("return getComputedStyle(document.body).backgroundColor")
            self.assertEqual(background == "rgb(18, 21, 24)", dark)
            if width < 600:
                self.assertFalse(self.at("list").is_displayed())
                self.at("show-list").click()
                self.assertTrue(self.at("new-chat").is_displayed())
                self.picture(name + "-list")
                self.at("show-list").click()
            self.at("show-experts").click()
            self.assertTrue(self.at("all-map").is_displayed())
            self.assertFalse(self.at("words").is_displayed())
            self.picture(name + "-experts")
            self.assertLessEqual(self.script(wide), width, name)
            self.at("show-decisions").click()
            self.until(lambda: self.texts("#table section"))
            self.picture(name + "-decisions")
            self.assertLessEqual(self.script(wide), width, name)


class Keys(PageTest):
    KEY = "secret-of-the-page"

    def open(self):
        self.browser.get(self.served.url + "/")
        self.until(lambda: self.at("key").is_displayed())
        self.browser.get_log("browser")  # which has the status 401
        self.at("key").send_keys(self.KEY + "\n")
        self.until(lambda: "bits" in self.at("model").text)

    def test_a_key_is_asked_for_and_kept_nowhere(self):
        self.ask("one two")
        self.assertTrue(self.messages()[-1]["content"])
        self.at("show-decisions").click()
        self.until(lambda: self.texts("#table section"))
        kept = self.script("return [localStorage.length, sessionStorage.length, document.cookie]")
        self.assertEqual(kept, [0, 0, ""])
        self.assertNotIn(self.KEY, self.module("conversations.js", "m.exportText()"))
        self.look(390, 844, dark=False)
        self.browser.refresh()
        self.until(lambda: self.at("key").is_displayed())
        self.picture("phone-key")
        self.assertEqual(self.at("key").get_property("value"), "")
        self.browser.get_log("browser")


if __name__ == "__main__":
    unittest.main(verbosity=1)
