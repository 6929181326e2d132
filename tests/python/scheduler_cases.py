"""Requests that share the steps of an engine, tests that library_test.py runs with the others."""

import moracle
from cases import QWEN, TestCase


class Schedulers(TestCase):
    PROMPTS = ("The old man", "The", "A cat sat on the mat and", "The old man and the sea")
    OPTIONS = {"max_tokens": 8, "temperature": 0, "ignore_eos": True}

    @classmethod
    def setUpClass(cls):
        cls.engine = moracle.Engine(QWEN, threads=2, policy=moracle.Policy(batch_invariant=True))

    def collect(self, scheduler):
        """Tokens, text and last event of each request."""
        answers = {}
        for event in scheduler.run():
            tokens, texts, ends = answers.setdefault(event.request, ([], [], []))
            self.assertFalse(ends, "an event behind the end")
            texts.append(event.text)
            if event.kind == "token":
                tokens.append(event.token)
            elif event.kind == "end":
                ends.append(event)
        return {request: (tuple(tokens), "".join(texts), ends[0]) for request, (tokens, texts, ends) in answers.items()}

    def test_requests_get_what_generate_gives(self):
        alone = [self.engine.generate(prompt, **self.OPTIONS) for prompt in self.PROMPTS]
        with moracle.Scheduler(self.engine) as scheduler:
            numbers = [scheduler.submit(prompt, **self.OPTIONS) for prompt in self.PROMPTS]
            answers = self.collect(scheduler)
            self.assertEqual(sorted(answers), sorted(numbers))
            for number, reply in zip(numbers, alone):
                tokens, text, end = answers[number]
                self.assertEqual((tokens, text), (reply.ids, reply.text))
                self.assertEqual((end.finish_reason, end.error), ("length", None))
                self.assertEqual((end.prompt_tokens, end.completion_tokens), (len(reply.prompt_ids), 8))
            drawn = [self.engine.generate("The", max_tokens=6, temperature=1.0, seed=seed).ids for seed in (3, 4)]
            numbers = [scheduler.submit("The", max_tokens=6, temperature=1.0, seed=seed) for seed in (3, 4)]
            answers = self.collect(scheduler)
            self.assertEqual([answers[number][0][:len(ids)] for number, ids in zip(numbers, drawn)], drawn)
            chat = [{"role": "user", "content": "Hi"}]
            number = scheduler.submit(chat, **self.OPTIONS)
            self.assertEqual(self.collect(scheduler)[number][0], self.engine.generate(chat, **self.OPTIONS).ids)

    def test_log_probabilities(self):
        with moracle.Scheduler(self.engine, reuse_prefixes=False) as scheduler:
            scheduler.submit("The old man", logprobs=3, **self.OPTIONS)
            tokens = [event for event in scheduler.run() if event.kind == "token"]
            for event in tokens:
                self.assertEqual(event.top_logprobs[0], (event.token, event.logprob))  # greedy: the best one
                self.assertEqual(len(event.top_logprobs), 3)
                self.assertLess(event.logprob, 0)
            scheduler.submit("The old man", **self.OPTIONS)
            self.assertTrue(all(event.logprob is None for event in scheduler.run()))

    def test_cancels(self):
        with moracle.Scheduler(self.engine, max_running=1) as scheduler:
            numbers = [scheduler.submit(prompt, key="k", **self.OPTIONS) for prompt in self.PROMPTS[:2]]
            _, more = scheduler.step()
            self.assertTrue(more)
            self.assertTrue(scheduler.cancel(numbers[0]))
            self.assertFalse(scheduler.cancel(numbers[0] + 99))
            ends = {number: answer[2].finish_reason for number, answer in self.collect(scheduler).items()}
            self.assertEqual(ends, {numbers[0]: "cancelled", numbers[1]: "length"})

    def test_reuses_prompts(self):
        with moracle.Scheduler(self.engine) as scheduler:
            long = moracle.Prompt(tuple(self.engine.tokenize("The old man ")) * 20)
            for expected in (False, True):
                scheduler.submit(long, max_tokens=1)
                end = list(scheduler.run())[-1]
                self.assertEqual(end.cached_tokens > 0, expected)

    def test_errors(self):
        with moracle.Scheduler(self.engine, context=16) as scheduler:
            self.assert_code("argument.name", scheduler.submit, "The", max_token=3)
            self.assert_code("argument.range", scheduler.submit, "The", logprobs=-1)
            self.assert_code("sampling.range", scheduler.submit, "The", temperature=-1)
            self.assert_code("model.context", scheduler.submit, "The", max_tokens=4096)
            self.assert_code("model.token", scheduler.submit, moracle.Prompt((1 << 30,)))
            self.assert_code("argument.zero", scheduler.submit, "The", key="a\0b")
        self.assert_code("handle.closed", scheduler.step)
        self.assert_code("argument.range", moracle.Scheduler, self.engine, context=-1)
