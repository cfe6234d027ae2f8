"""The service as requests-oauthlib sees it."""

import unittest

from requests_oauthlib import OAuth2Session

from harness import Browser, Server

REDIRECT_URI = "https://app.example/cb"
SCOPE = ["openid", "email"]


class RequestsOauthlibTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().start()
        cls.addClassCleanup(cls.server.stop)
        cls.alice = cls.server.add_user("alice@example.com")

    def sign_in(self, client):
        """The code flow with PKCE; answers the session and its tokens."""
        session = OAuth2Session(client["client_id"], redirect_uri=REDIRECT_URI, scope=SCOPE, pkce="S256")
        session.verify, session.trust_env = str(self.server.ca_file), False
        url, _ = session.authorization_url(f"{self.server.issuer}/oauth2/authorize")
        answer = Browser(self.server).authorize(url, self.alice)
        token = session.fetch_token(
            f"{self.server.issuer}/oauth2/token",
            authorization_response=answer,
            client_secret=client["client_secret"],
        )
        return session, token

    def test_a_scope_that_was_not_asked_for_is_an_error(self):
        marked = self.server.add_client("marked", REDIRECT_URI)
        with self.assertRaisesRegex(Warning, "Scope has changed"):
            self.sign_in(marked)

    def test_without_the_marker_it_signs_in_and_refreshes(self):
        web = self.server.add_client("web", REDIRECT_URI, "--scope-marker", "off")
        session, token = self.sign_in(web)
        self.assertEqual(token["scope"], SCOPE)
        userinfo = session.get(f"{self.server.issuer}/oauth2/userinfo").json()
        self.assertEqual(userinfo["email"], "alice@example.com")
        fresh = session.refresh_token(
            f"{self.server.issuer}/oauth2/token", auth=(web["client_id"], web["client_secret"])
        )
        self.assertNotEqual(fresh["refresh_token"], token["refresh_token"])
        self.assertEqual(fresh["scope"], SCOPE)


if __name__ == "__main__":
    unittest.main()
