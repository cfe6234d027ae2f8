//! OpenID Connect Back-Channel Logout 1.0.

use std::collections::BTreeSet;

use idsvc::admin::client::{self, AddClient};
use idsvc::admin::session::{ListSessions, RevokeSessions};
use idsvc::admin::user::{self, DisableUser, EnableUser, LockUser, NewPassword, SetPassword};
use idsvc::flow::deliver::queue;
use idsvc::flow::token::jwt_bearer::NOT_ACCEPTED;
use idsvc::flow::token::token_exchange::{ACTOR_REFUSED, SUBJECT_REFUSED};
use idsvc::oauth::ClientFields;
use idsvc::oauth::client::{Client, ClientOrigin, ConsentRequirement, GrantType};
use idsvc::oauth::token_exchange::ACCESS_TOKEN;
use idsvc::server::logout_sender;
use idsvc::server::mail_sender::RunningSender;
use idsvc::store::StoreError;
use idsvc::store::table::KeyBytes;
use idsvc::store::tables::{LOGOUT_NOTICES, SESSION_CLIENTS, USED_ASSERTIONS};
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::harness::process::{Service, shown};
use crate::harness::reply::line_of;
use crate::harness::{
    Audit, Browser, ISSUER, Jwt, Person, RelyingParty, Say, Server, Tokens, Upstream, parse_form, sweep_all,
    until, write_form,
};

const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
const DAY: u64 = 24 * 60 * 60;

/// The service with a sender of notices, and the website of its clients.
pub(crate) struct Scene {
    pub(crate) website: Upstream,
    pub(crate) server: Server,
    acme: RelyingParty,
    alice: Person,
    sender: Option<(watch::Sender<u32>, RunningSender)>,
}

pub(crate) fn ok() -> Say {
    answer("204 No Content")
}

fn answer(status: &str) -> Say {
    Say::Raw(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes())
}

fn receiving(uri: String) -> impl FnOnce(&mut Client) {
    move |client| client.backchannel_logout_uri = Some(uri)
}

async fn scene() -> Scene {
    let mut scene = quiet_scene().await;
    scene.start_sender();
    scene
}

/// A scene in which nothing is sent yet.
async fn quiet_scene() -> Scene {
    let website = Upstream::start().await;
    website.say("/acme", ok());
    let server = Server::start_reaching(&website.terms(), |_| {}).await;
    let uri = format!("{}/acme", website.issuer);
    let acme = server.client_with("acme", receiving(uri)).await;
    let alice = server.user("alice").await;
    Scene {
        website,
        server,
        acme,
        alice,
        sender: None,
    }
}

impl Scene {
    fn start_sender(&mut self) {
        let (stop, stops) = watch::channel(0);
        let sender = logout_sender::start(&self.server.app, stops);
        self.sender = Some((stop, sender));
    }

    /// Another client, with its URI at this path.
    async fn client_at(&self, client_id: &str, path: &str) -> RelyingParty {
        let uri = format!("{}{path}", self.website.issuer);
        self.server.client_with(client_id, receiving(uri)).await
    }

    /// The logout tokens that were posted to a path, in order.
    fn posted(&self, path: &str) -> Vec<String> {
        let seen = self.website.seen(path).into_iter();
        seen.map(|request| {
            let names: Vec<_> = request.form.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(
                (names, request.authorization.is_none()),
                (vec!["logout_token"], true)
            );
            request.field("logout_token").unwrap().to_owned()
        })
        .collect()
    }

    async fn until_posted(&self, path: &str, count: usize) -> Vec<String> {
        until(async || self.website.seen(path).len() >= count).await;
        let posted = self.posted(path);
        assert_eq!(posted.len(), count);
        posted
    }

    fn waiting(&self) -> u64 {
        queue(&self.server.app.core, LOGOUT_NOTICES).unwrap().0
    }

    async fn until_settled(&self) {
        until(async || self.waiting() == 0).await;
    }

    /// Signs alice in at acme.
    async fn sign_in(&self) -> (Browser, Tokens) {
        let browser = self.alice.browser();
        let tokens = self.acme.tokens(&browser).await;
        (browser, tokens)
    }

    /// Lets time pass, and wakes the sender.
    fn advance(&self, seconds: u64) {
        self.server.advance(seconds);
        self.server.app.core.logout_queued.notify_one();
    }

    /// What is known of the applications of alice's sessions.
    async fn applications(&self) -> Vec<Value> {
        let request = ListSessions {
            who: "alice@example.com".to_owned(),
            ended: true,
        };
        let sessions = self.server.admin().call(request.clone()).await;
        let sessions = serde_json::to_value(sessions.unwrap()).unwrap();
        let sessions = sessions.as_array().unwrap().iter();
        sessions
            .flat_map(|session| session["applications"].as_array().unwrap().clone())
            .collect()
    }

    /// The reason of the last failed attempt, once there is one.
    async fn failure(&self) -> String {
        let mut reason = None;
        until(async || {
            let applications = self.applications().await;
            let found = applications.iter().find_map(|app| app["last_error"].as_str());
            reason = found.map(ToOwned::to_owned);
            reason.is_some()
        })
        .await;
        reason.unwrap()
    }
}

/// So many events of a name. They are recorded after the commit that settles the notice.
async fn recorded(audit: &Audit, name: &str, count: usize) -> Vec<Value> {
    let mut events = Vec::new();
    until(async || {
        events.extend(audit.take(&[name]));
        events.len() >= count
    })
    .await;
    assert_eq!(events.len(), count);
    events
}

async fn sign_out(browser: &Browser) {
    browser.visit("/logout/confirm").await.decide("logout").await;
}

/// Sections 2.2, 2.4 and 2.5: each application of the session gets a logout token for itself, and only this.
#[tokio::test]
async fn a_sign_out_tells_every_application_of_the_session() {
    let scene = scene().await;
    let silent = scene.server.client("silent").await;
    let shop = scene.client_at("shop", "/shop").await;
    scene
        .server
        .change_client(&shop, |shop| {
            shop.id_token_signed_response_alg = Some("ES256".parse().unwrap());
        })
        .await;
    scene.client_at("unused", "/unused").await;
    scene.website.say("/shop", answer("200 OK"));
    let (browser, tokens) = scene.sign_in().await;
    silent.tokens(&browser).await;
    shop.tokens(&browser).await;
    scene.acme.tokens(&browser).await;
    let elsewhere = scene.alice.browser();
    scene.acme.tokens(&elsewhere).await;
    let audit = Audit::listen();
    sign_out(&browser).await;
    for (path, party, alg) in [("/acme", &scene.acme, "RS256"), ("/shop", &shop, "ES256")] {
        let posted = scene.until_posted(path, 1).await;
        let token = party.verify(&posted[0]).await;
        assert_eq!(
            (&token.header["typ"], &token.header["alg"]),
            (&json!("logout+jwt"), &json!(alg))
        );
        let id = tokens.id().claims;
        let now = scene.server.clock.now().seconds();
        let jti = token.claims["jti"].clone();
        let expected = json!({
            "iss": ISSUER, "aud": party.client_id(), "sub": id["sub"], "sid": id["sid"],
            "jti": jti, "iat": now, "exp": now + 120, "events": { EVENT: {} },
        });
        assert_eq!(token.claims, expected);
        assert!(jti.as_str().unwrap().parse::<Uuid>().is_ok());
    }
    scene.until_settled().await;
    let told = recorded(&audit, "logout_notified", 2).await;
    let told: BTreeSet<_> = told
        .iter()
        .map(|event| event["client_id"].as_str().unwrap())
        .collect();
    assert_eq!(told, ["acme", "shop"].into());
    assert!(scene.website.seen("/unused").is_empty());
    assert_eq!(scene.posted("/acme").len(), 1, "the other session goes on");
}

/// Every end of a session is told, also that of an expired session of a user who may no longer sign in.
#[tokio::test]
async fn every_end_of_a_session_tells_the_application() {
    let scene = scene().await;
    let admin = scene.server.admin();
    for number in 0..8 {
        let name = format!("user-{number}");
        let person = scene.server.user(&name).await;
        let browser = person.browser();
        let tokens = scene.acme.tokens(&browser).await;
        let who = format!("{name}@example.com");
        let sid = tokens.id().claims["sid"].clone();
        match number {
            0 => {
                let one = RevokeSessions::One(sid.as_str().unwrap().parse().unwrap());
                admin.call(one).await.unwrap();
            }
            1 => {
                admin.call(RevokeSessions::AllOf(who)).await.unwrap();
            }
            2 => {
                let password = NewPassword::Generated;
                let keep_sessions = false;
                let request = SetPassword {
                    who,
                    password,
                    keep_sessions,
                };
                admin.call(request).await.unwrap();
            }
            3 => {
                admin.call(DisableUser { who }).await.unwrap();
            }
            4 => {
                admin.call(LockUser { who }).await.unwrap();
            }
            5 => {
                admin.call(user::RemoveUser { who }).await.unwrap();
                let rows = scene
                    .server
                    .app
                    .core
                    .store
                    .read_blocking(|snapshot| SESSION_CLIENTS.count(snapshot));
                assert_eq!(rows.unwrap(), 5, "nothing of the removed user is kept");
            }
            6 => {
                let bob = scene.server.user("bob").await;
                let login = browser
                    .authorize(&scene.acme.request().with("prompt", "login"))
                    .await;
                login
                    .type_in("bob@example.com", &bob.password)
                    .await
                    .callback()
                    .code();
            }
            _ => {
                scene.server.advance(2 * DAY);
                sweep_all(&scene.server).await;
                admin.call(LockUser { who }).await.unwrap();
            }
        }
        scene.server.app.core.logout_queued.notify_one();
        let posted = scene.until_posted("/acme", number + 1).await;
        let token = Jwt::read(posted.last().unwrap());
        assert_eq!(
            (&token.claims["sub"], &token.claims["sid"]),
            (&json!(person.sub()), &sid),
            "{number}"
        );
    }
}

/// A session that expires is not ended by anyone, so no application is told. A user who was enabled again and signs in
/// again in the same session is told about again.
#[tokio::test]
async fn an_expired_session_tells_nobody_and_a_renewed_one_is_told_again() {
    let scene = scene().await;
    let admin = scene.server.admin();
    let (browser, _) = scene.sign_in().await;
    for count in 1..3 {
        admin
            .call(DisableUser {
                who: "alice@example.com".to_owned(),
            })
            .await
            .unwrap();
        scene.until_posted("/acme", count).await;
        scene.until_settled().await;
        admin
            .call(EnableUser {
                who: "alice@example.com".to_owned(),
            })
            .await
            .unwrap();
        scene.acme.tokens(&browser).await;
        scene.server.advance(1);
    }
    scene.server.advance(120 * DAY);
    sweep_all(&scene.server).await;
    let core = &scene.server.app.core;
    let rows = core
        .store
        .read_blocking(|snapshot| SESSION_CLIENTS.count(snapshot));
    assert_eq!((rows.unwrap(), scene.waiting()), (0, 0));
    assert_eq!(scene.posted("/acme").len(), 2);
}

/// Section 2.8: an application that fails is told again, with a new token. What it does then counts.
#[tokio::test]
async fn a_failed_notice_is_sent_again_with_a_new_token() {
    let scene = scene().await;
    scene.website.say("/acme", answer("500 Internal Server Error"));
    let (browser, _) = scene.sign_in().await;
    sign_out(&browser).await;
    let reason = scene.failure().await;
    assert!(reason.contains("answers with status 500"), "{reason}");
    let first = scene.until_posted("/acme", 1).await;
    scene.website.say("/acme", answer("200 OK"));
    scene.advance(60);
    let tokens = scene.until_posted("/acme", 2).await;
    let [first, second] = [&first[0], &tokens[1]].map(|token| Jwt::read(token).claims);
    assert_eq!(second["iat"], scene.server.clock.now().seconds());
    assert_ne!(first["jti"], second["jti"]);
    assert_eq!(first["sid"], second["sid"]);
    scene.until_settled().await;
    let application = &scene.applications().await[0];
    assert_eq!(application["told_at"], scene.server.clock.now().seconds());
    assert!(application["last_error"].is_null());
}

/// Section 2.8: the status 400 is the application's answer, and no other attempt follows.
#[tokio::test]
async fn a_refused_notice_is_given_up() {
    let scene = scene().await;
    let body = r#"{"error":"invalid_request"}"#;
    let refusal = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    scene.website.say("/acme", Say::Raw(refusal.into_bytes()));
    let (browser, _) = scene.sign_in().await;
    let audit = Audit::listen();
    sign_out(&browser).await;
    scene.until_settled().await;
    let failed = recorded(&audit, "logout_notice_failed", 1).await;
    let reason = failed[0]["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("/acme answers with status 400 invalid_request"),
        "{reason}"
    );
    let application = &scene.applications().await[0];
    assert_eq!(application["given_up_at"], scene.server.clock.now().seconds());
    assert_eq!(application["last_error"], reason);
    assert_eq!(scene.posted("/acme").len(), 1);
}

/// A receiver that redirects, never ends, or is at a private address is tried for a day, and then given up.
#[tokio::test]
async fn an_unusable_receiver_is_tried_for_a_day() {
    let mut scene = quiet_scene().await;
    let redirect = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /victim\r\ncontent-length: 0\r\n\r\n";
    scene.website.say("/acme", Say::Raw(redirect.into()));
    scene.website.say("/endless", Say::Forever);
    let private = receiving("https://10.0.0.1/logout".to_owned());
    let parties = [
        scene.client_at("endless", "/endless").await,
        scene.server.client_with("private", private).await,
    ];
    let (browser, _) = scene.sign_in().await;
    for party in &parties {
        party.tokens(&browser).await;
    }
    sign_out(&browser).await;
    scene.start_sender();
    let failed = |application: &Value| application["last_error"].is_string();
    until(async || scene.applications().await.iter().all(failed)).await;
    let reasons: Vec<_> = scene
        .applications()
        .await
        .iter()
        .map(|app| app["last_error"].to_string())
        .collect();
    for (reason, word) in reasons.iter().zip(["redirect", "longer than", "public internet"]) {
        assert!(reason.contains(word), "{reason}");
    }
    assert!(scene.website.seen("/victim").is_empty());
    assert_eq!(scene.waiting(), 3);
    let audit = Audit::listen();
    scene.advance(DAY);
    scene.until_settled().await;
    recorded(&audit, "logout_notice_failed", 3).await;
    let given_up = |application: &Value| application["given_up_at"].is_number();
    assert!(scene.applications().await.iter().all(given_up));
}

/// A receiver that does not answer gets one notice at a time, and delays no other application.
#[tokio::test]
async fn a_hanging_receiver_delays_no_other() {
    let mut scene = quiet_scene().await;
    scene.website.say("/hanging", Say::Nothing);
    let hanging = scene.client_at("hanging", "/hanging").await;
    for _ in 0..30 {
        let browser = scene.alice.browser();
        hanging.tokens(&browser).await;
        sign_out(&browser).await;
    }
    scene.server.advance(1);
    let (browser, _) = scene.sign_in().await;
    sign_out(&browser).await;
    scene.start_sender();
    scene.until_posted("/acme", 1).await;
    until(async || scene.waiting() == 30).await;
    assert_eq!(scene.website.seen("/hanging").len(), 1);
}

/// A notice is for one client. A client that was removed, replaced or disabled gets none.
#[tokio::test]
async fn only_the_client_of_the_session_is_told() {
    let mut scene = quiet_scene().await;
    let paths = ["/removed", "/replaced", "/disabled", "/without"];
    let (browser, _) = scene.sign_in().await;
    let mut parties = Vec::new();
    for path in paths {
        let party = scene.client_at(&path[1..], path).await;
        party.tokens(&browser).await;
        parties.push(party);
    }
    sign_out(&browser).await;
    let admin = scene.server.admin();
    for id in ["removed", "replaced"] {
        admin
            .call(client::RemoveClient {
                client_id: id.to_owned(),
            })
            .await
            .unwrap();
    }
    scene.client_at("replaced", "/replaced").await;
    admin
        .call(client::DisableClient {
            client_id: "disabled".to_owned(),
        })
        .await
        .unwrap();
    let without = |client: &mut Client| client.backchannel_logout_uri = None;
    scene.server.change_client(&parties[3], without).await;
    let audit = Audit::listen();
    scene.start_sender();
    scene.until_settled().await;
    for path in paths {
        assert!(scene.website.seen(path).is_empty(), "{path}");
    }
    assert!(
        audit.take(&["logout_notice_failed"]).is_empty(),
        "nobody is to be told"
    );
    let given_up = |application: &&Value| application["given_up_at"].is_number();
    assert_eq!(scene.applications().await.iter().filter(given_up).count(), 4);
    assert_eq!(scene.posted("/acme").len(), 1);
}

/// The notice is stored with the end of the session: a process that ends before it is sent sends it after its next start.
/// An unreadable row delays nothing.
#[tokio::test]
async fn a_notice_outlives_the_process() {
    let mut scene = scene().await;
    let (browser, _) = scene.sign_in().await;
    let (stop, sender) = scene.sender.take().unwrap();
    stop.send(1).unwrap();
    sender.finish().await;
    sign_out(&browser).await;
    assert!(scene.posted("/acme").is_empty());
    let mut key = Vec::new();
    (1_u32, Uuid::nil()).encode(&mut key);
    let core = &scene.server.app.core;
    let put = core
        .store
        .write("test", move |tx| tx.put(LOGOUT_NOTICES.id(), &key, b"\x01junk"));
    put.await.unwrap();
    scene.start_sender();
    scene.until_posted("/acme", 1).await;
    scene.until_settled().await;
}

/// Section 2.4 and RFC 8725: a logout token is nothing but a logout token.
#[tokio::test]
async fn a_logout_token_is_accepted_nowhere() {
    let scene = scene().await;
    let (browser, _) = scene.sign_in().await;
    sign_out(&browser).await;
    let token = scene.until_posted("/acme", 1).await.remove(0);
    let (browser, tokens) = scene.sign_in().await;
    let hint = [
        ("id_token_hint", token.as_str()),
        ("post_logout_redirect_uri", "https://acme.example/bye"),
    ];
    let page = browser
        .visit(&format!("/oauth2/logout?{}", write_form(&hint)))
        .await;
    assert_eq!(page.page(), "/logout/confirm", "it proves nothing");
    let request = scene
        .acme
        .request()
        .with("prompt", "none")
        .with("id_token_hint", &token);
    let refused = browser.authorize(&request).await;
    assert_eq!(refused.callback().get("error"), Some("login_required"));
    assert_eq!(scene.acme.userinfo(&token).await.status, 401);
    assert_eq!(
        scene.acme.introspect(&token).await.json(),
        json!({ "active": false })
    );
    assert_eq!(scene.acme.refresh(&token).await.error(), "invalid_grant");
    for grant in ["client_credentials", "refresh_token"] {
        let reply = scene
            .server
            .post("/oauth2/token")
            .with("grant_type", grant)
            .with("client_assertion", &token)
            .with(
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            )
            .await;
        assert_eq!(reply.error(), "invalid_client");
    }
    let may_exchange = |client: &mut Client| {
        let grants = [GrantType::JwtBearer, GrantType::TokenExchange];
        client.grant_types.extend(grants);
    };
    scene.server.change_client(&scene.acme, may_exchange).await;
    let grant = |name: &str| {
        let value = format!("urn:ietf:params:oauth:grant-type:{name}");
        scene.acme.post("/oauth2/token").with("grant_type", &value)
    };
    let exchanged = grant("jwt-bearer").with("assertion", &token).await;
    assert_eq!(exchanged.refusal(), line_of(&NOT_ACCEPTED));
    let exchange = |subject: &str, actor: &str| {
        grant("token-exchange")
            .with("subject_token", subject)
            .with("subject_token_type", ACCESS_TOKEN)
            .with("actor_token", actor)
            .with("actor_token_type", ACCESS_TOKEN)
    };
    let live = tokens.access_token();
    exchange(live, live).await.tokens();
    assert_eq!(exchange(&token, live).await.refusal(), line_of(&SUBJECT_REFUSED));
    assert_eq!(exchange(live, &token).await.refusal(), line_of(&ACTOR_REFUSED));
    let used = scene
        .server
        .app
        .core
        .store
        .read_blocking(|snapshot| USED_ASSERTIONS.count(snapshot));
    assert_eq!(used.unwrap(), 0);
}

/// A user cannot fill the store by signing in and out.
#[tokio::test]
async fn the_applications_of_old_sessions_are_bounded() {
    let scene = quiet_scene().await;
    let (browser, tokens) = scene.sign_in().await;
    let core = &scene.server.app.core;
    let user: Uuid = scene.alice.sub().parse().unwrap();
    let sid: Uuid = tokens.id().claims["sid"].as_str().unwrap().parse().unwrap();
    let put = core.store.write("test", move |tx| -> Result<_, StoreError> {
        let key = |session: Uuid, number: u32| (user, (session, format!("client-{number}")));
        let mut row = SESSION_CLIENTS
            .get(&*tx, &(user, (sid, "acme".to_owned())))?
            .unwrap();
        for number in 0..499 {
            SESSION_CLIENTS.put(tx, &key(Uuid::nil(), number), &row)?;
        }
        row.logout = Some(serde_json::from_value(json!({ "ended_at": 1 })).unwrap());
        for number in 0..500 {
            SESSION_CLIENTS.put(tx, &key(Uuid::max(), number), &row)?;
        }
        Ok(())
    });
    put.await.unwrap();
    let shop = scene.client_at("shop", "/shop").await;
    shop.tokens(&browser).await;
    let rows = core
        .store
        .read_blocking(|snapshot| SESSION_CLIENTS.scan_prefix(snapshot, &user, usize::MAX))
        .unwrap();
    let ended = rows.iter().filter(|(_, row)| row.logout.is_some()).count();
    assert_eq!(
        (rows.len(), ended),
        (1000, 499),
        "one of an ended session gave way"
    );
}

/// Section 2.2: the URI is https and has no fragment. Clients that register themselves may name it too, at a host of their
/// redirect URIs: the service must not post to hosts that strangers choose.
#[tokio::test]
async fn a_client_that_registers_itself_names_an_https_address_without_fragment() {
    let server = Server::open().await;
    let metadata = |uri: &str| {
        json!({
            "redirect_uris": ["https://notes.example/cb"],
            "backchannel_logout_uri": uri,
            "backchannel_logout_session_required": true,
        })
    };
    for uri in [
        "http://notes.example/logout",
        "http://127.0.0.1/logout",
        "http://localhost:3000/logout",
        "https://notes.example/logout#x",
        "https://user@notes.example/logout",
        "https://victim.example/logout",
        "https://notes.example.victim.example/logout",
        "notes",
        &format!("https://notes.example/{}", "a".repeat(2048)),
    ] {
        let reply = server.register(&metadata(uri)).await;
        assert_eq!(reply.error(), "invalid_client_metadata", "{uri}");
        let description = reply.json()["error_description"].to_string();
        if uri.len() > 1024 {
            continue;
        }
        let allowed = "with the host of a redirect URI of this client: notes.example";
        assert!(description.contains(allowed), "{description}");
    }
    let uri = "https://notes.example/logout?tenant=a";
    let answer = server.registrant(&metadata(uri)).await.answer;
    assert_eq!(answer["backchannel_logout_uri"], uri);
    assert_eq!(answer["backchannel_logout_session_required"], true);
}

/// A stranger can register any number of clients at one host. They share a place and few attempts.
#[tokio::test]
async fn clients_of_one_host_that_registered_themselves_are_told_as_one() {
    let mut scene = quiet_scene().await;
    scene.website.say(
        "/silent",
        Say::Raw(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_vec()),
    );
    let uri = format!("{}/silent", scene.website.issuer);
    let of_strangers = |client: &mut Client| {
        receiving(uri.clone())(client);
        client.origin = ClientOrigin::DynamicRegistration;
        client.consent = ConsentRequirement::Require;
        client.redirect_uris.push(format!("{}/cb", scene.website.issuer));
    };
    let mut parties = Vec::new();
    for number in 0..4 {
        parties.push(
            scene
                .server
                .client_with(&format!("stranger-{number}"), &of_strangers)
                .await,
        );
    }
    let browser = scene.alice.browser();
    for party in &parties {
        let consent = browser.authorize(&party.request()).await;
        let code = consent.through().await.code();
        party.redeem(&code).await.tokens();
    }
    sign_out(&browser).await;
    let core = &scene.server.app.core;
    let notices = core
        .store
        .read_blocking(|snapshot| LOGOUT_NOTICES.scan(snapshot, .., 9));
    let notices: Vec<_> = notices.unwrap().into_iter().map(|(_, notice)| notice).collect();
    assert_eq!(notices.len(), 4);
    assert!(notices.iter().all(|notice| notice.place() == notices[0].place()));
    scene.start_sender();
    let is_waiting = async || scene.waiting() > 0;
    while is_waiting().await {
        let asked = scene.website.seen("/silent").len();
        scene.advance(2 * 60 * 60);
        until(async || scene.waiting() == 0 || scene.website.seen("/silent").len() > asked).await;
    }
    assert!((5..=4 * 5).contains(&scene.website.seen("/silent").len()));
}

/// Section 2.2: plain http for a confidential client. It stays on this machine, and the operator must have named it.
#[tokio::test]
async fn a_confidential_client_on_this_machine_may_be_told_over_http() {
    let mut scene = quiet_scene().await;
    let port = scene.website.issuer.rsplit_once(':').unwrap().1;
    for (index, host) in ["localhost", "127.0.0.1"].into_iter().enumerate() {
        let (id, path) = (format!("local-{index}"), format!("/local-{index}"));
        scene.website.say(&path, ok());
        let uri = format!("http://{host}:{port}{path}");
        let party = scene.server.client_with(&id, receiving(uri)).await;
        let browser = scene.alice.browser();
        party.tokens(&browser).await;
        sign_out(&browser).await;
    }
    scene.start_sender();
    scene.until_posted("/local-0", 1).await;
    scene.until_posted("/local-1", 1).await;
    scene.until_settled().await;
}

#[tokio::test]
async fn http_is_refused_elsewhere_and_to_clients_without_a_secret() {
    let server = Server::start().await;
    let with = |uri: &str, public: bool| {
        let fields = ClientFields {
            redirect_uris: Some(vec!["https://app.example/cb".to_owned()]),
            backchannel_logout_uri: Some(uri.to_owned()),
            ..ClientFields::default()
        };
        AddClient {
            client_id: "web".to_owned(),
            public,
            secret: None,
            api_key: false,
            fields,
        }
    };
    for (uri, public) in [
        ("http://app.example/logout", false),
        ("http://10.0.0.1/logout", false),
        ("http://localhost.example/logout", false),
        ("http://user@localhost/logout", false),
        ("http://localhost/logout#x", false),
        ("http://localhost:3000/logout", true),
        ("http://[::1]:3000/logout", true),
    ] {
        let refused = server
            .admin()
            .call(with(uri, public))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("may have http on a loopback address"),
            "{uri}: {refused}"
        );
    }
    server
        .admin()
        .call(with("http://[::1]:3000/logout", false))
        .await
        .unwrap();
}

/// A process that is killed while it tells an application tells it again after its next start, and the command says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_tells_the_application_after_its_next_start() {
    let website = Upstream::start().await;
    website.say("/logout", Say::Nothing);
    let service = Service::new().reaching(&website);
    let words = |text: &str| -> Vec<String> { text.split(' ').map(ToOwned::to_owned).collect() };
    let json = |text: &str| service.json(&words(text).iter().map(String::as_str).collect::<Vec<_>>());
    let uri = format!("{}/logout", website.issuer);
    let client = json(&format!(
        "client add web --redirect-uri https://app.example/cb --pkce optional --backchannel-logout-uri {uri} --json"
    ));
    assert_eq!(client["backchannel_logout_uri"], uri);
    let alice = json("user add alice@example.com --generate-password --json");
    let mut running = service.serve();
    let target = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
    let password = alice["password"].as_str().unwrap();
    let (answer, _) = running.type_in(target, "alice@example.com", password);
    let (_, answer) = answer.header("location").unwrap().split_once('?').unwrap();
    let code = parse_form(answer).into_iter().find(|(name, _)| name == "code");
    let form = [
        ("grant_type", "authorization_code"),
        ("code", &*code.unwrap().1),
        ("redirect_uri", "https://app.example/cb"),
        ("client_id", "web"),
        ("client_secret", client["client_secret"].as_str().unwrap()),
    ];
    assert_eq!(
        running.post_form("/oauth2/token", &[], &form).unwrap().status,
        200
    );
    json("session revoke --user alice@example.com --yes --json");
    until(async || website.seen("/logout").len() == 1).await;
    running.kill();

    let list = "user sessions alice@example.com";
    let told = || json(&format!("{list} --json"))[0]["applications"][0].clone();
    assert!(told()["ended_at"].is_number() && told()["told_at"].is_null());
    website.say("/logout", ok());
    let _running = service.serve();
    until(async || told()["told_at"].is_number()).await;
    assert_eq!(website.seen("/logout").len(), 2);
    let shown = shown(&service.run(&words(list).iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(shown.contains("web") && shown.contains("TOLD"), "{shown}");
    assert_eq!(json("session list alice@example.com --json"), json!([]));
}
