"""Servers of open engines, tests that library_test.py runs with the others."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

import moracle
from cases import MIXTRAL, QWEN, TestCase


class Servers(TestCase):
    OPTIONS = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}

    @classmethod
    def setUpClass(cls):
        cls.engine = moracle.Engine(QWEN, threads=2, policy=moracle.Policy(batch_invariant=True))

    def ask(self, server, path, body=None, key=None):
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(server.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def complete(self, server, prompt="The old man", **options):
        status, reply = self.ask(server, "/completions", {"prompt": prompt, **self.OPTIONS, **options})
        self.assertEqual(status, 200, reply)
        return reply["choices"][0]["text"]

    def test_serves_what_generate_gives(self):
        text = self.engine.generate("The old man", **self.OPTIONS).text
        with moracle.Server(self.engine) as server:
            self.assertEqual(server.describe(), {"address": server.address, "names": [QWEN.name], "batch_invariant": True})
            self.assertEqual(self.complete(server), text)
            self.assertEqual(self.ask(server, "/models")[1]["data"][0]["id"], QWEN.name)
            self.assertFalse(server.wait(0))
            # Calls on the engine take turns with the server's steps.
            texts = []
            threads = [threading.Thread(target=lambda: texts.append(self.complete(server))) for _ in range(3)]
            threads += [threading.Thread(target=lambda: texts.append(self.engine.generate("The old man",
                                                                                        **self.OPTIONS).text))
                        for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(texts, [text] * 6)
            server.stop()
            self.assertTrue(server.wait(30))
            with self.assertRaises(urllib.error.URLError):
                self.ask(server, "/models")
        self.assert_code("handle.closed", server.describe)
        self.assertEqual(self.engine.generate("The old man", **self.OPTIONS).text, text)

    def test_two_engines_serve(self):
        with moracle.Engine(MIXTRAL, threads=2) as other:
            with moracle.Server(self.engine) as first, moracle.Server(other, names=["other", "another"]) as second:
                other.close()
                self.assertEqual([row["id"] for row in self.ask(second, "/models")[1]["data"]], ["other", "another"])
                self.assertEqual(self.ask(second, "/completions", {"model": "none", "prompt": "a"})[0], 404)
                self.assertTrue(self.complete(second, model="another"))
                self.assertTrue(self.complete(first))

    def test_keys(self):
        with moracle.Server(self.engine, api_keys=["me:a-long-secret"]) as server:
            self.assertEqual(self.ask(server, "/models")[0], 401)
            self.assertEqual(self.ask(server, "/models", key="a-long-secret")[0], 200)

    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "socket"
            with moracle.Server(self.engine, f"unix:{path}") as server:
                self.assertEqual(server.url, f"unix:{path}")
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(path))
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 200"))
            self.assertFalse(path.exists())

    def test_errors(self):
        server = functools.partial(moracle.Server, self.engine)
        with server() as first:
            port = int(first.address.rsplit(":", 1)[1])
            error = self.assert_code("server.listen", server, port=port)
            self.assertIn(str(port), error.message)
        with server(port=port) as again:
            self.assertTrue(again.address.endswith(f":{port}"))
        self.assert_code("server.address", server, "no-such-host.example", everybody=True)
        self.assert_code("server.address", server, "unix:")
        self.assert_code("access.open", server, "0.0.0.0")
        server("0.0.0.0", everybody=True).close()
        self.assert_code("access.keys", server, api_keys=["me:short"])
        self.assert_code("access.keys", server, api_keys=["me:long-enough", "me:long-as-well"])
        self.assert_code("argument.range", server, port=65536)
        self.assert_code("argument.range", server, port=-1)
        self.assert_code("argument.range", server, names=[""])
        self.assert_code("argument.range", server, context=1 << 40)
        self.assert_code("server.address", server, "no-such-host.example")
        self.assert_code("argument.type", server, names="one")
        self.assert_code("argument.type", server, api_keys=[None])
        self.assert_code("argument.type", server, drain="soon")
        self.assert_code("argument.range", server, drain=float("nan"))
        for name in ("everybody", "any_model", "strict", "reuse_prefixes", "share_prefixes"):
            for value in ("no", None, 2, 1.0):
                self.assertEqual(self.assert_code("argument.type", server, **{name: value}).where, name)
        self.assert_code("argument.type", self.engine.serve, port=0, on_ready=3)
        with moracle.Server(self.engine) as one:
            self.assert_code("argument.type", one.wait, "soon")
            self.assert_code("argument.range", one.wait, float("nan"))
        self.assert_code("argument.zero", server, "a\0b")
        self.assert_code("argument.range", server, drain=1e9)
        closed = moracle.Engine(QWEN, threads=2)
        closed.close()
        self.assert_code("handle.closed", moracle.Server, closed)

    def test_serve_blocks_until_it_is_stopped(self):
        seen = []

        def ready(server):
            seen.append(self.complete(server))
            server.stop()

        self.engine.serve(port=0, on_ready=ready)
        self.assertEqual(seen, [self.engine.generate("The old man", **self.OPTIONS).text])

    def test_an_interrupt_ends_it(self):
        program = (  # a shell's jobs in the background ignore SIGINT, and so would Python
            "import moracle, signal, sys\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "moracle.Engine(sys.argv[1], threads=2).serve(port=0, on_ready=lambda s: print(s.url, flush=True))\n"
            "print('ended')\n")
        with subprocess.Popen([sys.executable, "-c", program, str(QWEN)], stdout=subprocess.PIPE, text=True) as process:
            self.assertTrue(process.stdout.readline().startswith("http://127.0.0.1:"))
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.stdout.read(), "ended\n")
        self.assertEqual(process.returncode, 0)

    def test_a_server_that_nobody_closed(self):
        program = ("import moracle, sys\n"
                   "server = moracle.Server(moracle.Engine(sys.argv[1], threads=2))\n")
        subprocess.run([sys.executable, "-c", program, str(QWEN)], check=True, timeout=60)

    def test_after_a_fork(self):
        with moracle.Server(self.engine) as server:
            child = os.fork()
            if child == 0:
                try:
                    server.describe()
                    code = 1
                except moracle.Error as error:
                    code = 0 if error.code == "handle.forked" else 2
                server.close()
                os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertTrue(self.complete(server))
