//! RFC 8705 sections 2 and 5: clients that authenticate with a certificate, and the listener where they show it.

use std::time::Duration;

use idsvc::admin::client::UpdateClient;
use idsvc::jose::jwt;
use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::assertion::ASSERTION_TYPE;
use idsvc::oauth::client::{AuthMethod, Client, ClientOrigin, GrantType};
use idsvc::oauth::client_metadata::ClientFields;
use idsvc::random::Random;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, SanType};
use serde_json::json;
use time::OffsetDateTime;

use crate::harness::mtls::{CertificateListener, ClientCa, Holder, name, start, start_reaching};
use crate::harness::wire::Call;
use crate::harness::{RelyingParty, START, Say, Server, Upstream};

const SUBJECT: &[(DnType, &str)] = &[
    (DnType::CountryName, "BE"),
    (DnType::OrganizationName, "Example"),
    (DnType::CommonName, "bank"),
];
const DN: &str = "CN=bank,O=Example,C=BE";
const REFUSED: &str = "401 invalid_client: client authentication failed";

/// Registers a name.
type Set = fn(&mut Client, &str);

/// A client that authenticates with a certificate of an authority.
async fn bank(server: &Server, change: impl FnOnce(&mut Client)) -> RelyingParty {
    server
        .client_with("bank", |client| {
            client.secrets.clear();
            client.token_endpoint_auth_methods = [AuthMethod::TlsClientAuth].into();
            client.grant_types.insert(GrantType::ClientCredentials);
            client.tls_client_auth_subject_dn = Some(DN.to_owned());
            change(client);
        })
        .await
}

fn token_request(party: &RelyingParty) -> Call {
    let call = party.post("/oauth2/token").with("scope", "notes.read");
    call.with("grant_type", "client_credentials")
}

/// Section 2.1: the chain leads to the authority now, and the whole subject is the registered one.
#[tokio::test]
async fn a_client_is_known_by_the_subject_of_a_certificate_of_the_authority() {
    let (ca, other_ca) = (ClientCa::new(), ClientCa::new());
    let (server, listener) = start(&ca).await;
    let bank = bank(&server, |_| {}).await;
    let ask = async |holder: &Holder| token_request(&bank).over(&listener.with(holder)).await;
    let accepted = ask(&ca.issue(SUBJECT)).await.tokens();
    assert_eq!(accepted.0["token_type"], "bearer");
    assert_eq!(
        accepted.access().claims.get("cnf"),
        None,
        "not bound unless it is asked for"
    );
    let at = |seconds: u64| OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap()).unwrap();
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        ca.issue_with(|params| {
            params.distinguished_name = name(SUBJECT);
            change(params);
        })
    };
    let for_clients = with(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    ask(&for_clients).await.tokens();
    let subject = |attributes: &[(DnType, &str)]| ca.issue(attributes);
    let (c, o, cn) = (DnType::CountryName, DnType::OrganizationName, DnType::CommonName);
    for (what, holder) in [
        ("another authority", other_ca.issue(SUBJECT)),
        ("self-signed", Holder::self_signed(SUBJECT)),
        (
            "expired",
            with(&|params| params.not_after = at(START.seconds() - 1)),
        ),
        (
            "not valid yet",
            with(&|params| params.not_before = at(START.seconds() + 60)),
        ),
        (
            "for servers",
            with(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
        ),
        (
            "the wanted subject as a part",
            subject(&[
                (c.clone(), "BE"),
                (o.clone(), "Example"),
                (DnType::OrganizationalUnitName, "guests"),
                (cn.clone(), "bank"),
            ]),
        ),
        (
            "a part of the wanted subject",
            subject(&[(c.clone(), "BE"), (cn.clone(), "bank")]),
        ),
        (
            "the subject as one attribute",
            subject(&[(cn.clone(), "bank,O=Example,C=BE")]),
        ),
        (
            "another order",
            subject(&[(cn.clone(), "bank"), (o.clone(), "Example"), (c.clone(), "BE")]),
        ),
        (
            "a longer name",
            subject(&[(c.clone(), "BE"), (o.clone(), "Example"), (cn.clone(), "bank2")]),
        ),
    ] {
        assert_eq!(ask(&holder).await.refusal(), REFUSED, "{what}");
    }
    let without = token_request(&bank).over(&listener.without()).await;
    assert_eq!(without.refusal(), REFUSED);
    assert_eq!(
        token_request(&bank).await.refusal(),
        REFUSED,
        "at the other listener"
    );
    // The time counts at each request, not at the handshake.
    let short = with(&|params| params.not_after = at(START.seconds() + 60));
    ask(&short).await.tokens();
    server.clock.advance(Duration::from_secs(61));
    assert_eq!(ask(&short).await.refusal(), REFUSED);
}

/// Section 2: `client_id` comes with the certificate. Nothing else authenticates such a client.
#[tokio::test]
async fn the_certificate_counts_with_client_id_and_without_other_credentials() {
    let ca = ClientCa::new();
    let (server, listener) = start(&ca).await;
    let bank = bank(&server, |_| {}).await;
    let acme = server.client("acme").await;
    let wire = listener.with(&ca.issue(SUBJECT));
    let unnamed = token_request(&bank).without("client_id").over(&wire).await;
    assert_eq!(
        unnamed.refusal(),
        "401 invalid_client: client_id is missing; it goes with a client certificate"
    );
    let other = token_request(&bank).with("client_id", "acme").over(&wire).await;
    assert_eq!(other.refusal(), REFUSED, "acme has a secret");
    let with_secret = token_request(&bank)
        .with("client_secret", "any")
        .over(&wire)
        .await;
    assert_eq!(with_secret.refusal(), REFUSED);
    let basic = acme
        .post("/oauth2/introspect")
        .with("token", "x")
        .over(&wire)
        .await;
    assert_eq!(basic.status, 200, "a client with a secret may show a certificate");
    for path in ["/oauth2/introspect", "/oauth2/revoke"] {
        let answer = bank.post(path).with("token", "x").over(&wire).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    let pushed = bank.post("/oauth2/par").over(&wire).with("response_type", "code");
    let pushed = pushed.with("redirect_uri", bank.redirect_uri()).await;
    assert_eq!(pushed.status, 201, "{}", pushed.text());
}

/// RFC 9126 section 2: an assertion in a pushed request may name the token endpoint, at this listener as well.
#[tokio::test]
async fn an_assertion_may_name_the_addresses_of_the_listener() {
    let (server, listener) = start(&ClientCa::new()).await;
    let key = SigningKey::generate_es256(&Random::system()).unwrap();
    let jwk = key.public().to_jwk();
    let acme = server
        .client_with("acme", |client| {
            client.secrets.clear();
            client.jwks = vec![jwk];
            client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
        })
        .await;
    let parameters = acme.request().parameters;
    for (path, status) in [("par", 201), ("token", 201), ("revoke", 401)] {
        let claims = json!({
            "iss": "acme", "sub": "acme", "aud": format!("https://id.example.test:9443/oauth2/{path}"),
            "jti": Random::system().uuid_v4(), "exp": server.clock.now().seconds() + 60,
        });
        let call = server.post("/oauth2/par").fields(&parameters);
        let call = call.with("client_assertion_type", ASSERTION_TYPE);
        let call = call.with("client_assertion", &jwt::sign(&key, "JWT", &claims).unwrap());
        let reply = call.over(&listener.without()).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
    }
}

/// Section 2.1.2: one alternative name of each kind.
#[tokio::test]
async fn a_client_is_known_by_one_alternative_name_of_its_certificate() {
    let ca = ClientCa::new();
    let (server, listener) = start(&ca).await;
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let uri = |name: &str| SanType::URI(name.try_into().unwrap());
    let email = |name: &str| SanType::Rfc822Name(name.try_into().unwrap());
    let ip = |name: &str| SanType::IpAddress(name.parse().unwrap());
    let cases: [(Set, &str, SanType, Vec<SanType>); 5] = [
        (
            |client, name| client.tls_client_auth_san_dns = Some(name.to_owned()),
            "Bank.example.com",
            dns("bank.EXAMPLE.com"),
            vec![
                dns("a.bank.example.com"),
                dns("*.example.com"),
                uri("https://bank.example.com"),
                email("x@bank.example.com"),
            ],
        ),
        (
            |client, name| client.tls_client_auth_san_uri = Some(name.to_owned()),
            "spiffe://example.com/bank",
            uri("spiffe://example.com/bank"),
            vec![
                uri("spiffe://example.com/bank/"),
                uri("spiffe://example.com/Bank"),
                dns("example.com"),
            ],
        ),
        (
            |client, name| client.tls_client_auth_san_ip = Some(name.to_owned()),
            "2001:db8:0::1",
            ip("2001:db8::1"),
            vec![ip("2001:db8::2"), ip("192.0.2.1"), dns("2001-db8--1")],
        ),
        (
            |client, name| client.tls_client_auth_san_ip = Some(name.to_owned()),
            "192.0.2.1",
            ip("192.0.2.1"),
            vec![ip("::ffff:192.0.2.1"), dns("192.0.2.1")],
        ),
        (
            |client, name| client.tls_client_auth_san_email = Some(name.to_owned()),
            "bank@example.com",
            email("bank@EXAMPLE.com"),
            vec![
                email("Bank@example.com"),
                email("bank@example.com.evil.example"),
                dns("example.com"),
            ],
        ),
    ];
    for (set, registered, right, wrong) in cases {
        let bank = bank(&server, |client| {
            client.tls_client_auth_subject_dn = None;
            set(client, registered);
        })
        .await;
        let ask = async |names: Vec<SanType>| {
            let holder = ca.issue_with(|params| params.subject_alt_names = names);
            token_request(&bank).over(&listener.with(&holder)).await
        };
        ask(vec![dns("other.example"), right.clone()]).await.tokens();
        for name in wrong {
            assert_eq!(
                ask(vec![name.clone()]).await.refusal(),
                REFUSED,
                "{registered} {name:?}"
            );
        }
        // The subject is another name.
        let by_subject = ca.issue(&[(DnType::CommonName, registered)]);
        let answer = token_request(&bank).over(&listener.with(&by_subject)).await;
        assert_eq!(answer.refusal(), REFUSED);
    }
}

/// Section 2.2: the key is registered, and the chain is not verified.
#[tokio::test]
async fn a_self_signed_certificate_is_known_by_its_registered_key() {
    let ca = ClientCa::new();
    let (server, listener) = start(&ca).await;
    let holder = Holder::self_signed(SUBJECT);
    let jwk = holder.jwk();
    let bank = bank(&server, |client| {
        client.token_endpoint_auth_methods = [AuthMethod::SelfSignedTlsClientAuth].into();
        client.tls_client_auth_subject_dn = None;
        client.self_signed_tls_client_auth = true;
        client.jwks = vec![Holder::self_signed(&[]).jwk(), jwk.clone()];
    })
    .await;
    let ask = async |holder: &Holder| token_request(&bank).over(&listener.with(holder)).await;
    ask(&holder).await.tokens();
    ask(&holder.renewed(&[(DnType::CommonName, "renewed")]))
        .await
        .tokens();
    for other in [Holder::self_signed(SUBJECT), ca.issue(SUBJECT)] {
        assert_eq!(ask(&other).await.refusal(), REFUSED);
    }
    let without = token_request(&bank).over(&listener.without()).await;
    assert_eq!(without.refusal(), REFUSED);
}

/// Section 2.2.2: keys may be published. A renewed one is fetched when it is used first.
#[tokio::test]
async fn a_self_signed_certificate_is_known_by_a_published_key() {
    let website = Upstream::start().await;
    let (server, listener) = start_reaching(&ClientCa::new(), website.terms()).await;
    let (first, second) = (Holder::self_signed(SUBJECT), Holder::self_signed(SUBJECT));
    let publish = |holder: &Holder| website.say("/jwks", Say::Json(json!({ "keys": [holder.jwk()] })));
    publish(&first);
    let bank = bank(&server, |client| {
        client.token_endpoint_auth_methods = [AuthMethod::SelfSignedTlsClientAuth].into();
        client.tls_client_auth_subject_dn = None;
        client.self_signed_tls_client_auth = true;
        client.jwks_uri = Some(format!("{}/jwks", website.issuer));
    })
    .await;
    let ask = async |holder: &Holder| token_request(&bank).over(&listener.with(holder)).await;
    ask(&first).await.tokens();
    assert_eq!(ask(&second).await.refusal(), REFUSED);
    publish(&second);
    server.clock.advance(Duration::from_secs(61));
    ask(&second).await.tokens();
    assert_eq!(ask(&first).await.refusal(), REFUSED);
}

/// The service cannot check that a certificate belongs to a client that registered itself.
#[tokio::test]
async fn a_client_that_registered_itself_cannot_authenticate_with_a_certificate() {
    let (server, _listener) = start(&ClientCa::new()).await;
    let jwk = Holder::self_signed(SUBJECT).jwk();
    server
        .client_with("own", |client| {
            client.origin = ClientOrigin::DynamicRegistration;
            client.jwks = vec![jwk];
        })
        .await;
    let by_key = ClientFields {
        self_signed_tls_client_auth: Some(true),
        ..ClientFields::default()
    };
    let by_name = ClientFields {
        tls_client_auth_subject_dn: Some(DN.to_owned()),
        ..ClientFields::default()
    };
    for fields in [by_key, by_name] {
        let change = UpdateClient {
            client_id: "own".to_owned(),
            no_secret: true,
            fields,
        };
        let refused = server.admin().call(change).await.unwrap_err();
        let problem = "a client that registered itself cannot authenticate with a certificate";
        assert!(refused.to_string().contains(problem), "{refused}");
    }
}

/// Section 5: nothing for people, and nothing that needs no client, is answered there.
#[tokio::test]
async fn pages_are_not_served_where_clients_show_certificates() {
    let ca = ClientCa::new();
    let (server, listener) = start(&ca).await;
    let wire = listener.without();
    for path in [
        "/",
        "/login",
        "/account",
        "/consent",
        "/device",
        "/oauth2/authorize?client_id=acme",
        "/oauth2/jwks",
        "/oauth2/register",
        "/assets/page.css",
        "/.well-known/openid-configuration",
        "/nothing",
    ] {
        let answer = server.get(path).header("accept", "text/html").over(&wire).await;
        assert_eq!((answer.status, answer.text()), (404, ""), "{path}");
    }
    assert_eq!(server.get("/healthz").over(&wire).await.status, 200);
}

/// Sections 3.3 and 5.
#[tokio::test]
async fn discovery_says_where_clients_show_certificates() {
    let (server, _listener) = start(&ClientCa::new()).await;
    let document = server.get("/.well-known/openid-configuration").await.json();
    let at = |path: &str| format!("https://id.example.test:9443{path}");
    assert_eq!(
        document["mtls_endpoint_aliases"],
        json!({
            "token_endpoint": at("/oauth2/token"),
            "device_authorization_endpoint": at("/oauth2/device_authorization"),
            "pushed_authorization_request_endpoint": at("/oauth2/par"),
            "introspection_endpoint": at("/oauth2/introspect"),
            "revocation_endpoint": at("/oauth2/revoke"),
            "userinfo_endpoint": at("/oauth2/userinfo"),
        })
    );
    assert_eq!(
        document["tls_client_certificate_bound_access_tokens"],
        json!(true)
    );
    for endpoint in ["token", "introspection", "revocation"] {
        let methods = &document[format!("{endpoint}_endpoint_auth_methods_supported")];
        for method in ["tls_client_auth", "self_signed_tls_client_auth"] {
            assert!(methods.as_array().unwrap().contains(&json!(method)), "{endpoint}");
        }
    }
    let without_authority = Server::start_with(|policy| policy.mtls.port = Some(9443)).await;
    let document = without_authority.get("/.well-known/openid-configuration").await;
    assert!(
        !document.text().contains("\"tls_client_auth\""),
        "{}",
        document.text()
    );
    assert!(document.text().contains("self_signed_tls_client_auth"));
    let plain = Server::start().await;
    let document = plain.get("/.well-known/openid-configuration").await;
    assert!(!document.text().contains("tls_client"), "{}", document.text());
    assert!(!document.text().contains("mtls"));
}

/// A chain is bounded, so that a stranger cannot make the service read and keep much.
#[tokio::test]
async fn a_chain_of_many_certificates_ends_the_handshake() {
    let ca = ClientCa::new();
    let (server, listener) = start(&ca).await;
    let bank = bank(&server, |_| {}).await;
    let with = async |listener: &CertificateListener, length: usize| {
        let mut holder = ca.issue(SUBJECT);
        let own = holder.chain[0].clone();
        holder.chain.resize(length, own);
        token_request(&bank)
            .over(&listener.with(&holder))
            .try_send()
            .await
    };
    assert!(with(&listener, 8).await.is_ok());
    assert!(with(&listener, 9).await.is_err());
}
