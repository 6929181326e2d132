#!/usr/bin/env python3
"""Published clients against `moracle serve`: clients_test.py PROGRAM. Exit code 77 where they are not installed."""

import collections
import json
import math
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from served import MODEL, Served

try:
    import anthropic
    import openai
    from langchain_openai import ChatOpenAI
except ImportError:
    print("anthropic, openai and langchain-openai are not installed: scripts/setup clients")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
ASKED = [{"role": "user", "content": "one two three"}]


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Served(PROGRAM, "--batch-invariant=on")
        cls.client = openai.OpenAI(base_url=cls.served.url + "/v1", api_key="none", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        code = cls.served.end()
        cls.served.__exit__()
        assert code == 0, code

    def chat(self, **more):
        return self.client.chat.completions.create(
            **{"model": self.model, "messages": ASKED, "max_tokens": 12, "seed": 5, **more}
        )

    def test_chat(self):
        reply = self.chat()
        self.assertEqual(reply.object, "chat.completion")
        self.assertEqual(reply.usage.completion_tokens, 12)
        self.assertEqual(reply.choices[0].finish_reason, "length")
        self.assertTrue(reply.system_fingerprint.startswith("fp_"))
        self.assertEqual(reply.choices[0].message.content, self.chat().choices[0].message.content)
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)

    def test_a_drawn_seed_reproduces_its_reply(self):
        first = self.client.chat.completions.create(model=self.model, messages=ASKED, max_tokens=12)
        again = self.chat(seed=first.seed)
        self.assertEqual(first.choices[0].message.content, again.choices[0].message.content)

    def test_streams(self):
        whole = self.chat(n=2, logprobs=True, top_logprobs=3)
        texts, usage = ["", ""], None
        for chunk in self.chat(
            n=2, stream=True, stream_options={"include_usage": True}, logprobs=True, top_logprobs=3
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts, [choice.message.content for choice in whole.choices])
        self.assertEqual(usage, whole.usage)

    def test_responses(self):
        asked = {"model": self.model, "input": ASKED, "max_output_tokens": 12, "extra_body": {"seed": 5}}
        whole = self.client.responses.create(**asked, instructions="Be brief.", store=False)
        self.assertEqual((whole.object, whole.status), ("response", "incomplete"))
        self.assertEqual(whole.incomplete_details.reason, "max_output_tokens")
        self.assertEqual(whole.usage.output_tokens, 12)
        again = self.client.responses.create(**asked, instructions="Be brief.")
        self.assertEqual(whole.output_text, again.output_text)
        text = ""
        with self.client.responses.stream(**asked, instructions="Be brief.") as stream:
            for number, event in enumerate(stream):
                self.assertEqual(getattr(event, "sequence_number", number), number)
                text += event.delta if event.type == "response.output_text.delta" else ""
        self.assertEqual(text, whole.output_text)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.responses.create(**asked, store=True)
        self.assertEqual(refused.exception.param, "store")

    def test_anthropic_messages(self):
        with anthropic.Anthropic(base_url=self.served.url, api_key="none", max_retries=0) as client:
            asked = {"model": self.model, "messages": ASKED, "max_tokens": 12, "extra_body": {"seed": 5}}
            whole = client.messages.create(**asked)
            self.assertEqual((whole.type, whole.role, whole.stop_reason), ("message", "assistant", "max_tokens"))
            self.assertEqual(whole.usage.output_tokens, 12)
            self.assertEqual("".join(block.text for block in whole.content), self.chat().choices[0].message.content)
            with client.messages.stream(**asked) as stream:
                self.assertEqual("".join(stream.text_stream), "".join(block.text for block in whole.content))
                self.assertEqual(stream.get_final_message().usage.output_tokens, 12)
            counted = client.beta.messages.count_tokens(model=self.model, messages=ASKED)  # asks with ?beta=true
            usage = whole.usage
            self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
            with self.assertRaises(anthropic.BadRequestError) as refused:
                client.messages.create(**{**asked, "messages": [{"role": "user", "content": [image]}]})
            self.assertEqual(refused.exception.body["error"]["param"], "messages[0].content[0].type")
            with self.assertRaises(anthropic.NotFoundError):
                client.messages.create(**{**asked, "model": "another"})

    def test_cancels(self):
        stream = self.chat(stream=True, max_tokens=1500, extra_body={"ignore_eos": True})
        next(stream)
        stream.close()
        self.assertTrue(self.served.rests())

    def test_errors_are_typed(self):
        with self.assertRaises(openai.NotFoundError):
            self.chat(model="gpt-4")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
        self.assertEqual(raised.exception.param, "tools")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(max_tokens=100000)
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(extra_body={"guided_json": {"not": {"type": "null"}}})
        self.assertEqual(raised.exception.param, "guided_json/not")
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.model, messages=ASKED, max_tokens=2, extra_body={"nonsense": 1}
        )
        self.assertEqual(raw.headers["x-moracle-ignored"], "nonsense")

    def test_langchain(self):
        model = ChatOpenAI(base_url=self.served.url + "/v1", api_key="none", model=self.model, max_tokens=8, seed=5)
        whole = model.invoke("one two three")
        self.assertEqual(whole.usage_metadata["output_tokens"], 8)
        self.assertEqual("".join(piece.text for piece in model.stream("one two three")), whole.text)

    def test_log_likelihoods_are_those_of_eval(self):
        words = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. " * 6
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(words)
            file.flush()
            output = subprocess.run(
                [PROGRAM, "eval", str(MODEL), "--text", file.name, "--window", "2048", "--threads", "2", "--json"]
                + ["--batch-invariant"],
                capture_output=True, check=True, text=True,
            ).stdout  # fmt: skip
        wanted = json.loads(output)
        reply = self.client.completions.create(model=self.model, prompt=words, max_tokens=0, echo=True, logprobs=1)
        scores = reply.choices[0].logprobs
        self.assertIsNone(scores.token_logprobs[0])
        self.assertEqual(len(scores.tokens), wanted["tokens"])
        mean = -math.fsum(scores.token_logprobs[1:]) / (len(scores.tokens) - 1)
        self.assertAlmostEqual(mean, wanted["mean_nll"], delta=1e-6)
        self.assertEqual(reply.choices[0].text, words)
        for token, own, top in zip(scores.tokens[1:], scores.token_logprobs[1:], scores.top_logprobs[1:]):
            self.assertGreaterEqual(max(top.values()), own)
            self.assertIn(token, top)

    def test_mixed_load_changes_no_bit(self):
        def ask(i):
            reply = self.client.completions.create(
                model=self.model, prompt=f"{i % 3} one two three four " * (1 + i % 7), max_tokens=4 + i % 9, seed=i,
                temperature=0.8 if i % 2 else 0, logprobs=2, extra_body={"return_token_ids": True},
            )  # fmt: skip
            return reply.choices[0].token_ids, reply.choices[0].logprobs.token_logprobs

        count = 64
        alone = [ask(i) for i in range(count)]
        together = [None] * count

        def work(i):
            together[i] = ask(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for _ in range(4):  # neighbours that leave
            stream = self.chat(stream=True, max_tokens=500, extra_body={"ignore_eos": True})
            next(stream)
            stream.close()
        for thread in threads:
            thread.join()
        self.assertEqual(alone, together)
        self.assertTrue(self.served.rests())


class Processes(unittest.TestCase):
    def test_the_printed_curl_works(self):
        with Served(PROGRAM) as served:
            output = subprocess.run(served.curl, shell=True, capture_output=True, check=True, text=True).stdout
            self.assertEqual(json.loads(output)["object"], "chat.completion")

    def test_keys_guard_an_open_address(self):
        code = subprocess.run(
            [PROGRAM, "serve", str(MODEL), "--port", "0", "--listen", "0.0.0.0"], capture_output=True, text=True
        )
        self.assertNotEqual(code.returncode, 0)
        self.assertIn("--no-auth", code.stderr)
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("# people\nann:secret-of-ann\n")
            keys.flush()
            with Served(PROGRAM, "--listen", "0.0.0.0", "--api-key-file", keys.name) as served:
                url = served.url.replace("0.0.0.0", "127.0.0.1")
                wrong = openai.OpenAI(base_url=url + "/v1", api_key="secret-of-bob", max_retries=0)
                with self.assertRaises(openai.AuthenticationError):
                    wrong.models.list()
                right = openai.OpenAI(base_url=url + "/v1", api_key="secret-of-ann", max_retries=0)
                self.assertEqual(len(right.models.list().data), 1)
                output = subprocess.run(served.curl, shell=True, capture_output=True, check=True, text=True).stdout
                self.assertEqual(json.loads(output)["object"], "chat.completion")
                self.assertFalse(any("secret" in line for line in served.log))

    def test_a_client_that_is_told_to_come_again_is_served(self):
        with Served(PROGRAM, "--max-running", "1", "--max-queue", "1") as served:
            client = openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=5)
            replies, count = [], 4

            def ask(i):
                replies.append(client.completions.create(
                    model="qwen3moe-gptq-w4g128-sym", prompt=f"{i} one two", max_tokens=300, seed=i,
                    extra_body={"ignore_eos": True},
                ).usage.completion_tokens)  # fmt: skip

            ask(count)  # the server measures how long a request takes, the client loads what it needs
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(replies, [300] * (1 + count))
            refused = re.search(r'vllm:admission_rejections_total\{.*reason="queue"\} (\d+)', served.get("/metrics"))
            self.assertGreater(int(refused[1]), 0)

    def test_sigterm_finishes_what_is_under_way(self):
        with Served(PROGRAM) as served:
            client = openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0)
            stream = client.chat.completions.create(
                model="qwen3moe-gptq-w4g128-sym", messages=ASKED, max_tokens=400, stream=True,
                extra_body={"ignore_eos": True},
            )  # fmt: skip
            next(stream)
            served.process.terminate()
            last = None
            for chunk in stream:
                last = chunk
            self.assertEqual(last.choices[0].finish_reason, "length")
            self.assertEqual(served.process.wait(30), 0)

    def test_a_drain_that_is_over_tells_the_client(self):
        with Served(PROGRAM, "--drain", "0") as served:
            client = openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0)
            stream = client.chat.completions.create(
                model="qwen3moe-gptq-w4g128-sym", messages=ASKED, max_tokens=2000, stream=True,
                extra_body={"ignore_eos": True},
            )  # fmt: skip
            next(stream)
            served.process.terminate()
            with self.assertRaises(openai.APIError):
                for _ in stream:
                    pass
            self.assertEqual(served.process.wait(30), 0)

    def test_experts_are_counted_in_the_metrics(self):
        config = json.loads((MODEL / "config.json").read_text())
        with Served(PROGRAM, "--expert-metrics") as served:
            body = {"prompt": "one two three", "max_tokens": 9, "ignore_eos": True}
            usage = served.post("/v1/completions", body)[1]["usage"]
            computed = usage["prompt_tokens"] + usage["completion_tokens"] - 1  # the last one is chosen alone
            wanted = [computed * config["num_experts_per_tok"]] * config["num_hidden_layers"]
            counted, deadline = None, time.monotonic() + 20
            while counted != wanted and time.monotonic() < deadline:
                time.sleep(0.1)
                sums = collections.Counter()
                for line in served.get("/metrics").splitlines():
                    if found := re.match(r'moracle:expert_tokens_total\{.*,layer="(\d+)",expert="\d+"\} (\d+)$', line):
                        sums[int(found[1])] += int(found[2])
                counted = [sums[layer] for layer in sorted(sums)]
            self.assertEqual(counted, wanted)
        with Served(PROGRAM) as served:
            served.post("/v1/completions", body)
            self.assertNotIn("moracle:expert_tokens_total", served.get("/metrics"))

    def test_the_supervisor_hears_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in (f"{folder}/notify", f"\0moracle-{os.getpid()}"):
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
                    heard.bind(name)
                    heard.settimeout(20)
                    environment = {"NOTIFY_SOCKET": name.replace("\0", "@"), "WATCHDOG_USEC": "400000"}
                    with Served(PROGRAM, environment=environment) as served:
                        self.assertIn(b"READY=1", heard.recv(200).split(b"\n"))
                        begun = time.monotonic()
                        for _ in range(4):
                            self.assertEqual(heard.recv(200), b"WATCHDOG=1")
                        self.assertAlmostEqual(time.monotonic() - begun, 0.6, delta=0.4)
                        served.process.terminate()
                        words = [b""]
                        while b"STOPPING=1" not in words:
                            words = heard.recv(200).split(b"\n")
                            self.assertTrue({b"WATCHDOG=1", b"STOPPING=1"} & set(words), words)
                        self.assertEqual(served.process.wait(30), 0)

    def test_it_listens_before_it_loads(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "socket"
            process = subprocess.Popen(
                [PROGRAM, "serve", str(MODEL), "--listen", f"unix:{path}", "--quiet"], stderr=subprocess.PIPE
            )
            deadline = time.monotonic() + 60
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.005)
            statuses = []
            while time.monotonic() < deadline and statuses[-1:] != ["200"]:
                out = subprocess.run(
                    ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", path]
                    + ["http://localhost/health"],
                    capture_output=True, text=True,
                ).stdout  # fmt: skip
                statuses.append(out)
            self.assertLessEqual(set(statuses), {"503", "200"})
            process.terminate()
            self.assertEqual(process.wait(30), 0)
            process.stderr.close()
            self.assertFalse(path.exists())


if __name__ == "__main__":
    unittest.main(verbosity=1)
