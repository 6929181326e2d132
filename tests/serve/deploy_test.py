#!/usr/bin/env python3
"""Files of deploy/ against the server and the tools that read them: deploy_test.py PROGRAM.

Names of metrics are those of /metrics, promtool takes the job and the rules, Kubernetes' schemas the manifest, and probes its
paths. Exit code 77 where PyYAML is missing; without promtool or kubernetes-validate their tests alone are skipped.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from served import ROOT, Served

try:
    import yaml
except ImportError:
    print("PyYAML is not installed: scripts/setup clients")
    sys.exit(77)
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

DEPLOY = ROOT / "deploy"
PROGRAM = sys.argv.pop(1)
KUBERNETES = "1.33"


def names_of(text):
    """Metrics that a file asks for; a histogram's series by its own name."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:vllm|moracle):[a-z_]+", text)}


def manifest():
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


class Metrics(unittest.TestCase):
    def test_every_name_is_one_that_the_server_has(self):
        with Served(PROGRAM, "--expert-metrics") as served:
            served.post("/v1/completions", {"prompt": "one two", "max_tokens": 4})
            deadline = time.monotonic() + 30  # tokens of experts are a few seconds old
            offered = set()
            while "moracle:expert_tokens_total" not in offered and time.monotonic() < deadline:
                offered = set(re.findall(r"^# TYPE (\S+) ", served.get("/metrics"), re.M))
        for file in ("grafana.json", "prometheus-rules.yml", "kubernetes.yaml"):
            asked = names_of((DEPLOY / file).read_text())
            self.assertTrue(asked, file)
            self.assertEqual(asked - offered, set(), file)

    def test_a_wrong_name_would_be_seen(self):
        self.assertEqual(names_of("rate(vllm:nothing_total[5m]) + moracle:step_seconds_bucket{}"),
                         {"vllm:nothing_total", "moracle:step_seconds"})

    def test_panels_of_the_board_do_not_overlap(self):
        board = json.loads((DEPLOY / "grafana.json").read_text())
        taken = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells
        self.assertLess(max(x for x, _ in taken), 24)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_prometheus_takes_the_job_and_the_rules(self):
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder) / "key"
            key.write_text("secret")
            text = (DEPLOY / "prometheus.yml").read_text()
            self.assertIn("/etc/prometheus/moracle-key", text)
            (pathlib.Path(folder) / "prometheus.yml").write_text(text.replace("/etc/prometheus/moracle-key", str(key)))
            shutil.copy(DEPLOY / "prometheus-rules.yml", folder)
            done = subprocess.run(["promtool", "check", "config", f"{folder}/prometheus.yml"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"[1-9]\d* rules found")


class Manifest(unittest.TestCase):
    @unittest.skipUnless(kubernetes_validate, "kubernetes-validate is not installed")
    def test_kubernetes_takes_every_object(self):
        objects = manifest()
        for each in objects.values():
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
        objects["Deployment"]["spec"]["replica"] = 2
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(objects["Deployment"], KUBERNETES, strict=True)

    def test_probes_want_neither_a_key_nor_a_host(self):
        container = manifest()["Deployment"]["spec"]["template"]["spec"]["containers"][0]
        paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        self.assertEqual(paths, {"/livez", "/readyz"})
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text("ann:secret-of-ann\n")
            with Served(PROGRAM, "--api-key-file", str(keys)) as served:
                for path in paths:
                    probe = urllib.request.Request(served.url + path, headers={"Host": "10.0.0.7:8080"})
                    with urllib.request.urlopen(probe, timeout=30) as answer:
                        self.assertEqual(answer.status, 200)

    def test_names_meet(self):
        objects = manifest()
        labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
        selectors = (objects["Deployment"]["spec"]["selector"]["matchLabels"], objects["Service"]["spec"]["selector"],
                     objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
        for selector in selectors:
            self.assertLessEqual(selector.items(), labels.items())
        scaled = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"]
        self.assertEqual(scaled, objects["Deployment"]["metadata"]["name"])


class Container(unittest.TestCase):
    def test_what_git_ignores_stays_out(self):
        ignored = {line.strip("/") for line in (ROOT / ".containerignore").read_text().splitlines()}
        for line in (ROOT / ".gitignore").read_text().split():
            name = line.strip("/")
            self.assertTrue(any(pattern in ignored for pattern in (name, f"**/{name}", re.sub(r"venv.*", "venv*", name))), name)


if __name__ == "__main__":
    unittest.main(verbosity=1)
