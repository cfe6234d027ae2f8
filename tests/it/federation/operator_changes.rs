//! A change by the operator while a user is at a provider applies when the user comes back.

use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user;
use idsvc::federation::provider::LinkPolicy;
use idsvc::flow::login::transaction::LoginTransactionError;
use idsvc::oauth::client::{Client, PkceRequirement};
use idsvc::store::engine::Snapshot;
use idsvc::store::tables::SESSIONS;
use serde_json::{Value, json};

use super::{Question, Scene, open, scene, scene_with, tied};
use crate::harness::{Screen, until};

impl Scene {
    /// Brings a user back from a provider that keeps the service waiting until the operator has made this change.
    async fn come_back_after(&self, claims: &Value, change: impl AsyncFnOnce()) -> Screen {
        let browser = self.visitor();
        let hinted = self.acme.request().with("idp_hint", "up");
        let question = Question::of(&browser.authorize(&hinted).await, &self.upstream);
        self.vouch(&question, "u-1", claims);
        let held = self.upstream.hold("/token");
        let answer = question.answer("code=c");
        let (back, ()) = tokio::join!(browser.visit(&answer), async {
            until(async || !self.upstream.seen("/token").is_empty()).await;
            change().await;
            held.notify_one();
        });
        back
    }

    fn is_nobody_in(&self) -> bool {
        let read = |snapshot: &dyn Snapshot| SESSIONS.count(snapshot);
        self.server.app.core.store.read_blocking(read).unwrap() == 0
    }
}

/// A double tap at the provider: the browser waits for the answer to the second tap, which is quicker, so that nobody sees
/// the first one's. It signs in once more, however long that takes.
#[tokio::test]
async fn an_answer_that_nobody_awaits_ends_no_sign_in() {
    let scene = scene().await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let held = scene.upstream.hold("/token");
    let answer = question.answer("code=c-1");
    let (first, second) = tokio::join!(browser.visit(&answer), async {
        until(async || !scene.upstream.seen("/token").is_empty()).await;
        let second = browser.visit(&answer).await;
        held.notify_one();
        second
    });
    first.callback().code();
    browser.set_cookie("__Host-idsvc_session", "lost");
    let question = Question::of(&second, &scene.upstream);
    scene.server.advance(60);
    scene.vouch(&question, "u-1", &json!({}));
    let answer = question.answer("code=c-2");
    let code = browser.visit(&answer).await.callback().code();
    scene.acme.redeem(&code).await.tokens();
    scene.server.advance(10);
    assert_eq!(browser.visit(&answer).await.status, 400, "this one arrived");
}

#[tokio::test]
async fn nobody_comes_in_by_a_provider_that_is_disabled_meanwhile() {
    let scene = scene().await;
    let disabled = ProviderFields {
        enabled: Some(false),
        ..ProviderFields::default()
    };
    let change = async || drop(scene.server.change_provider("up", disabled).await);
    let back = scene.come_back_after(&json!({}), change).await;
    assert_eq!(back.page(), "/login", "{}", back.text());
    assert!(scene.is_nobody_in());
    assert!(
        user::page(scene.server.admin(), &user::ListUsers::default())
            .unwrap()
            .records
            .is_empty()
    );
}

#[tokio::test]
async fn nobody_is_linked_or_made_by_a_policy_that_is_taken_back_meanwhile() {
    let scene = scene_with(open, |fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let alice = scene.server.user("alice").await;
    let stricter = ProviderFields {
        link: Some(LinkPolicy::Never),
        create_users: Some(false),
        ..ProviderFields::default()
    };
    let ours = json!({"email": "alice@example.com", "email_verified": true});
    let change = async || drop(scene.server.change_provider("up", stricter).await);
    let back = scene.come_back_after(&ours, change).await;
    assert_eq!(back.page(), "/login", "{}", back.text());
    assert!(scene.is_nobody_in());
    let users = user::page(scene.server.admin(), &user::ListUsers::default())
        .unwrap()
        .records;
    assert_eq!((users.len(), users[0].uuid), (1, alice.user.uuid));
    assert!(users[0].identities.is_empty());
}

#[tokio::test]
async fn a_client_that_changes_meanwhile_gets_no_code_for_what_it_was() {
    let changes: [fn(&mut Client); 4] = [
        |client| client.enabled = false,
        |client| client.redirect_uris = vec!["https://acme.example/new".to_owned()],
        |client| client.pkce = PkceRequirement::Required,
        |client| {
            client.providers.clear();
            client.password_sign_in = true;
        },
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let scene = scene_with(tied, |_| {}).await;
        let change = async || scene.server.change_client(&scene.acme, change).await;
        let back = scene.come_back_after(&json!({}), change).await;
        assert_eq!(back.status, 400, "{at}: {}", back.text());
        let expired = LoginTransactionError::Expired.to_string();
        assert!(back.text().contains(&expired), "{at}");
        assert!(scene.is_nobody_in(), "{at}");
        assert!(
            user::page(scene.server.admin(), &user::ListUsers::default())
                .unwrap()
                .records
                .is_empty(),
            "{at}"
        );
    }
}
