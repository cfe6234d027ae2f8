"""The service as Authlib sees it."""

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urljoin

from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session
from authlib.integrations.base_client.errors import OAuthError
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oidc.core import CodeIDToken
from authlib.oidc.discovery import OpenIDProviderMetadata, get_well_known_url
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, RSAKey

from harness import STANDARD_SCOPES, Browser, Server, Upstream

REDIRECT_URI = "https://app.example/cb"


class AuthlibTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        cls.addClassCleanup(cls.server.stop)
        cls.alice = cls.server.add_user("alice@example.com", "--email-verified", "--name", "Alice Example")
        cls.confidential = cls.server.add_client("web", REDIRECT_URI)
        cls.public = cls.server.add_client("native", REDIRECT_URI, "--public")

    def session(self, method="client_secret_basic", client=None):
        """A client session with the service's metadata read by discovery."""
        client = client or self.confidential
        session = OAuth2Session(
            client["client_id"],
            client.get("client_secret"),
            token_endpoint_auth_method=method,
            revocation_endpoint_auth_method=method,
            scope=" ".join(STANDARD_SCOPES),
            redirect_uri=REDIRECT_URI,
            code_challenge_method="S256",
        )
        session.verify = str(self.server.ca_file)
        session.trust_env = False
        url = get_well_known_url(self.server.issuer, external=True)
        session.metadata.update(session.request("GET", url, withhold_token=True).json())
        return session

    def sign_in(self, session, browser=None):
        """The code flow with PKCE, state, nonce and the issuer check; answers the tokens and the ID token's claims."""
        verifier, nonce = generate_token(48), generate_token(20)
        url, state = session.create_authorization_url(
            session.metadata["authorization_endpoint"], code_verifier=verifier, nonce=nonce
        )
        answer = (browser or Browser(self.server)).authorize(url, self.alice)
        self.assertIn("iss=", answer)
        token = session.fetch_token(
            session.metadata["token_endpoint"], authorization_response=answer, state=state, code_verifier=verifier
        )
        return token, self.id_token(session, token, nonce)

    def keys(self, session):
        return KeySet.import_key_set(session.request("GET", session.metadata["jwks_uri"], withhold_token=True).json())

    def id_token(self, session, token, nonce):
        parsed = jwt.decode(token["id_token"], self.keys(session), algorithms=["RS256"])
        claims = CodeIDToken(
            parsed.claims,
            parsed.header,
            {"iss": {"value": self.server.issuer}, "aud": {"value": session.client_id}},
            {"nonce": nonce, "client_id": session.client_id, "access_token": token["access_token"]},
        )
        claims.validate(leeway=5)
        return claims

    def test_metadata_is_valid(self):
        metadata = self.session().metadata
        document = {name: value for name, value in metadata.items() if name not in ("code_challenge_method",)}
        OpenIDProviderMetadata(document).validate()
        AuthorizationServerMetadata(document).validate()

    def test_every_client_authentication_signs_in_and_refreshes(self):
        for method, client in (
            ("client_secret_basic", self.confidential),
            ("client_secret_post", self.confidential),
            ("none", self.public),
        ):
            with self.subTest(method):
                session = self.session(method, client)
                token, claims = self.sign_in(session)
                self.assertEqual(claims["sub"], self.alice["uuid"])
                self.assertEqual(claims["amr"], ["pwd"])
                fresh = session.refresh_token(session.metadata["token_endpoint"], token["refresh_token"])
                self.assertNotEqual(fresh["refresh_token"], token["refresh_token"])
                self.assertEqual(fresh["account_id"], "alice@example.com")

    def test_an_access_token_is_verified_by_the_published_keys(self):
        session = self.session()
        token, _ = self.sign_in(session)
        parsed = jwt.decode(token["access_token"], self.keys(session), algorithms=["ES256"])
        self.assertEqual(parsed.header["typ"], "at+jwt")
        jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": self.server.issuer},
            aud={"essential": True, "value": self.server.issuer},
            exp={"essential": True},
        ).validate(parsed.claims)
        for name in ("account_id", "user_type", "venueId", "organization", "amr", "email", "uuid", "scope", "jti"):
            self.assertEqual(parsed.claims[name], token[name], name)

    def test_the_session_authorizes_userinfo(self):
        session = self.session()
        _, claims = self.sign_in(session)
        userinfo = session.get(session.metadata["userinfo_endpoint"]).json()
        self.assertEqual(userinfo["sub"], claims["sub"])
        self.assertEqual(userinfo["email"], "alice@example.com")
        self.assertIs(userinfo["email_verified"], True)

    def test_introspection_follows_revocation(self):
        for hint in ("access_token", "refresh_token"):
            with self.subTest(hint):
                session = self.session()
                token, _ = self.sign_in(session)
                inspect = session.metadata["introspection_endpoint"]
                before = session.introspect_token(inspect, token=token[hint], token_type_hint=hint).json()
                self.assertIs(before["active"], True)
                self.assertEqual(before["client_id"], "web")
                answer = session.revoke_token(session.metadata["revocation_endpoint"], token[hint], hint)
                self.assertEqual(answer.status_code, 200)
                after = session.introspect_token(inspect, token=token[hint], token_type_hint=hint).json()
                self.assertEqual(after, {"active": False})

    def test_a_public_client_revokes_its_token(self):
        session = self.session("none", self.public)
        token, _ = self.sign_in(session)
        session.revoke_token(session.metadata["revocation_endpoint"], token["refresh_token"], "refresh_token")
        with self.assertRaises(OAuthError) as caught:
            session.refresh_token(session.metadata["token_endpoint"], token["refresh_token"])
        self.assertEqual(caught.exception.error, "invalid_grant")

    def test_a_client_acts_for_itself_with_its_key(self):
        key = RSAKey.generate_key(2048)
        file = self.server.directory / "robot.pem"
        file.write_bytes(key.as_pem(private=False))
        flags = ("--grant", "client_credentials", "--scope", "services:all", "--public-key-file", str(file))
        robot = self.server.command("client", "add", "robot", *flags)
        session = self.session("private_key_jwt", {"client_id": "robot", "client_secret": key})
        session.scope = "services:all"
        session.register_client_auth_method(PrivateKeyJWT(session.metadata["token_endpoint"]))
        for _ in range(2):
            token = session.fetch_token(session.metadata["token_endpoint"], grant_type="client_credentials")
            self.assertEqual(token["uuid"], robot["client_uuid"])
            self.assertEqual(token["amr"], [{"authority": "client"}])
            self.assertNotIn("refresh_token", token)

    def test_a_wrong_code_verifier_is_refused(self):
        session = self.session()
        url, state = session.create_authorization_url(
            session.metadata["authorization_endpoint"], code_verifier=generate_token(48)
        )
        answer = Browser(self.server).authorize(url, self.alice)
        with self.assertRaises(OAuthError) as caught:
            session.fetch_token(
                session.metadata["token_endpoint"],
                authorization_response=answer,
                state=state,
                code_verifier=generate_token(48),
            )
        self.assertEqual(caught.exception.error, "invalid_grant")

    def test_a_signed_in_browser_is_not_asked_again(self):
        browser = Browser(self.server)
        _, first = self.sign_in(self.session(), browser)
        _, second = self.sign_in(self.session("none", self.public), browser)
        self.assertEqual(second["sid"], first["sid"])


class Api:
    """An API on loopback that takes tokens for its own address and for nothing else."""

    def __init__(self):
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                try:
                    caller = api.caller(self.headers.get("Authorization", "").removeprefix("Bearer "))
                    status, body = 200, {"sub": caller["sub"]}
                except (JoseError, ValueError) as error:
                    status, body = 401, {"error": str(error)}
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://localhost:{self.http.server_port}/notes"
        threading.Thread(target=self.http.serve_forever).start()

    def caller(self, token):
        parsed = jwt.decode(token, self.keys, algorithms=["ES256"])
        if parsed.header["typ"] != "at+jwt":
            raise ValueError("no access token")
        essential = {"iss": self.issuer, "aud": self.address}
        rules = {name: {"essential": True, "value": value} for name, value in essential.items()}
        jwt.JWTClaimsRegistry(exp={"essential": True}, **rules).validate(parsed.claims)
        return parsed.claims

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


class ResourceTest(unittest.TestCase):
    """Authlib names an API in the parameter `resource` (RFC 8707), and calls it."""

    OTHER = "https://api.example.com/other"

    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        cls.addClassCleanup(cls.server.stop)
        cls.alice = cls.server.add_user("alice@example.com")
        cls.api = Api()
        cls.addClassCleanup(cls.api.stop)
        cls.server.command("api", "add", "notes", "--identifier", cls.api.address, "--scope", "notes.read")
        cls.server.command("api", "add", "other", "--identifier", cls.OTHER, "--scope", "other.read")
        cls.app = cls.server.add_client("app", REDIRECT_URI, "--api", "notes", "--api", "other")

    def test_a_person_signs_in_for_an_api_and_the_session_calls_it(self):
        session = OAuth2Session(
            self.app["client_id"],
            self.app["client_secret"],
            scope="notes.read other.read",
            redirect_uri=REDIRECT_URI,
            code_challenge_method="S256",
        )
        session.verify, session.trust_env = str(self.server.ca_file), False
        endpoint = f"{self.server.issuer}/oauth2/token"
        keys = session.request("GET", f"{self.server.issuer}/oauth2/jwks", withhold_token=True)
        self.api.keys, self.api.issuer = KeySet.import_key_set(keys.json()), self.server.issuer

        verifier, both = generate_token(48), [self.api.address, self.OTHER]
        url, state = session.create_authorization_url(
            f"{self.server.issuer}/oauth2/authorize", code_verifier=verifier, resource=both
        )
        answer = Browser(self.server).authorize(url, self.alice)
        session.fetch_token(
            endpoint, authorization_response=answer, state=state, code_verifier=verifier, resource=self.api.address
        )
        self.assertEqual(session.token["scope"].split(), ["notes.read", "authenticated"])
        self.assertEqual(session.get(self.api.address).json(), {"sub": self.alice["uuid"]})

        session.refresh_token(endpoint, resource=self.OTHER)
        self.assertEqual(session.get(self.api.address).status_code, 401)
        session.refresh_token(endpoint, resource=self.api.address)
        self.assertEqual(session.get(self.api.address).status_code, 200)


class ExchangeTest(unittest.TestCase):
    """An ID token that Authlib got from another provider is exchanged by Authlib."""

    THERE = {"client_id": "their-app", "client_secret": "s" * 40, "redirect_uris": [REDIRECT_URI]}
    GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"

    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream("bert", [cls.THERE])
        cls.addClassCleanup(cls.upstream.stop)
        cls.server = Server(cls.upstream.flags).start()
        cls.addClassCleanup(cls.server.stop)
        trust = ("--exchange", "--audience", cls.THERE["client_id"], "--create-users", "--addresses", "verified")
        cls.server.command("provider", "add", "partner", "--issuer", cls.upstream.issuer, *trust)
        grants = ("--grant", "authorization_code", "--grant", "refresh_token", "--grant", "jwt-bearer")
        cls.app = cls.server.add_client("app", REDIRECT_URI, "--provider", "partner", *grants)

    def id_token(self):
        """The code flow at the provider."""
        session = OAuth2Session(
            self.THERE["client_id"], self.THERE["client_secret"], scope="openid email", redirect_uri=REDIRECT_URI
        )
        session.verify, session.trust_env = self.upstream.ca_file, False
        url = get_well_known_url(self.upstream.issuer, external=True)
        metadata = session.request("GET", url, withhold_token=True).json()
        url, state = session.create_authorization_url(metadata["authorization_endpoint"], nonce=generate_token(20))
        while not url.startswith(REDIRECT_URI):
            answer = session.request("GET", url, withhold_token=True, allow_redirects=False)
            url = urljoin(url, answer.headers["Location"])
        token = session.fetch_token(metadata["token_endpoint"], authorization_response=url, state=state)
        return token["id_token"]

    def test_a_providers_token_is_exchanged_and_refreshed(self):
        session = OAuth2Session(self.app["client_id"], self.app["client_secret"])
        session.verify, session.trust_env = str(self.server.ca_file), False
        endpoint = f"{self.server.issuer}/oauth2/token"
        token = session.fetch_token(endpoint, grant_type=self.GRANT, assertion=self.id_token())
        self.assertEqual(token["amr"], [{"authority": "partner"}])
        self.assertEqual(token["account_id"], "bert@upstream.example")
        fresh = session.refresh_token(endpoint, token["refresh_token"])
        self.assertEqual(fresh["uuid"], token["uuid"])
        again = session.fetch_token(endpoint, grant_type=self.GRANT, assertion=self.id_token())
        self.assertEqual(again["uuid"], token["uuid"])
        with self.assertRaises(OAuthError) as caught:
            session.fetch_token(endpoint, grant_type=self.GRANT, assertion=token["access_token"])
        self.assertEqual(caught.exception.error, "invalid_grant")


if __name__ == "__main__":
    unittest.main()
