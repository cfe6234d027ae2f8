//! Sign-ins with passkeys: what an authenticator signed in this browser for this sign-in is accepted, and nothing else.

use idsvc::flow::{factors, sweep};
use idsvc::identity::{Factor, FactorKind, Passkey as StoredPasskey};
use idsvc::pages::text::EN;
use idsvc::store::StoreError;
use idsvc::store::engine::Tx;
use idsvc::store::tables::{FACTORS, USERS, USERS_BY_PASSKEY};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::authenticator::{BE, BS, Passkey, UP, UV};
use crate::harness::html::Form;
use crate::harness::{Audit, Browser, Person, RelyingParty, Screen, Server, scene};

/// The usual participants, and a passkey of the user.
async fn with_passkey() -> (Server, RelyingParty, Person, Passkey) {
    let (server, acme, alice) = scene().await;
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    store(&server, &alice, &passkey).await;
    (server, acme, alice, passkey)
}

pub(crate) async fn store(server: &Server, person: &Person, passkey: &Passkey) -> Uuid {
    let core = &server.app.core;
    let (user, id) = (person.user.uuid, core.random.uuid_v7(core.clock.since_epoch()));
    let factor = Factor {
        name: "Laptop".to_owned(),
        added_at: core.clock.now(),
        last_used_at: None,
        kind: FactorKind::Passkey(StoredPasskey {
            credential_id: passkey.id.clone(),
            public_key: passkey.public_key(),
            sign_count: passkey.sign_count.get(),
            backup_eligible: passkey.flags.get() & BE != 0,
            backed_up: passkey.flags.get() & BS != 0,
            aaguid: None,
            transports: Vec::new(),
        }),
    };
    let added = core
        .store
        .write("test_factor", move |tx| factors::add(tx, user, id, &factor));
    assert!(added.await.unwrap());
    id
}

fn stored(server: &Server, person: &Person) -> (Factor, StoredPasskey) {
    let read = |snapshot: &dyn idsvc::store::engine::Snapshot| factors::of_user(snapshot, person.user.uuid);
    let (_, factor) = server.app.core.store.read_blocking(read).unwrap().pop().unwrap();
    let FactorKind::Passkey(passkey) = factor.kind.clone() else {
        panic!()
    };
    (factor, passkey)
}

async fn begin(acme: &RelyingParty, browser: &Browser) -> Screen {
    let login = browser.authorize(&acme.request()).await;
    assert_eq!(login.page(), "/login");
    login
}

pub(crate) fn passkey_form(page: &Screen) -> Form {
    let mut forms = page.forms().into_iter();
    let form = forms.find(|form| form.value("passkey").is_some());
    form.unwrap_or_else(|| panic!("no passkey on {}", page.text()))
}

/// The value of a data attribute of the page.
pub(crate) fn data(page: &Screen, name: &str) -> Option<String> {
    let (_, rest) = page.text().split_once(&format!(" data-{name}=\""))?;
    Some(rest.split('"').next().unwrap().replace("&amp;", "&"))
}

fn challenge(page: &Screen) -> String {
    data(page, "challenge").unwrap()
}

/// Sends this response with the form of the page.
async fn send(page: &Screen, response: &Value) -> Screen {
    let form = passkey_form(page).with("passkey", &response.to_string());
    page.browser().submit(&form).await
}

pub(crate) async fn sign_in(page: &Screen, passkey: &Passkey) -> Screen {
    send(page, &passkey.get(&challenge(page))).await
}

fn is_refused(page: &Screen) -> bool {
    page.page() == "/login" && page.text().contains(EN.problem_passkey) && page.status == 200
}

#[tokio::test]
async fn a_passkey_signs_in_and_tokens_say_so() {
    let (server, acme, alice, passkey) = with_passkey().await;
    let audit = Audit::listen();
    let code = sign_in(&begin(&acme, &server.browser()).await, &passkey)
        .await
        .callback()
        .code();
    let events = audit.take(&["signed_in"]);
    assert_eq!(events[0]["authority"], "passkey");
    let tokens = acme.redeem(&code).await.tokens();
    let id = tokens.id().claims;
    assert_eq!(id["sub"], alice.sub());
    assert_eq!(id["amr"], json!(["swk", "user", "mfa"]));
    assert_eq!(id["acr"], "phr");
    assert_eq!(tokens.access().claims["amr"], json!([{"authority": "passkey"}]));
    let (factor, _) = stored(&server, &alice);
    assert_eq!(factor.last_used_at, Some(server.app.core.clock.now()));
    let refreshed = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(
        refreshed.access().claims["amr"],
        json!([{"authority": "passkey"}])
    );
}

#[tokio::test]
async fn a_passkey_of_a_security_key_is_hardware_and_its_counter_is_kept() {
    let (server, acme, alice) = scene().await;
    let passkey = Passkey::of_security_key(alice.user.uuid.as_bytes());
    store(&server, &alice, &passkey).await;
    for count in 2..4 {
        let code = sign_in(&begin(&acme, &server.browser()).await, &passkey)
            .await
            .callback()
            .code();
        let id = acme.redeem(&code).await.tokens().id().claims;
        assert_eq!(id["amr"], json!(["hwk", "user", "mfa"]));
        assert_eq!(stored(&server, &alice).1.sign_count, count);
    }
    for rolled_back in [1, 2] {
        passkey.sign_count.set(rolled_back);
        let page = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
        assert!(is_refused(&page), "{}", page.text());
        assert_eq!(stored(&server, &alice).1.sign_count, 3);
    }
}

/// Each device of a synced passkey may count for itself.
#[tokio::test]
async fn a_synced_passkey_may_come_with_a_lower_counter_and_the_latest_one_is_kept() {
    let (server, acme, alice, passkey) = with_passkey().await;
    for (sent, flags) in [
        (9, UP | UV | BE | BS),
        (4, UP | UV | BE | BS),
        (4, UP | UV | BE),
        (0, UP | UV | BE),
    ] {
        passkey.flags.set(flags);
        passkey.sign_count.set(sent);
        sign_in(&begin(&acme, &server.browser()).await, &passkey)
            .await
            .callback()
            .code();
        assert_eq!(stored(&server, &alice).1.sign_count, passkey.sign_count.get());
    }
}

#[tokio::test]
async fn a_sign_in_with_a_passkey_opens_the_account_page() {
    let (server, _, _, passkey) = with_passkey().await;
    let login = server.browser().visit("/account").await;
    let account = sign_in(&login, &passkey).await;
    assert_eq!((account.status, account.page()), (200, "/account"));
}

#[tokio::test]
async fn a_response_is_good_once() {
    let (server, acme, _, passkey) = with_passkey().await;
    let login = begin(&acme, &server.browser()).await;
    let response = passkey.get(&challenge(&login));
    send(&login, &response).await.callback().code();
    let again = send(&login, &response).await;
    assert!(again.text().contains(EN.problem_expired), "{}", again.text());
    let other = begin(&acme, &server.browser()).await;
    assert!(is_refused(&send(&other, &response).await));
}

#[tokio::test]
async fn of_two_responses_to_one_challenge_one_signs_in() {
    let (server, acme, _, passkey) = with_passkey().await;
    let login = begin(&acme, &server.browser()).await;
    let (one, other) = (passkey.get(&challenge(&login)), passkey.get(&challenge(&login)));
    let (one, other) = tokio::join!(send(&login, &one), send(&login, &other));
    let signed_in = [&one, &other]
        .into_iter()
        .filter(|screen| screen.header("location").is_some())
        .count();
    assert_eq!(signed_in, 1, "{} {}", one.text(), other.text());
}

#[tokio::test]
async fn a_challenge_is_good_for_five_minutes_in_its_own_sign_in_and_browser() {
    let (server, acme, _, passkey) = with_passkey().await;
    let login = begin(&acme, &server.browser()).await;
    let elsewhere = begin(&acme, &server.browser()).await;
    let response = passkey.get(&challenge(&login)).to_string();
    let sealed = passkey_form(&login).value("challenge").unwrap().to_owned();
    let form = passkey_form(&elsewhere)
        .with("passkey", &response)
        .with("challenge", &sealed);
    let page = elsewhere.browser().submit(&form).await;
    assert!(page.text().contains(EN.problem_expired));
    let form = passkey_form(&login).with("passkey", &response);
    let stolen = elsewhere.browser().submit(&form).await;
    assert_eq!(stolen.status, 400, "the transaction belongs to another browser");

    server.advance(4 * 60);
    let late = begin(&acme, &server.browser()).await;
    server.advance(5 * 60 - 1);
    sign_in(&late, &passkey).await.callback().code();
    let later = begin(&acme, &server.browser()).await;
    server.advance(5 * 60);
    let page = sign_in(&later, &passkey).await;
    assert!(page.text().contains(EN.problem_expired));
    sign_in(&page, &passkey).await.callback().code();
}

#[tokio::test]
async fn a_response_that_says_less_or_other_is_refused() {
    let (server, acme, alice) = scene().await;
    let check = async |change: fn(&mut Passkey)| {
        let mut passkey = Passkey::new(alice.user.uuid.as_bytes());
        store(&server, &alice, &passkey).await;
        change(&mut passkey);
        let audit = Audit::listen();
        let page = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
        assert!(is_refused(&page), "{}", page.text());
        let refusal = audit.refusals().pop().unwrap();
        assert_eq!(refusal["error"], "passkey");
        refusal["description"].as_str().unwrap().to_owned()
    };
    let not_verified = check(|passkey| passkey.flags.set(UP | BE | BS)).await;
    assert_eq!(not_verified, "user was not verified");
    let not_present = check(|passkey| passkey.flags.set(UV | BE | BS)).await;
    assert_eq!(not_present, "user was not present");
    let not_eligible = check(|passkey| passkey.flags.set(UP | UV)).await;
    assert_eq!(not_eligible, "backup eligibility changed");
    let impossible = check(|passkey| passkey.flags.set(UP | UV | BS)).await;
    assert_eq!(
        impossible,
        "a credential that cannot be backed up is said to be backed up"
    );
    let foreign = check(|passkey| passkey.rp_id = "evil.example".to_owned()).await;
    assert_eq!(foreign, "authenticator data is for another relying party");
    let other_origin = check(|passkey| passkey.origin = "https://evil.example".to_owned()).await;
    assert_eq!(other_origin, "origin is not one of this service");
    let framed = check(|passkey| passkey.client_data = json!({ "crossOrigin": true })).await;
    assert_eq!(framed, "page was in a frame of another origin");
    let below = check(|passkey| passkey.client_data = json!({ "topOrigin": "https://evil.example" })).await;
    assert_eq!(below, "page was in a frame of another origin");
    let of_registration = check(|passkey| passkey.client_data = json!({ "type": "webauthn.create" })).await;
    assert_eq!(of_registration, "client data is of another ceremony");
    let other_key = check(|passkey| {
        let id = std::mem::take(&mut passkey.id);
        *passkey = Passkey::new(&passkey.user_handle);
        passkey.id = id;
    });
    assert_eq!(other_key.await, "signature does not match");
}

#[tokio::test]
async fn a_passkey_that_is_backed_up_later_is_kept_so() {
    let (server, acme, alice, passkey) = with_passkey().await;
    for (flags, backed_up) in [(UP | UV | BE, false), (UP | UV | BE | BS, true)] {
        passkey.flags.set(flags);
        sign_in(&begin(&acme, &server.browser()).await, &passkey)
            .await
            .callback()
            .code();
        assert_eq!(stored(&server, &alice).1.backed_up, backed_up);
    }
}

/// The browser deletes an unknown passkey, which may be good at another service on this host.
#[tokio::test]
async fn a_passkey_is_called_unknown_only_to_a_user_of_this_service_and_if_nobody_has_it() {
    let (server, acme, alice, mut passkey) = with_passkey().await;
    let bob = server.user("bob").await;
    let (audit, mut others) = (Audit::listen(), 0);
    for handle in [
        bob.user.uuid.as_bytes().as_slice(),
        &[7; 16],
        &[7; 64],
        b"alice",
        b"?",
    ] {
        passkey.user_handle = handle.to_vec();
        let page = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
        assert!(
            is_refused(&page) && data(&page, "unknown").is_none(),
            "{handle:?}: {}",
            page.text()
        );
        others += 1;
    }
    assert_eq!(audit.take(&["sign_in_failed"]).len(), others);
    let reasons = audit.refusals();
    assert!(
        reasons.iter().all(|refusal| refusal["description"]
            == "passkey is not one of the user whom the response names"),
        "{reasons:?}"
    );

    let mut foreign = Passkey::new(&[]);
    for handle in [[7; 16].as_slice(), b"alice", &[]] {
        foreign.user_handle = handle.to_vec();
        let page = sign_in(&begin(&acme, &server.browser()).await, &foreign).await;
        assert!(is_refused(&page) && data(&page, "unknown").is_none());
    }

    passkey.user_handle = alice.user.uuid.as_bytes().to_vec();
    let login = begin(&acme, &server.browser()).await;
    let core = &server.app.core;
    let user = alice.user.uuid;
    let removed = core
        .store
        .write("test_remove", move |tx| factors::remove_all(tx, user));
    assert_eq!(removed.await.unwrap().len(), 1);
    let page = sign_in(&login, &passkey).await;
    assert!(page.text().contains(EN.problem_passkey_unknown), "a removed one");
    let unknown = crate::harness::authenticator::encode(&passkey.id);
    assert_eq!(data(&page, "unknown"), Some(unknown));
}

#[tokio::test]
async fn a_known_passkey_without_a_user_handle_signs_its_user_in() {
    let (server, acme, alice, mut passkey) = with_passkey().await;
    passkey.user_handle = Vec::new();
    let signed_in = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
    let tokens = acme.redeem(&signed_in.callback().code()).await.tokens();
    assert_eq!(tokens.id().claims["sub"], alice.sub());

    let mut copy = Passkey::new(&[]);
    copy.id.clone_from(&passkey.id);
    let page = sign_in(&begin(&acme, &server.browser()).await, &copy).await;
    assert!(is_refused(&page), "a signature by another key");
    assert_eq!(data(&page, "unknown"), None);
}

#[tokio::test]
async fn a_copy_of_a_credential_id_in_another_account_keeps_nobody_from_signing_in_without_a_handle() {
    let (server, acme, alice, mut passkey) = with_passkey().await;
    passkey.user_handle = Vec::new();
    let mut copies = Vec::new();
    for number in 1..=7 {
        let mallory = server.user(&format!("mallory{number}")).await;
        let mut copy = Passkey::new(&[]);
        copy.id.clone_from(&passkey.id);
        store(&server, &mallory, &copy).await;
        copies.push((mallory, copy));
    }
    for (person, passkey) in [
        (&alice, &passkey),
        (&copies[0].0, &copies[0].1),
        (&copies[6].0, &copies[6].1),
    ] {
        let page = sign_in(&begin(&acme, &server.browser()).await, passkey).await;
        let tokens = acme.redeem(&page.callback().code()).await.tokens();
        assert_eq!(tokens.id().claims["sub"], person.sub());
    }
    let mut nobodys = Passkey::new(&[]);
    nobodys.id.clone_from(&passkey.id);
    let page = sign_in(&begin(&acme, &server.browser()).await, &nobodys).await;
    assert!(is_refused(&page), "a signature by the key of no user");
}

/// A copy whose key is the same could be the account of another person.
#[tokio::test]
async fn a_copy_with_the_same_key_signs_nobody_in_without_a_handle() {
    let (server, acme, alice, mut passkey) = with_passkey().await;
    let mallory = server.user("mallory").await;
    store(&server, &mallory, &passkey).await;
    let page = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
    let tokens = acme.redeem(&page.callback().code()).await.tokens();
    assert_eq!(tokens.id().claims["sub"], alice.sub());
    passkey.user_handle = Vec::new();
    let page = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
    assert!(is_refused(&page), "{}", page.text());
}

#[tokio::test]
async fn a_passkey_that_an_earlier_release_stored_is_found_without_a_user_handle_too() {
    let (server, acme, _, mut passkey) = with_passkey().await;
    let core = &server.app.core;
    let forget = |tx: &mut dyn Tx| {
        for key in USERS_BY_PASSKEY.keys_where(&*tx, |_, ()| true)? {
            USERS_BY_PASSKEY.remove(tx, &key)?;
        }
        Ok::<_, StoreError>(())
    };
    core.store.write("test_forget", forget).await.unwrap();
    passkey.user_handle = Vec::new();
    let page = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
    assert!(is_refused(&page));
    sweep::sweep(core, &mut sweep::Cursor::default(), core.clock.now())
        .await
        .unwrap();
    sign_in(&begin(&acme, &server.browser()).await, &passkey)
        .await
        .callback()
        .code();
}

#[tokio::test]
async fn a_disabled_user_has_no_way_in_by_a_passkey() {
    let (server, acme, alice, passkey) = with_passkey().await;
    let user = alice.user.uuid;
    let core = &server.app.core;
    core.store
        .write("test_disable", move |tx| {
            let mut stored = USERS.get(&*tx, &user)?.unwrap();
            stored.enabled = false;
            USERS.put(tx, &user, &stored)
        })
        .await
        .unwrap();
    let page = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
    assert!(is_refused(&page), "{}", page.text());
}

#[tokio::test]
async fn what_is_no_response_is_refused() {
    let (server, acme, _, passkey) = with_passkey().await;
    let login = begin(&acme, &server.browser()).await;
    let response = passkey.get(&challenge(&login));
    for text in ["{}", "null", "[1]", &"[".repeat(10_000)] {
        let form = passkey_form(&login).with("passkey", text);
        let page = login.browser().submit(&form).await;
        assert!(is_refused(&page), "{}", page.text());
    }
    let without_token = passkey_form(&login)
        .with("passkey", &response.to_string())
        .with("csrf", "AAAA");
    let page = login.browser().submit(&without_token).await;
    assert!(page.text().contains(EN.problem_expired));
}

#[tokio::test]
async fn a_client_without_passwords_takes_no_passkey() {
    let (server, acme, _, passkey) = with_passkey().await;
    let login = begin(&acme, &server.browser()).await;
    let response = passkey.get(&challenge(&login));
    server
        .change_client(&acme, |client| client.metadata.password_sign_in = false)
        .await;
    let page = send(&login, &response).await;
    assert!(page.text().contains(EN.problem_no_way), "{}", page.text());
    assert!(data(&page, "passkey").is_none());
}

#[tokio::test]
async fn a_user_who_is_removed_leaves_no_passkey() {
    let (server, _, alice, _) = with_passkey().await;
    let user = alice.user.clone();
    let core = &server.app.core;
    let now = core.clock.now();
    core.store
        .write("test_remove", move |tx| {
            idsvc::flow::users::remove_user(tx, &user, now)
        })
        .await
        .unwrap();
    let left = core
        .store
        .read_blocking(|snapshot| FACTORS.scan_prefix(snapshot, &alice.user.uuid, 10));
    assert!(left.unwrap().is_empty());
}

#[tokio::test]
async fn related_origins_are_published_and_accepted() {
    let (server, ..) = scene().await;
    assert_eq!(server.get("/.well-known/webauthn").await.status, 404);
    let server = Server::start_with(|policy| {
        policy.passkey_origins = vec!["https://example.net".to_owned()];
    })
    .await;
    let published = server.get("/.well-known/webauthn").await;
    assert_eq!(published.header("content-type"), Some("application/json"));
    assert_eq!(
        serde_json::from_str::<Value>(published.text()).unwrap(),
        json!({ "origins": ["https://id.example.test", "https://example.net"] })
    );
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let mut passkey = Passkey::new(alice.user.uuid.as_bytes());
    store(&server, &alice, &passkey).await;
    passkey.origin = "https://example.net".to_owned();
    sign_in(&begin(&acme, &server.browser()).await, &passkey)
        .await
        .callback()
        .code();
}

#[tokio::test]
async fn a_client_that_demands_a_passkey_gets_no_code_by_a_password() {
    let (server, acme, alice, passkey) = with_passkey().await;
    let demands = |values: &[&str]| {
        let acr = json!({ "essential": true, "values": values });
        let claims = json!({ "id_token": { "acr": acr } }).to_string();
        acme.request().with("claims", &claims)
    };
    let browser = alice.browser();
    acme.code(&browser).await;
    let silent = browser.authorize(&demands(&["phr"]).with("prompt", "none")).await;
    assert_eq!(silent.callback().get("error"), Some("login_required"));
    let login = browser.authorize(&demands(&["phr"])).await;
    assert_eq!(login.page(), "/login", "the session of a password is not enough");
    assert!(login.forms().iter().all(|form| form.value("password").is_none()));
    let form = passkey_form(&login)
        .without("passkey")
        .with("username", "alice@example.com")
        .with("password", &alice.password);
    let page = browser.submit(&form).await;
    assert_eq!(page.page(), "/login", "{}", page.text());
    let code = sign_in(&login, &passkey).await.callback().code();
    assert_eq!(acme.redeem(&code).await.tokens().id().claims["acr"], "phr");

    let either = server.browser().authorize(&demands(&["1", "phr"])).await;
    let code = either
        .type_in("alice@example.com", &alice.password)
        .await
        .callback()
        .code();
    assert_eq!(acme.redeem(&code).await.tokens().id().claims["acr"], "1");
    let unknown = server.browser().authorize(&demands(&["0"])).await;
    assert_eq!(
        unknown.callback().get("error"),
        Some("unmet_authentication_requirements")
    );
}

/// Otherwise a provider could not stop its own user.
#[tokio::test]
async fn a_user_of_a_provider_has_no_way_in_by_a_passkey() {
    let (server, acme, alice, passkey) = with_passkey().await;
    server
        .change_user(&alice, |user| user.source = "corp".to_owned())
        .await;
    let page = begin(&acme, &server.browser()).await;
    let refused = sign_in(&page, &passkey).await;
    assert!(refused.text().contains(EN.problem_passkey), "{}", refused.text());
}

#[tokio::test]
async fn made_up_passkeys_are_slowed_down() {
    let (server, acme, _alice, mut passkey) = with_passkey().await;
    passkey.id = vec![7; 16];
    let mut page = begin(&acme, &server.browser()).await;
    for _ in 0..200 {
        page = sign_in(&page, &passkey).await;
        if page.status == 429 {
            assert!(page.header("retry-after").is_some());
            return;
        }
    }
    panic!("nothing slows them down");
}
