#!/usr/bin/env python3
"""`moracle bench serve` against our server, and against servers that fail: bench_test.py PROGRAM."""

import contextlib
import http.server
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from served import MODEL, Served

PROGRAM = sys.argv.pop(1)
SMALL = ["--prompt", "24", "--generate", "6"]


def bench(*options, check=False):
    return subprocess.run(
        [PROGRAM, "bench", "serve", *map(str, options)], capture_output=True, text=True, timeout=120, check=check
    )


class Fake:
    """A server whose answer to a completion is the text given."""

    def __init__(self, answer, models=b'{"data": [{"id": "m"}]}'):
        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(models)))
                self.end_headers()
                self.wfile.write(models)

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                with contextlib.suppress(OSError):
                    self.wfile.write(answer) if isinstance(answer, bytes) else answer(self)
                self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self.url

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def stream(*events):
    body = "".join(f"data: {event}\n\n" for event in events)
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{body}".encode()


TEXT = '{"choices": [{"text": "a"}]}'
USAGE = '{"choices": [], "usage": {"prompt_tokens": 300, "completion_tokens": 2}}'


class OurServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = Served(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.served.end()
        cls.served.__exit__()

    def test_rows_and_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder) / "load.svg"
            done = bench(self.served.url + "/v1", "--clients", "1,3", *SMALL, "--json", "--picture", picture, check=True)
            drawn = xml.etree.ElementTree.parse(picture).getroot()
        result = json.loads(done.stdout)
        self.assertEqual([row["clients"] for row in result["rows"]], [1, 3])
        self.assertEqual(len([e for e in drawn.iter() if e.get("class") == "bar"]), 6)
        for row in result["rows"]:
            self.assertEqual(row["requests"], 4 * row["clients"])
            self.assertEqual(row["output_tokens"], 6 * row["requests"])
            self.assertAlmostEqual(row["prompt_tokens"] / row["requests"], 24, delta=4)
            self.assertEqual(row["cached_tokens"], 0)
            self.assertAlmostEqual(row["output_tok_s"], row["output_tokens"] / row["seconds"], places=6)
            self.assertLessEqual(row["first_token_ms"]["p50"], row["request_ms"]["p50"])
            self.assertLessEqual(row["request_ms"]["p99"], 1000 * row["seconds"] + 1)
            for name in ("first_token_ms", "inter_token_ms", "per_token_ms", "request_ms"):
                self.assertTrue(0 < row[name]["p50"] <= row[name]["p90"] <= row[name]["p99"], (name, row))

    def test_a_shared_prefix_is_found_in_the_cache(self):
        options = ["--clients", "1", "--requests", "4", "--prompt", "400", "--generate", "2", "--json"]
        row = json.loads(bench(self.served.url, *options, "--shared-prefix", "0.75", check=True).stdout)["rows"][0]
        self.assertGreater(row["cached_tokens"], 3 * 128)

    def test_arrivals_keep_their_time(self):
        options = ["--rate", "10", "--rate", "40", "--requests", "20", *SMALL, "--ragged", "0.5", "--json"]
        rows = json.loads(bench(self.served.url, *options, check=True).stdout)["rows"]
        self.assertEqual([row["requests_per_s_asked"] for row in rows], [10, 40])
        for row in rows:
            self.assertGreater(row["seconds"], 0.3 * 20 / row["requests_per_s_asked"])
            self.assertEqual(row["output_tokens"], 120)

    def test_a_model_is_served_for_it(self):
        done = bench(MODEL, "--threads", "2", "--clients", "2", "--requests", "3", *SMALL, check=True)
        self.assertIn("2 clients", done.stdout)

    def test_the_server_s_words(self):
        done = bench(self.served.url, "--served-name", "other", *SMALL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("status 404", done.stderr)
        self.assertIn("other", done.stderr)


class Failures(unittest.TestCase):
    def fails(self, url, code, *options):
        done = bench(url, *SMALL, *options)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"[{code}]", done.stderr)
        self.assertEqual(done.stderr.count("moracle: error:"), 1, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        self.fails(f"http://127.0.0.1:{port}", "bench.connect")

    def test_no_address(self):
        self.fails("https://127.0.0.1", "bench.url")
        self.fails("http://127.0.0.1:port", "bench.url")

    def test_refused(self):
        answer = b'HTTP/1.1 429 Busy\r\nContent-Length: 34\r\n\r\n{"error": {"message": "no room"}}  '
        with Fake(answer) as url:
            self.assertIn("status 429: no room", self.fails(url, "bench.refused"))

    def test_no_list_of_models(self):
        with Fake(b"", models=b"<html>") as url:
            self.fails(url, "bench.stream")

    def test_no_stream(self):
        for answer in (
            stream("<html>"),
            stream(TEXT, "{"),
            stream(TEXT, "[DONE]"),
            stream(TEXT, USAGE),
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
            b"SSH-2.0-OpenSSH\r\n\r\n",
            stream('{"error": {"message": "broken"}}'),
        ):
            with Fake(answer) as url:
                self.fails(url, "bench.stream")

    def test_it_ends_early(self):
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        data = f"data: {TEXT}\n\n".encode()
        with Fake(head + f"{len(data):x}\r\n".encode() + data + b"\r\n") as url:
            self.fails(url, "bench.gone")
        with Fake(b"") as url:
            self.fails(url, "bench.gone")

    def test_silence(self):
        with Fake(lambda handler: time.sleep(3)) as url:
            self.fails(url, "bench.timeout", "--timeout", "0.5")

    def test_an_interrupt_ends_it_at_once(self):
        def slow(handler):
            handler.wfile.write(stream(TEXT))
            handler.wfile.flush()
            time.sleep(20)

        with Fake(slow) as url:
            process = subprocess.Popen([PROGRAM, "bench", "serve", url, *SMALL], stderr=subprocess.PIPE, text=True)
            time.sleep(0.7)
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            told = process.communicate(timeout=10)[1]
            self.assertLess(time.monotonic() - begun, 2)
            self.assertEqual(process.returncode, 130)
            self.assertIn("interrupted", told)


if __name__ == "__main__":
    unittest.main(verbosity=1)
