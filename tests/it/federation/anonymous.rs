//! An anonymous user becomes the account that a sign-in at a provider creates.

use std::ops::ControlFlow;

use idsvc::admin::apply::export;
use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user::{ListUsers, page};
use idsvc::identity::User;
use idsvc::oauth::client::{Client, ConsentRequirement};
use idsvc::store::tables::{USERS, USERS_BY_LOGIN_NAME};
use serde_json::{Value, json};

use super::{Question, Scene, open, scene_with, tied};
use crate::anonymous_upgrade::{
    DAY, USED, device, opted_in, owner_of, push, pushed, record_of, sweep_all, uuid_of,
};
use crate::harness::audit::Audit;
use crate::harness::reply::Callback;
use crate::harness::{AuthorizationRequest, Browser, Tokens};

fn tied_with_devices(client: &mut Client) {
    tied(client);
    opted_in(client);
}

async fn scene() -> Scene {
    scene_with(tied_with_devices, |_| {}).await
}

fn ann() -> Value {
    json!({"email": "ann@up.example", "email_verified": true, "name": "Ann Up"})
}

impl Scene {
    /// Signs a user in at the provider for this request.
    async fn answer(&self, browser: &Browser, request: &AuthorizationRequest, subject: &str) -> Callback {
        let question = Question::of(&browser.authorize(request).await, &self.upstream);
        self.come_back(browser, &question, subject).await
    }

    async fn come_back(&self, browser: &Browser, question: &Question, subject: &str) -> Callback {
        let claims = if subject == "u-1" { ann() } else { json!({}) };
        self.vouch(question, subject, &claims);
        browser.visit(&question.answer("code=c-1")).await.callback()
    }

    /// Follows the link to the provider on the sign-in page.
    async fn ask_by_page(&self, browser: &Browser, request: &AuthorizationRequest) -> Question {
        let form = browser.authorize(request).await;
        let (_, transaction) = form.path.split_once('?').unwrap();
        let path = format!("/federation/up/start?{transaction}");
        Question::of(&browser.visit(&path).await, &self.upstream)
    }

    async fn upgrade(&self, device: &Tokens, subject: &str) -> Callback {
        let request = pushed(&self.acme, device.refresh_token()).await;
        self.answer(&self.visitor(), &request, subject).await
    }
}

/// A second use of the old token, after the retry window, is a replay as ever.
#[tokio::test]
async fn the_account_that_a_provider_creates_is_the_anonymous_user_and_its_grant_lives_on() {
    let scene = scene().await;
    let (server, acme) = (&scene.server, &scene.acme);
    let device = device(acme).await;
    let uuid = uuid_of(&device);
    let audit = Audit::listen();
    let callback = scene.upgrade(&device, "u-1").await;
    let events = audit.take(&[
        "anonymous_user_upgraded",
        "anonymous_user_linked",
        "federated_user_created",
    ]);
    let names: Vec<_> = events.iter().map(|event| event["event"].clone()).collect();
    assert_eq!(names, ["anonymous_user_upgraded", "federated_user_created"]);
    assert!(events.iter().all(|event| event["user"] == json!(uuid)));
    assert_eq!(
        acme.refresh(device.refresh_token()).await.refusal(),
        "400 invalid_grant: the anonymous user became an account; first redeem the code of that sign-in"
    );
    let tokens = acme.redeem(&callback.code()).await.tokens();
    assert!(acme.is_welcome(&device).await);
    assert_eq!(uuid_of(&tokens), uuid);
    let shown = |name: &str| tokens.0[name].clone();
    assert_eq!(
        (shown("user_type"), shown("source"), shown("account_id")),
        (json!("user"), json!("up"), json!("ann@up.example"))
    );
    assert_eq!(
        tokens.access().claims.get("anonymous_sub"),
        None,
        "nothing is to be moved"
    );
    assert_eq!(tokens.scope(), ["openid", "authenticated"]);
    let later = acme.refresh(device.refresh_token()).await.tokens();
    assert_eq!(uuid_of(&later), uuid);
    assert_eq!(
        (&later.0["user_type"], &later.0["source"], &later.0["amr"]),
        (&json!("user"), &json!("up"), &json!([{"authority": "anonymous"}]))
    );
    server.advance(121);
    assert_eq!(
        acme.refresh(device.refresh_token()).await.error(),
        "invalid_grant"
    );
    assert_eq!(acme.refresh(later.refresh_token()).await.error(), "invalid_grant");
    acme.refresh(tokens.refresh_token()).await.tokens();
}

/// An attacker sends a victim the link to a sign-in of the attacker's own device. The code reaches the victim's device,
/// which did not ask for it.
#[tokio::test]
async fn the_device_of_an_attacker_gets_no_tokens_of_the_account_that_a_victim_creates() {
    let scene = scene().await;
    let acme = &scene.acme;
    let attacker = device(acme).await;
    scene.upgrade(&attacker, "u-1").await.code();
    let refresh = async || acme.refresh(attacker.refresh_token()).await.error();
    assert_eq!(refresh().await, "invalid_grant");
    for token in [attacker.access_token(), attacker.refresh_token()] {
        assert_eq!(acme.introspect(token).await.json(), json!({"active": false}));
    }
    assert!(!acme.is_welcome(&attacker).await);
    let again = push(acme, &acme.request(), attacker.refresh_token()).await;
    assert_eq!(again.error(), "invalid_grant");
    let victim = scene.tokens(&scene.visitor(), "u-1", &ann()).await;
    assert_eq!(uuid_of(&victim), uuid_of(&attacker));
    assert_eq!(
        refresh().await,
        "invalid_grant",
        "a sign-in of the victim does not change that"
    );
    assert!(acme.is_welcome(&victim).await);
}

/// The next sign-in finds the account, and the sweep leaves it when the tokens of the device have ended.
#[tokio::test]
async fn an_upgraded_user_is_an_account_like_another() {
    let scene = scene().await;
    let (server, acme) = (&scene.server, &scene.acme);
    let device = device(acme).await;
    let uuid = uuid_of(&device);
    acme.redeem(&scene.upgrade(&device, "u-1").await.code())
        .await
        .tokens();
    let record = record_of(server, uuid).unwrap();
    assert!(!record.is_anonymous());
    assert_eq!(
        (record.identities.len(), &record.claims["name"]),
        (1, &json!("Ann Up"))
    );
    assert_eq!(owner_of(server, "ann@up.example"), Some(uuid));
    assert_eq!(owner_of(server, &uuid.to_string()), None);
    let listed = page(server.admin(), &ListUsers::default()).unwrap().records;
    assert_eq!(
        (listed.len(), &*listed[0].source, &*listed[0].user_type),
        (1, "up", "user")
    );
    let mut skip = |_| ControlFlow::Continue(());
    let left_out = export(&server.app.core, false, &mut skip).unwrap();
    assert_eq!(
        (left_out.brought, left_out.from_devices),
        (1, 0),
        "as each account of a provider"
    );
    let again = scene.tokens(&scene.visitor(), "u-1", &ann()).await;
    assert_eq!(uuid_of(&again), uuid);
    server.advance(400 * DAY);
    sweep_all(server).await;
    assert!(record_of(server, uuid).is_some());
}

#[tokio::test]
async fn what_the_operator_recorded_of_the_device_stays() {
    let scene = scene().await;
    let (server, acme) = (&scene.server, &scene.acme);
    let device = device(acme).await;
    let mut user = record_of(server, uuid_of(&device)).unwrap();
    "kiosk-7".clone_into(&mut user.account_id);
    user.venue_id = Some("lobby".to_owned());
    user.claims.insert("locale".to_owned(), json!("de"));
    let written = server.app.core.store.write("test_user", move |tx| {
        USERS_BY_LOGIN_NAME.put(tx, "kiosk-7", &user.uuid)?;
        USERS.put(tx, &user.uuid, &user)
    });
    written.await.unwrap();
    acme.redeem(&scene.upgrade(&device, "u-1").await.code())
        .await
        .tokens();
    let user: User = record_of(server, uuid_of(&device)).unwrap();
    assert_eq!(
        (user.venue_id.as_deref(), &user.claims["locale"]),
        (Some("lobby"), &json!("de"))
    );
    assert_eq!(user.account_id, "ann@up.example");
    assert_eq!(
        owner_of(server, "kiosk-7"),
        None,
        "nobody has the old name any more"
    );
}

/// An account that exists is not replaced by the anonymous user.
#[tokio::test]
async fn an_account_of_a_provider_that_exists_already_is_linked() {
    let scene = scene().await;
    let existing = uuid_of(&scene.tokens(&scene.visitor(), "u-1", &ann()).await);
    let device = device(&scene.acme).await;
    let callback = scene.upgrade(&device, "u-1").await;
    let tokens = scene.acme.redeem(&callback.code()).await.tokens();
    assert_eq!(uuid_of(&tokens), existing);
    assert_eq!(tokens.access().claims["anonymous_sub"], json!(uuid_of(&device)));
    let refused = scene.acme.refresh(device.refresh_token()).await;
    assert_eq!(refused.error(), "invalid_grant");
}

/// Two people sign in on one device. One of them gets what is stored under `sub`.
#[tokio::test]
async fn of_two_accounts_for_one_anonymous_user_one_is_created() {
    let scene = scene().await;
    let (server, acme) = (&scene.server, &scene.acme);
    let device = device(acme).await;
    let (first, second) = (
        pushed(acme, device.refresh_token()).await,
        pushed(acme, device.refresh_token()).await,
    );
    let (one, other) = (scene.visitor(), scene.visitor());
    let question = Question::of(&other.authorize(&second).await, &scene.upstream);
    let tokens = acme
        .redeem(&scene.answer(&one, &first, "u-1").await.code())
        .await
        .tokens();
    assert_eq!(uuid_of(&tokens), uuid_of(&device));
    let refused = scene.come_back(&other, &question, "u-2").await;
    assert_eq!(refused.refusal(), USED);
    let users = page(server.admin(), &ListUsers::default()).unwrap().records;
    assert_eq!(users.len(), 1, "the refused sign-in creates nobody");
    let alone = scene.tokens(&other, "u-2", &json!({})).await;
    assert_ne!(
        uuid_of(&alone),
        uuid_of(&device),
        "the way back makes an account of its own"
    );
}

/// One sign-in creates an account, and the other one is to an account that exists. The writer decides.
#[tokio::test]
async fn of_an_account_and_a_link_at_once_one_is_refused() {
    let scene = scene_with(
        |client| {
            open(client);
            opted_in(client);
        },
        |_: &mut ProviderFields| {},
    )
    .await;
    let (server, acme) = (&scene.server, &scene.acme);
    let alice = server.user("alice").await;
    let known = alice.browser();
    acme.tokens(&known).await;
    for round in 0..10 {
        let device = device(acme).await;
        let first = pushed(acme, device.refresh_token()).await;
        let second = pushed(acme, device.refresh_token()).await;
        let newcomer = scene.visitor();
        let question = scene.ask_by_page(&newcomer, &first).await;
        scene.vouch(&question, &format!("u-{round}-2"), &json!({}));
        let path = question.answer("code=c-1");
        let (new, linked) = tokio::join!(newcomer.visit(&path), known.authorize(&second));
        let (new, linked) = (new.callback(), linked.callback());
        let record = record_of(server, uuid_of(&device)).unwrap();
        if new.get("error").is_some() {
            assert_eq!(new.refusal(), USED);
            let tokens = acme.redeem(&linked.code()).await.tokens();
            assert_eq!(tokens.access().claims["anonymous_sub"], json!(uuid_of(&device)));
            assert!(record.is_anonymous());
        } else {
            assert_eq!(linked.refusal(), USED);
            let tokens = acme.redeem(&new.code()).await.tokens();
            assert_eq!(uuid_of(&tokens), uuid_of(&device));
            assert!(!record.is_anonymous());
        }
    }
}

/// The account exists from the sign-in on, and the code comes after the consent.
#[tokio::test]
async fn consent_comes_after_the_account_and_before_the_code() {
    let scene = scene_with(
        |client| {
            open(client);
            opted_in(client);
            client.consent = ConsentRequirement::Require;
        },
        |_: &mut ProviderFields| {},
    )
    .await;
    let acme = &scene.acme;
    let device = device(acme).await;
    let request = pushed(acme, device.refresh_token()).await;
    let browser = scene.visitor();
    let question = scene.ask_by_page(&browser, &request).await;
    scene.vouch(&question, "u-1", &ann());
    let consent = browser.visit(&question.answer("code=c-1")).await;
    assert_eq!(consent.page(), "/consent", "{}", consent.text());
    let late = scene.visitor().authorize(&request).await;
    assert_eq!(
        late.callback().refusal(),
        USED,
        "another browser with the same request"
    );
    let code = consent.allow().await.callback().code();
    assert_eq!(uuid_of(&acme.redeem(&code).await.tokens()), uuid_of(&device));
}
