"""A `moracle serve` process for tests, on a port of this machine."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "examples" / "models" / "qwen3moe-gptq-w4g128-sym"


class Served:
    def __init__(self, program, *options, model=MODEL, environment=None, key=None):
        self.headers = {"x-api-key": key} if key else {}
        self.log = []
        self.process = subprocess.Popen(
            [program, "serve", str(model), "--port", "0", "--threads", "2", *options],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.url = self.curl = None
        deadline = time.monotonic() + 120
        while self.curl is None:
            line = self.process.stderr.readline()
            if not line or time.monotonic() > deadline:
                raise RuntimeError("it did not begin to serve:\n" + "".join(self.log))
            self.log.append(line)
            if found := re.search(r" at (http://\S+)/v1$", line):
                self.url = found[1]
            if line.startswith("  curl "):
                self.curl = line.strip()
        # Nobody else reads the log; the server drops lines of a full pipe.

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def get(self, path):
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=self.headers), timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def post(self, path, body):
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **self.headers})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def post_in_crowd(self, path, body, others, tokens):
        """The answer to a body that is posted beside `others` completions of `tokens` tokens each."""
        crowd = [threading.Thread(target=self.post, args=("/v1/completions", {
            "prompt": [7] * 20, "max_tokens": tokens, "ignore_eos": True, "seed": i})) for i in range(others)]
        for other in crowd:
            other.start()
        _, answer = self.post(path, body)
        for other in crowd:
            other.join()
        return answer

    def rests(self, seconds=20):
        """Whether nothing runs or waits any more within the time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self.get("/v1/status")
            if status["running"] == status["waiting"] == status["open_requests"] == 0:
                return True
            time.sleep(0.05)
        return False

    def end(self, number=signal.SIGTERM, seconds=60):
        """Its exit code."""
        self.process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds)
        return None
