"""Runs the real binary, sets it up with its own commands, and signs people in by its pages."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import requests

BINARY = Path(os.environ.get("IDSVC_BIN") or Path(__file__).parent / "../../target/debug/idsvc").resolve()
STANDARD_SCOPES = ["openid", "profile", "email", "phone", "address", "offline_access"]
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)


def environment(**extra):
    """The environment without settings that would reach the binary from outside the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IDSVC_")}
    return kept | extra


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`idsvc serve` on a data directory and a port of its own."""

    def __init__(self, flags=()):
        self.flags = list(flags)
        self.directory = Path(tempfile.mkdtemp(prefix="idsvc-clients-"))
        self.data_dir = self.directory / "data"
        self.log_file = self.directory / "log"
        self.ca_file = self.directory / "ca.pem"
        self.process = None

    def start(self):
        try:
            return self.launch()
        except BaseException:
            if self.process and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def launch(self):
        for _ in range(5):
            self.port = free_port()
            self.issuer = f"https://localhost:{self.port}"
            with self.log_file.open("w") as log:
                self.process = subprocess.Popen(
                    [BINARY, "serve", "--data-dir", self.data_dir, "--listen", f"127.0.0.1:{self.port}"]
                    + ["--base-url", self.issuer, "--tls-mode", "self-signed", *self.flags],
                    cwd=self.directory,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            if self.wait_until_ready():
                return self
            if "in use" not in self.log:
                break
            shutil.rmtree(self.data_dir, ignore_errors=True)
        raise RuntimeError(f"{BINARY} serve ended before it was ready:\n{self.log}")

    def wait_until_ready(self):
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            if self.trust() and self.is_ready():
                return True
            if time.monotonic() > deadline:
                raise RuntimeError(f"{BINARY} serve was not ready within 60 s:\n{self.log}")
            time.sleep(0.05)
        return False

    def trust(self):
        """Copies the certificate that `--tls-mode self-signed` wrote."""
        for file in sorted(self.data_dir.glob("certs/*.pem")):
            if found := CERTIFICATE.search(file.read_text()):
                self.ca_file.write_text(found[0])
                return True
        return False

    def is_ready(self):
        try:
            return requests.get(f"{self.issuer}/readyz", verify=str(self.ca_file), timeout=2).status_code == 200
        except requests.exceptions.SSLError:
            raise
        except requests.exceptions.RequestException:
            return False

    @property
    def log(self):
        return self.log_file.read_text()

    def command(self, *words):
        """Runs a command with `--json` against this server's data directory."""
        done = subprocess.run(
            [BINARY, *words, "--json"],
            cwd=self.directory,
            env=environment(IDSVC_DATA_DIR=str(self.data_dir)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(f"idsvc {' '.join(words)}: exit {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def add_client(self, client_id, redirect_uri, *flags):
        scopes = [word for scope in STANDARD_SCOPES for word in ("--scope", scope)]
        client = self.command("client", "add", client_id, "--redirect-uri", redirect_uri, *scopes, *flags)
        return client | {"redirect_uri": redirect_uri}

    def add_user(self, email, *flags):
        return self.command("user", "add", email, "--generate-password", *flags)

    def stop(self):
        try:
            self.process.terminate()
            code = self.process.wait(timeout=15)
            if code or "panicked at" in self.log:
                raise RuntimeError(f"idsvc ended with {code}:\n{self.log}")
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            shutil.rmtree(self.directory, ignore_errors=True)


class Upstream:
    """Another OpenID provider (oidc-provider), at which one account is always signed in."""

    def __init__(self, account, clients):
        options = json.dumps({"autoLogin": account, "clients": clients})
        self.process = subprocess.Popen(
            ["node", Path(__file__).parent / "upstream.mjs", options], stdout=subprocess.PIPE, text=True
        )
        started = json.loads(self.process.stdout.readline())
        self.issuer, self.ca_file, self.flags = started["issuer"], started["ca_file"], started["flags"]

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=15)
        self.process.stdout.close()


class Forms(HTMLParser):
    """The forms of a page, each with its action and its fields."""

    def __init__(self, html):
        super().__init__()
        self.forms = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "form":
            self.forms.append({"action": attributes.get("action", ""), "fields": {}})
        elif tag == "input" and self.forms and attributes.get("name"):
            self.forms[-1]["fields"][attributes["name"]] = attributes.get("value") or ""


class Browser:
    """Keeps cookies, fills in the sign-in form and stops where the service sends it away."""

    def __init__(self, server):
        self.server = server
        self.session = requests.Session()
        self.session.verify = str(server.ca_file)
        self.session.trust_env = False

    def authorize(self, url, user=None):
        """Opens an authorization request and answers the address it ends at, signing in on the way."""
        answer = self.visit("GET", url)
        if isinstance(answer, requests.Response):
            form = next(form for form in Forms(answer.text).forms if "password" in form["fields"])
            fields = form["fields"] | {"username": user["account_id"], "password": user["password"]}
            headers = {"Origin": self.server.issuer, "Sec-Fetch-Site": "same-origin"}
            answer = self.visit("POST", urljoin(answer.url, form["action"]), data=fields, headers=headers)
        if not isinstance(answer, str):
            raise AssertionError(f"still at {answer.url}: {answer.status_code} {answer.text}")
        return answer

    def visit(self, method, url, **options):
        for _ in range(10):
            if not url.startswith(f"{self.server.issuer}/"):
                return url
            answer = self.session.request(method, url, allow_redirects=False, timeout=30, **options)
            if not answer.is_redirect:
                return answer
            url, method, options = urljoin(url, answer.headers["Location"]), "GET", {}
        raise AssertionError(f"too many redirects, the last one to {url}")
