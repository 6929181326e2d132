#!/usr/bin/env python3
"""Published harnesses against `moracle serve`: harness_test.py PROGRAM [--minutes N].

lm-evaluation-harness (log-likelihoods, and chats), schemathesis on openapi.yaml, prometheus_client and promtool on
/metrics. Exit code 77 where the Python packages are missing; without promtool its test alone is skipped.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY="none", LMEVAL_LOG_LEVEL="ERROR")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from served import MODEL, ROOT, Served

try:
    import schemathesis
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as missing:
    print(f"{missing.name} is not installed: scripts/setup clients")
    sys.exit(77)

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("--minutes", type=float, default=0.4, help="of schemathesis, about")
ARGUMENTS, sys.argv[1:] = parser.parse_known_args()
PROGRAM = ARGUMENTS.program

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "A model of experts routes each token to the few that know it best.",
    "Seven words stand here, and seven more follow them, one by one.",
]
# What promtool dislikes about vLLM's names.
VLLM_S_OWN = re.compile(
    r"metric names should not contain ':'$|^vllm:iteration_tokens_total non-counter metrics should not have \"_total\" suffix$"
)


def tasks(folder):
    """A task of log-likelihoods of whole texts, and one of chats."""
    data = pathlib.Path(folder) / "texts.jsonl"
    data.write_text("".join(json.dumps({"text": text, "ask": "one two"}) + "\n" for text in TEXTS))
    source = f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {data}\ntest_split: test\n"
    (pathlib.Path(folder) / "rolling.yaml").write_text(
        f"task: texts_rolling\n{source}output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{{{text}}}}'\n"
        "metric_list:\n  - metric: word_perplexity\n"
    )
    (pathlib.Path(folder) / "chat.yaml").write_text(
        f"task: texts_chat\n{source}output_type: generate_until\ndoc_to_text: '{{{{ask}}}}'\ndoc_to_target: '{{{{text}}}}'\n"
        "generation_kwargs:\n  until: ['zzz']\n  max_gen_toks: 6\n  temperature: 0\nmetric_list:\n  - metric: exact_match\n"
    )
    return TaskManager(include_path=folder, include_defaults=False)


class Harnesses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Served(PROGRAM, "--batch-invariant=on", "--context", "512")
        cls.model = cls.served.get("/v1/models")["data"][0]["id"]

    @classmethod
    def tearDownClass(cls):
        cls.served.end()
        cls.served.__exit__()

    def eval_nll(self, text):
        """Of all tokens but the first, as `moracle eval` sums them."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            command = [PROGRAM, "eval", str(MODEL), "--text", file.name, "--window", "512", "--threads", "2", "--json"]
            output = subprocess.run([*command, "--batch-invariant"], capture_output=True, check=True, text=True).stdout
        told = json.loads(output)
        return told["mean_nll"] * (told["tokens"] - 1)

    def evaluate(self, kind, task, endpoint, folder, **more):
        arguments = {"model": self.model, "base_url": self.served.url + endpoint, "num_concurrent": 3, "max_length": 512}
        return simple_evaluate(
            model=kind, model_args={**arguments, **more.pop("model_args", {})}, tasks=[task], log_samples=True,
            task_manager=tasks(folder), bootstrap_iters=0, **more,
        )["samples"][task]  # fmt: skip

    def test_lm_eval_log_likelihoods_are_those_of_eval(self):
        with tempfile.TemporaryDirectory() as folder:
            samples = self.evaluate(
                "local-completions", "texts_rolling", "/v1/completions", folder,
                model_args={"tokenizer_backend": "remote", "tokenized_requests": True},
            )  # fmt: skip
        self.assertEqual(len(samples), len(TEXTS))
        for sample in samples:
            text = sample["doc"]["text"]
            told = sample["filtered_resps"][0]
            told = told[0] if isinstance(told, (list, tuple)) else told
            # The harness puts its prefix token in front of the text, and sums all of the text's tokens.
            prefix = self.served.get("/tokenizer_info")["eos_token"]
            self.assertAlmostEqual(-told, self.eval_nll(prefix + text), delta=1e-6)

    def test_lm_eval_chats(self):
        with tempfile.TemporaryDirectory() as folder:
            samples = self.evaluate(
                "local-chat-completions", "texts_chat", "/v1/chat/completions", folder, apply_chat_template=True
            )
        body = {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 6, "temperature": 0, "stop": ["zzz"]}
        wanted = self.served.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
        self.assertEqual([sample["resps"][0][0] for sample in samples], [wanted] * len(TEXTS))

    def test_schemathesis(self):
        self.assertIsNotNone(schemathesis)
        # One worker: before Python 3.12.1, ast.parse counts its depth for all threads together (python/cpython#106905),
        # so that two workers end with a SystemError now and then.
        command = [
            str(pathlib.Path(sys.executable).parent / "schemathesis"), "run", str(ROOT / "docs" / "openapi.yaml"),
            "--url", self.served.url, "--exclude-path", "/v1/routing", "--suppress-health-check", "all",
            "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance",
            "--request-timeout", "60", "--max-examples", str(max(10, int(40 * ARGUMENTS.minutes))), "--seed", "1", "--workers", "1",
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:  # what it remembers of a run
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=600 + 300 * ARGUMENTS.minutes, cwd=folder
            )
        print("\n".join(done.stdout.splitlines()[-12:]))
        self.assertEqual(done.returncode, 0, done.stdout[-6000:])
        self.assertTrue(self.served.rests())
        self.assertIsNone(self.served.process.poll())

    def test_metrics_parse(self):
        for i in range(3):
            body = {"prompt": "one two", "max_tokens": 4 + i, "ignore_eos": True}
            self.assertEqual(self.served.post("/v1/completions", body)[0], 200)
        text = self.served.get("/metrics")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        for family in families.values():
            self.assertTrue(family.documentation, family.name)
            names = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
            self.assertEqual(len(names), len(set(names)), family.name)
            if family.type != "histogram":
                continue
            for phase in {sample.labels.get("phase") for sample in family.samples}:
                own = [sample for sample in family.samples if sample.labels.get("phase") == phase]
                buckets = [sample.value for sample in own if sample.name.endswith("_bucket")]
                count = sum(sample.value for sample in own if sample.name.endswith("_count"))
                self.assertEqual(buckets, sorted(buckets), family.name)
                self.assertEqual(buckets[-1], count, family.name)
        generated = families["vllm:generation_tokens"].samples[0].value
        self.assertEqual(generated, self.served.get("/v1/status")["generated_tokens"])

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed: scripts/setup clients")
    def test_promtool_takes_the_metrics(self):
        self.assertEqual(self.served.post("/v1/completions", {"prompt": "one two", "max_tokens": 3})[0], 200)
        text = self.served.get("/metrics")
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        complaints = (checked.stdout + checked.stderr).splitlines()
        self.assertEqual([line for line in complaints if line and not VLLM_S_OWN.search(line)], [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
