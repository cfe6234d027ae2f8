//! Proof Key for Code Exchange.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::oauth::client::{AuthMethod, Client, PkceRequirement};
use ring::digest;

use crate::harness::relying_party::{CHALLENGE, VERIFIER};
use crate::harness::{Server, scene};

/// Appendix B, and section 4.6: the verifier is compared with the challenge.
#[tokio::test]
async fn the_example_of_the_document_is_redeemed() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let code = browser
        .authorize(&acme.request().with_challenge())
        .await
        .through()
        .await
        .code();
    for verifier in [
        CHALLENGE,
        "short",
        &VERIFIER[1..],
        &format!("{VERIFIER}x"),
        &"x".repeat(129),
    ] {
        assert_eq!(
            acme.redeem(&code).with("code_verifier", verifier).await.error(),
            "invalid_grant"
        );
    }
    assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
    acme.redeem(&code).with("code_verifier", VERIFIER).await.tokens();
}

/// Section 4.1: a verifier that could be guessed is refused, though its digest agrees.
#[tokio::test]
async fn a_verifier_has_43_to_128_unreserved_characters() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let redeem = async |verifier: &str| {
        let hash = digest::digest(&digest::SHA256, verifier.as_bytes());
        let challenge = URL_SAFE_NO_PAD.encode(hash);
        let request = acme
            .request()
            .with("code_challenge", &challenge)
            .with("code_challenge_method", "S256");
        let code = browser.authorize(&request).await.through().await.code();
        acme.redeem(&code).with("code_verifier", verifier).await
    };
    for verifier in [
        "a".repeat(42),
        "a".repeat(129),
        "a".repeat(42) + "+",
        "a".repeat(42) + "é",
    ] {
        let refused = redeem(&verifier).await;
        assert_eq!(refused.error(), "invalid_grant");
    }
    for verifier in ["a".repeat(43), "-._~".repeat(32)] {
        redeem(&verifier).await.tokens();
    }
}

/// Section 4.3, RFC 9700 section 2.1.1: `plain`, which is also what a request without a method means, is refused.
#[tokio::test]
async fn only_s256_is_accepted() {
    let (server, acme, alice) = scene().await;
    let app = server.public_client("app").await;
    for party in [&acme, &app] {
        let request = party.request().with_challenge();
        for request in [
            request.clone().with("code_challenge_method", "plain"),
            request.clone().with("code_challenge_method", "s256"),
            request.clone().without("code_challenge_method"),
            request.clone().without("code_challenge"),
            request
                .clone()
                .with("code_challenge", VERIFIER.trim_end_matches('k')),
        ] {
            let callback = alice.browser().authorize(&request).await.callback();
            assert_eq!(callback.error(), "invalid_request");
        }
    }
}

/// Section 4.4.1, RFC 9700 section 2.1.1: public clients must, confidential ones where the operator says so.
#[tokio::test]
async fn a_challenge_is_demanded_of_public_clients_and_where_it_is_required() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let app = server.public_client("app").await;
    let strict = server
        .client_with("strict", |client| client.pkce = PkceRequirement::Required)
        .await;
    for party in [&app, &strict] {
        let request = party
            .request()
            .without("code_challenge")
            .without("code_challenge_method");
        assert_eq!(
            alice.browser().authorize(&request).await.callback().error(),
            "invalid_request"
        );
        party.tokens(&alice.browser()).await;
    }
}

/// The same holds for a sign-in that began earlier: without a secret and a verifier, anyone could redeem the code.
#[tokio::test]
async fn a_client_that_has_to_use_pkce_by_now_brings_no_sign_in_without_it_to_an_end() {
    let strict: fn(&mut Client) = |client| client.pkce = PkceRequirement::Required;
    let public: fn(&mut Client) = |client| {
        client.token_endpoint_auth_methods = [AuthMethod::None].into();
        client.secrets.clear();
    };
    for (change, is_public) in [(strict, false), (public, true)] {
        let (server, acme, alice) = scene().await;
        let page = alice.browser().authorize(&acme.request()).await;
        let code = acme.code(&alice.browser()).await;
        server.change_client(&acme, change).await;
        assert_eq!(page.sign_in().await.status, 400);
        let redeemed = acme.redeem(&code);
        let redeemed = if is_public {
            redeemed.without_header("authorization").with("client_id", "acme")
        } else {
            redeemed
        };
        assert_eq!(redeemed.await.error(), "invalid_grant");
    }
}

/// RFC 9700 section 2.1.1: a client that sends a verifier believes that there was a challenge.
#[tokio::test]
async fn a_verifier_without_a_challenge_is_refused() {
    let (_server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    assert_eq!(
        acme.redeem(&code).with("code_verifier", VERIFIER).await.error(),
        "invalid_grant"
    );
}
