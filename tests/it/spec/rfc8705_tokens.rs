//! RFC 8705 sections 3 and 4: tokens that are bound to the certificate of the client.

use idsvc::oauth::client::{AuthMethod, Client, StoredApiKey};
use idsvc::random::Random;
use idsvc::secret::{ApiKey, Secret};
use rcgen::DnType;
use serde_json::json;

use crate::anonymous_upgrade::{opted_in, push};
use crate::harness::dpop::KeyHolder;
use crate::harness::mtls::{CertificateListener, ClientCa, Holder, start};
use crate::harness::wire::Wire;
use crate::harness::{Person, RelyingParty, Server, Tokens};

const NO_CERTIFICATE: &str = "400 invalid_request: this client must send its certificate, to the address in mtls_endpoint_aliases of discovery";
const INVALID_TOKEN: &str = "401 Bearer realm=\"idsvc\", error=\"invalid_token\"";

struct Scene {
    server: Server,
    listener: CertificateListener,
    party: RelyingParty,
    alice: Person,
    ca: ClientCa,
}

/// A client with certificate-bound tokens.
async fn scene(change: impl FnOnce(&mut Client)) -> Scene {
    let ca = ClientCa::new();
    let (server, listener) = start(&ca).await;
    let party = server
        .client_with("bank", |client| {
            client.tls_client_certificate_bound_access_tokens = true;
            change(client);
        })
        .await;
    let alice = server.user("alice").await;
    Scene {
        server,
        listener,
        party,
        alice,
        ca,
    }
}

fn by_certificate(client: &mut Client) {
    client.secrets.clear();
    client.token_endpoint_auth_methods = [AuthMethod::TlsClientAuth].into();
    client.tls_client_auth_subject_dn = Some("CN=bank".to_owned());
}

fn public(client: &mut Client) {
    client.secrets.clear();
    client.token_endpoint_auth_methods = [AuthMethod::None].into();
}

impl Scene {
    fn certificate(&self) -> Holder {
        self.ca.issue(&[(DnType::CommonName, "bank")])
    }

    /// The tokens of a sign-in whose code was redeemed this way.
    async fn tokens(&self, wire: &Wire) -> Tokens {
        let code = self.party.code(&self.alice.browser()).await;
        self.party.redeem(&code).over(wire).await.tokens()
    }
}

fn assert_bound(tokens: &Tokens, holder: &Holder) {
    assert_eq!(tokens.0["token_type"], "bearer");
    assert_eq!(
        tokens.access().claims["cnf"],
        json!({ "x5t#S256": holder.thumbprint() })
    );
}

/// Sections 3 and 3.1: a stolen token is refused without the certificate.
#[tokio::test]
async fn a_bound_token_is_good_with_its_certificate_only() {
    for change in [by_certificate as fn(&mut Client), public, |_| {}] {
        let scene = scene(change).await;
        let holder = scene.certificate();
        let wire = scene.listener.with(&holder);
        let tokens = scene.tokens(&wire).await;
        assert_bound(&tokens, &holder);
        let userinfo = || scene.party.userinfo(tokens.access_token());
        assert_eq!(userinfo().over(&wire).await.status, 200);
        for other in [
            scene.listener.with(&scene.certificate()),
            scene
                .listener
                .with(&Holder::self_signed(&[(DnType::CommonName, "bank")])),
            scene.listener.without(),
        ] {
            assert_eq!(userinfo().over(&other).await.challenge(), INVALID_TOKEN);
        }
        assert_eq!(
            userinfo().await.challenge(),
            INVALID_TOKEN,
            "at the other listener"
        );
        let key = KeyHolder::new();
        let url = "https://id.example.test:9443/oauth2/userinfo";
        let proof = key.proof_at("GET", url, scene.server.clock.now());
        let with_proof = userinfo()
            .without_header("authorization")
            .header("authorization", &format!("DPoP {}", tokens.access_token()))
            .header("dpop", &proof.of(tokens.access_token()).sign());
        assert!(
            with_proof
                .over(&wire)
                .await
                .challenge()
                .contains("error=\"invalid_token\"")
        );
    }
}

/// Section 3: a client with certificate-bound tokens gets no unbound ones.
#[tokio::test]
async fn a_client_with_bound_tokens_gets_none_without_a_certificate() {
    for change in [public as fn(&mut Client), |_| {}] {
        let scene = scene(change).await;
        let code = scene.party.code(&scene.alice.browser()).await;
        let redeem = || scene.party.redeem(&code);
        assert_eq!(redeem().await.refusal(), NO_CERTIFICATE);
        let without = scene.listener.without();
        assert_eq!(redeem().over(&without).await.refusal(), NO_CERTIFICATE);
        let wire = scene.listener.with(&scene.certificate());
        let key = KeyHolder::new();
        let proof = key.proof_at(
            "POST",
            "https://id.example.test:9443/oauth2/token",
            scene.server.clock.now(),
        );
        let both = redeem().header("dpop", &proof.sign()).over(&wire).await;
        assert_eq!(
            both.refusal(),
            "400 invalid_request: the tokens of this client are bound to its certificate; leave the DPoP header out"
        );
        redeem().over(&wire).await.tokens();
    }
}

/// Section 4: the refresh tokens of a public client are bound to its certificate.
#[tokio::test]
async fn a_public_client_refreshes_with_the_certificate_of_its_first_tokens() {
    let scene = scene(public).await;
    let holder = scene.certificate();
    let wire = scene.listener.with(&holder);
    let tokens = scene.tokens(&wire).await;
    let refresh = || scene.party.refresh(tokens.refresh_token());
    let other = scene.listener.with(&scene.certificate());
    assert_eq!(
        refresh().over(&other).await.refusal(),
        "400 invalid_grant: the grant is bound to another certificate"
    );
    assert_eq!(refresh().await.refusal(), NO_CERTIFICATE);
    scene
        .server
        .change_client(&scene.party, |client| {
            client.tls_client_certificate_bound_access_tokens = false;
        })
        .await;
    assert_eq!(
        refresh().await.refusal(),
        "400 invalid_grant: the grant is bound to a certificate, and the tokens of this client no longer are"
    );
    scene
        .server
        .change_client(&scene.party, |client| {
            client.tls_client_certificate_bound_access_tokens = true;
        })
        .await;
    assert_bound(&refresh().over(&wire).await.tokens(), &holder);
}

/// Section 7.1: authentication binds the refresh tokens of other clients, so a renewed certificate works.
#[tokio::test]
async fn a_client_that_authenticates_refreshes_with_a_renewed_certificate() {
    let scene = scene(by_certificate).await;
    let first = scene.certificate();
    let tokens = scene.tokens(&scene.listener.with(&first)).await;
    assert_bound(&tokens, &first);
    let renewed = scene.certificate();
    let wire = scene.listener.with(&renewed);
    let next = scene
        .party
        .refresh(tokens.refresh_token())
        .over(&wire)
        .await
        .tokens();
    assert_bound(&next, &renewed);
    assert_eq!(
        scene.party.userinfo(next.access_token()).over(&wire).await.status,
        200
    );
}

/// Section 3.2.
#[tokio::test]
async fn introspection_says_what_a_token_is_bound_to() {
    let scene = scene(by_certificate).await;
    let holder = scene.certificate();
    let wire = scene.listener.with(&holder);
    let tokens = scene.tokens(&wire).await;
    let answer = scene
        .party
        .introspect(tokens.access_token())
        .over(&wire)
        .await
        .json();
    assert_eq!(answer["cnf"], json!({ "x5t#S256": holder.thumbprint() }));
    assert_eq!(answer["token_type"], "bearer");
}

/// The refresh endpoint for API keys binds as the token endpoint does.
#[tokio::test]
async fn a_refresh_by_api_key_is_bound_too() {
    let api_key = Secret::<ApiKey>::generate(Random::system().uuid_v4().as_bytes(), &Random::system());
    let stored = StoredApiKey {
        id: uuid::Uuid::from_slice(api_key.locator()).unwrap(),
        digest: api_key.digest(),
        created_at: crate::harness::START,
    };
    let scene = scene(|client| client.api_keys.push(stored)).await;
    let holder = scene.certificate();
    let wire = scene.listener.with(&holder);
    let tokens = scene.tokens(&wire).await;
    let refresh = || {
        let call = scene
            .server
            .post("/v4/tokens")
            .with("grant_type", "refresh_token");
        call.header("authorization", &format!("Basic {}", api_key.reveal()))
            .with("refresh_token", tokens.refresh_token())
    };
    assert_eq!(refresh().await.refusal(), NO_CERTIFICATE);
    assert_bound(&refresh().over(&wire).await.tokens(), &holder);
}

/// A client may authenticate with its certificate and bind its tokens to a DPoP key. Its proofs name the address that it
/// calls.
#[tokio::test]
async fn a_proof_names_the_address_where_the_certificate_is_shown() {
    let scene = scene(|client| {
        by_certificate(client);
        client.tls_client_certificate_bound_access_tokens = false;
    })
    .await;
    let wire = scene.listener.with(&scene.certificate());
    let code = scene.party.code(&scene.alice.browser()).await;
    let key = KeyHolder::new();
    let proof = |url: &str| key.proof_at("POST", url, scene.server.clock.now()).sign();
    let redeem = |url: &str| scene.party.redeem(&code).header("dpop", &proof(url)).over(&wire);
    let elsewhere = redeem("https://id.example.test/oauth2/token").await;
    assert_eq!(elsewhere.error(), "invalid_dpop_proof");
    let tokens = redeem("https://id.example.test:9443/oauth2/token").await.tokens();
    assert_eq!(tokens.access().claims["cnf"], json!({ "jkt": key.thumbprint() }));
}

/// A pushed refresh token needs the certificate that it is bound to.
#[tokio::test]
async fn an_anonymous_user_is_upgraded_with_the_certificate_of_its_token_only() {
    let scene = scene(opted_in).await;
    let (holder, other) = (scene.certificate(), scene.certificate());
    let wire = scene.listener.with(&holder);
    let grant = [(
        "grant_type".to_owned(),
        "urn:service:oauth2:grant-type:anonymous".to_owned(),
    )];
    let device = scene.party.post("/oauth2/token").fields(&grant).over(&wire);
    let device = device.await.tokens();
    scene.server.change_client(&scene.party, public).await;
    let party = scene.server.party("bank", "");
    let device = party.refresh(device.refresh_token()).over(&wire).await.tokens();
    let push = || push(&party, &party.request(), device.refresh_token());
    assert_eq!(push().await.refusal(), NO_CERTIFICATE);
    let stolen = push().over(&scene.listener.with(&other)).await;
    assert_eq!(
        stolen.refusal(),
        "400 invalid_grant: the grant is bound to another certificate"
    );
    assert_eq!(push().over(&wire).await.status, 201);
}
