#!/usr/bin/env python3
"""Replies that are held to forms, in all ways that clients have replies: held_test.py PROGRAM. Standard library only."""

import json
import re
import sys
import threading
import unittest
import urllib.request

from served import Served

PROGRAM = sys.argv.pop(1)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 20, "maxLength": 60},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 999}, "minItems": 2,
                  "maxItems": 6},
        "kind": {"enum": ["red", "green", "blue"]},
    },
    "required": ["name", "sizes", "kind"],
}
HELD = {"structured_outputs": {"json": SCHEMA}, "max_tokens": 250, "temperature": 1.2, "return_token_ids": True}


def body(number, **extra):
    prompt = [5 + number % 40] * (30 + number) if number % 2 else [7] * 64 + [number]
    return {"prompt": prompt, "seed": number, **HELD, **extra}


def meets(text):
    value = json.loads(text)
    return (20 <= len(value["name"]) <= 60 and 2 <= len(value["sizes"]) <= 6
            and all(1 <= size <= 999 for size in value["sizes"]) and value["kind"] in ("red", "green", "blue"))


class Held(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Served(PROGRAM)
        code, answer = cls.post(cls.served, body(0))
        if code == 400 and answer["error"]["code"] == "unsupported":
            cls.tearDownClass()
            raise unittest.SkipTest("built without xgrammar")

    @classmethod
    def tearDownClass(cls):
        cls.served.__exit__()

    @staticmethod
    def post(served, asked):
        return served.post("/v1/completions", asked)

    def choices(self, served, asked):
        code, answer = self.post(served, asked)
        self.assertEqual(code, 200, answer)
        return answer["choices"]

    def crowd(self, served, bodies):
        replies = [None] * len(bodies)

        def ask(at):
            replies[at] = self.choices(served, bodies[at])

        threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return replies

    def test_replies_that_give_way_and_come_back_are_the_same(self):
        bodies = [body(number, n=2 if number == 3 else 1) for number in range(12)]
        alone = [self.choices(self.served, asked) for asked in bodies]
        for choices in alone:
            for choice in choices:
                self.assertEqual(choice["finish_reason"], "stop")
                self.assertTrue(meets(choice["text"]), choice["text"])
        self.assertNotEqual(alone[3][0]["token_ids"], alone[3][1]["token_ids"])
        with Served(PROGRAM, "--kv-memory", "0.0007") as small:
            crowd = self.crowd(small, bodies)
            metrics = small.get("/metrics")
        given_way = re.search(r"^vllm:num_preemptions_total\{.*\} (\S+)$", metrics, re.M)
        self.assertGreater(float(given_way[1]), 0)
        for one, other in zip(alone, crowd):
            self.assertEqual([c["token_ids"] for c in one], [c["token_ids"] for c in other])

    def test_a_stream_is_the_whole_reply(self):
        [whole] = self.choices(self.served, body(1))
        data = json.dumps({**body(1), "stream": True}).encode()
        asked = urllib.request.Request(self.served.url + "/v1/completions", data, {"Content-Type": "application/json"})
        text, reasons, ids = "", [], []
        with urllib.request.urlopen(asked, timeout=120) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["text"]
                    ids += choice.get("token_ids") or []
                    reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
        self.assertEqual((text, ids, reasons), (whole["text"], whole["token_ids"], ["stop"]))

    def test_logprobs_are_of_all_tokens(self):
        asked = body(2, logprobs=3)
        [reply] = self.choices(self.served, asked)
        ids = reply["token_ids"]
        again = {"prompt": asked["prompt"] + ids, "echo": True, "max_tokens": 1, "logprobs": 0}
        [read] = self.choices(self.served, again)
        start = len(asked["prompt"])
        scores = read["logprobs"]["token_logprobs"][start:start + len(ids)]
        for held, free in zip(reply["logprobs"]["token_logprobs"], scores, strict=True):
            self.assertAlmostEqual(held, free, places=4)
        self.assertEqual([i for i in reply["token_ids"]], [i for i in self.choices(self.served, body(2))[0]["token_ids"]])

    def test_stops_and_limits_cut_what_is_held(self):
        [whole] = self.choices(self.served, body(4))
        [stopped] = self.choices(self.served, body(4, stop=['"sizes"']))
        self.assertEqual(stopped["finish_reason"], "stop")
        self.assertEqual(stopped["text"], whole["text"].split('"sizes"')[0])
        [cut] = self.choices(self.served, body(4, max_tokens=7))
        self.assertEqual((cut["finish_reason"], cut["token_ids"]), ("length", whole["token_ids"][:7]))
        [complete] = self.choices(self.served, body(4, min_tokens=240))
        self.assertEqual((complete["finish_reason"], complete["token_ids"]), ("stop", whole["token_ids"]))

    def test_what_is_hard_to_compile_holds_up_nobody(self):
        ended = []

        def ask(name, asked):
            self.post(self.served, asked)
            ended.append(name)

        # One after another on the thread that compiles, while free replies take steps.
        bombs = [{"guided_json": {"type": "array", "items": {"enum": [f"{i}-{j}" for j in range(3000)]},
                                  "maxItems": 90 + i}, "prompt": "a", "max_tokens": 1} for i in range(8)]
        threads = [threading.Thread(target=ask, args=("bomb", bomb)) for bomb in bombs]
        for thread in threads:
            thread.start()
        for _ in range(3):
            ask("free", {"prompt": [9] * 40, "max_tokens": 2, "ignore_eos": True})
        for thread in threads:
            thread.join()
        self.assertEqual(ended[-1], "bomb")
        self.assertEqual(ended.count("free"), 3)


if __name__ == "__main__":
    unittest.main()
