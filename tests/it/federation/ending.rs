//! What stood on a provider's word ends with that word.

use idsvc::admin::apply::{Apply, DeclaredState};
use idsvc::admin::provider;
use idsvc::admin::provider::{ProviderFields, UpdateProvider};
use idsvc::admin::session::ListSessions;
use idsvc::admin::user;
use idsvc::admin::user::UnlinkUser;
use idsvc::federation::provider::LinkPolicy;
use idsvc::flow::census;
use idsvc::identity::AuthenticationMethod;
use idsvc::oauth::client::{Client, ConsentRequirement};
use idsvc::store::StoreError;
use idsvc::store::engine::Snapshot;
use idsvc::store::tables::{
    CONSENTS, FAMILIES, FAMILIES_BY_OWNER, PROVIDERS, SESSIONS, SESSIONS_BY_USER, USERS, USERS_BY_IDENTITY,
    USERS_BY_LOGIN_NAME,
};
use serde_json::json;
use uuid::Uuid;

use super::{Question, Scene, open, registered, scene, scene_with, tied, uuid};
use crate::harness::{Audit, Upstream};

impl Scene {
    /// Nobody comes in by a provider until the application takes this one's word.
    async fn take_only(&self, provider: Option<&str>) {
        let providers = provider.map(ToOwned::to_owned).into_iter().collect();
        self.server
            .change_client(&self.acme, |client| client.providers = providers)
            .await;
    }

    /// Makes the provider, its sessions and its grants as a release without incarnations wrote them.
    async fn forget_incarnations(&self) {
        let core = &self.server.app.core;
        let written = core
            .store
            .write("test_older_release", |tx| -> Result<_, StoreError> {
                let forget = |factor: &mut AuthenticationMethod| {
                    if let AuthenticationMethod::Federated { incarnation, .. } = factor {
                        *incarnation = Uuid::nil();
                    }
                };
                let mut provider = PROVIDERS.get(&*tx, "up")?.unwrap();
                provider.incarnation = Uuid::nil();
                PROVIDERS.put(tx, "up", &provider)?;
                for (id, mut session) in SESSIONS.scan(&*tx, .., 10)? {
                    forget(&mut session.factor);
                    SESSIONS.put(tx, &id, &session)?;
                }
                for (id, mut family) in FAMILIES.scan(&*tx, .., 10)? {
                    forget(&mut family.authorization.factor);
                    FAMILIES.put(tx, &id, &family)?;
                }
                Ok(())
            });
        written.await.unwrap();
        core.reload_catalog().await.unwrap();
    }

    async fn remove_provider(&self, id: &str, by_pruning: bool) {
        self.take_only(None).await;
        if by_pruning {
            let nothing = DeclaredState {
                provider: Some(Vec::new()),
                ..DeclaredState::default()
            };
            let request = Apply {
                state: nothing,
                dry_run: false,
                prune: true,
                ..Apply::default()
            };
            let applied = self.server.admin().call(request).await.unwrap();
            assert_eq!(applied.changes[0].id, id);
        } else {
            self.server
                .admin()
                .call(provider::RemoveProvider { id: id.to_owned() })
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_removed_providers_name_brings_nothing_back() {
    for by_pruning in [false, true] {
        let scene = scene_with(open, |_| {}).await;
        let alice = scene.server.user("alice").await;
        let typed = scene.acme.tokens(&alice.browser()).await;
        scene.take_only(Some("up")).await;
        scene
            .server
            .change_client(&scene.acme, |client| client.password_sign_in = false)
            .await;
        let browser = scene.visitor();
        let tokens = scene.tokens(&browser, "u-1", &json!({})).await;
        let code = scene.acme.code(&browser).await;
        scene.remove_provider("up", by_pruning).await;
        for token in [tokens.access_token(), tokens.refresh_token()] {
            let verdict = scene.acme.introspect(token).await.json();
            assert_eq!(verdict, json!({"active": false}));
        }
        assert!(!scene.acme.is_welcome(&tokens).await);
        let namesake = Upstream::start_other().await;
        scene.server.provider("up", registered(&namesake)).await;
        scene.take_only(Some("up")).await;
        assert_eq!(
            scene.acme.refresh(tokens.refresh_token()).await.error(),
            "invalid_grant"
        );
        assert_eq!(scene.acme.redeem(&code).await.error(), "invalid_grant");
        Question::of(&browser.authorize(&scene.acme.request()).await, &namesake);
        scene.acme.refresh(typed.refresh_token()).await.tokens();
    }
}

/// The session is no longer listed and counted, it cannot be used, and the sweep removes it.
#[tokio::test]
async fn a_session_ends_with_its_provider_also_if_that_comes_back() {
    for is_of_older_release in [false, true] {
        let scene = scene().await;
        let browser = scene.visitor();
        let tokens = scene.tokens(&browser, "u-1", &json!({})).await;
        if is_of_older_release {
            scene.forget_incarnations().await;
        }
        let listed = async || {
            let core = &scene.server.app.core;
            let request = ListSessions {
                who: uuid(&tokens),
                ended: false,
            };
            let listed = scene.server.admin().call(request).await.unwrap().len();
            census::take(core).unwrap();
            let counted = census::last(core).unwrap().sessions;
            assert_eq!(counted, u64::try_from(listed).unwrap());
            listed
        };
        scene.acme.code(&browser).await;
        assert_eq!(listed().await, 1);
        scene.remove_provider("up", false).await;
        assert_eq!(listed().await, 0);
        scene.server.provider("up", registered(&scene.upstream)).await;
        scene.take_only(Some("up")).await;
        assert_eq!(listed().await, 0);
        assert_eq!(
            scene.acme.refresh(tokens.refresh_token()).await.refusal(),
            "400 invalid_grant: refresh_token has been revoked"
        );
        let question = Question::of(&browser.authorize(&scene.acme.request()).await, &scene.upstream);
        scene.vouch(&question, "u-1", &json!({}));
        let audit = Audit::listen();
        let code = browser.visit(&question.answer("code=c")).await.callback().code();
        assert!(audit.take(&["signed_out"]).is_empty(), "that session had ended");
        let anew = scene.acme.redeem(&code).await.tokens();
        assert_eq!((uuid(&anew), listed().await), (uuid(&tokens), 1));
        let sessions = scene
            .server
            .app
            .core
            .store
            .read_blocking(|snapshot| SESSIONS.count(snapshot));
        assert_eq!(sessions.unwrap(), 1, "the ended one was replaced");
    }
}

#[tokio::test]
async fn a_link_is_taken_away_under_every_name_of_its_issuer() {
    for name in ["up", "next"] {
        let scene = scene().await;
        let first = scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
        scene.remove_provider("up", false).await;
        scene.server.provider("next", registered(&scene.upstream)).await;
        scene.take_only(Some("next")).await;
        let browser = scene.visitor();
        let question = scene.ask(&browser).await;
        scene.vouch(&question, "u-1", &json!({}));
        let answer = question.answer_of("next", "code=c");
        let code = browser.visit(&answer).await.callback().code();
        let second = scene.acme.redeem(&code).await.tokens();
        assert_eq!(uuid(&first), uuid(&second), "users are found again");
        let request = UnlinkUser {
            who: uuid(&second),
            provider: name.to_owned(),
        };
        let audit = Audit::listen();
        let view = scene.server.admin().call(request).await.unwrap();
        assert!(view.identities.is_empty());
        let told = json!({
            "event": "administered", "actor": scene.server.admin().actor.to_string(), "command": "user unlink",
            "subject": uuid(&second), "provider": name
        });
        assert_eq!(audit.take(&["administered"]), [told]);
        assert_eq!(
            scene.acme.refresh(second.refresh_token()).await.error(),
            "invalid_grant"
        );
        Question::of(&browser.authorize(&scene.acme.request()).await, &scene.upstream);
    }
}

#[tokio::test]
async fn a_code_does_not_outlive_the_link_that_it_stood_on() {
    let scene = scene_with(open, |fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let alice = scene.server.user("alice").await;
    let browser = alice.browser();
    let hinted = scene.acme.request().with("idp_hint", "up");
    let question = Question::of(&browser.authorize(&hinted).await, &scene.upstream);
    let ours = json!({"email": "alice@example.com", "email_verified": true});
    scene.vouch(&question, "u-1", &ours);
    let code = browser.visit(&question.answer("code=c")).await.callback().code();
    let again = scene.acme.request().with("prompt", "login");
    let typed = browser.authorize(&again).await.sign_in().await.callback().code();
    let elsewhere = scene.acme.code(&scene.server.user("bob").await.browser()).await;
    let request = UnlinkUser {
        who: alice.sub(),
        provider: "up".to_owned(),
    };
    scene.server.admin().call(request).await.unwrap();
    assert_eq!(scene.acme.redeem(&code).await.error(), "invalid_grant");
    let tokens = scene.acme.redeem(&typed).await.tokens();
    assert_eq!(
        (&tokens.0["uuid"], &tokens.0["amr"]),
        (&json!(alice.sub()), &json!([{"authority": "credential"}]))
    );
    scene.acme.redeem(&elsewhere).await.tokens();
}

/// A grant for offline use is bound to no session.
#[tokio::test]
async fn a_grant_for_offline_use_ends_with_the_link_that_it_stood_on() {
    let scene = scene_with(open, |fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let alice = scene.server.user("alice").await;
    let offline = scene.acme.request().with("scope", "openid offline_access");
    let typed = scene.acme.tokens_for(&alice.browser(), &offline).await;
    let browser = scene.visitor();
    let hinted = offline.with("idp_hint", "up");
    let question = Question::of(&browser.authorize(&hinted).await, &scene.upstream);
    let ours = json!({"email": "alice@example.com", "email_verified": true});
    scene.vouch(&question, "u-1", &ours);
    let code = browser.visit(&question.answer("code=c")).await.callback().code();
    let vouched = scene.acme.redeem(&code).await.tokens();
    assert_eq!(uuid(&vouched), alice.sub());
    let request = UnlinkUser {
        who: alice.sub(),
        provider: "up".to_owned(),
    };
    scene.server.admin().call(request).await.unwrap();
    assert!(!scene.acme.is_welcome(&vouched).await);
    assert_eq!(
        scene.acme.refresh(vouched.refresh_token()).await.error(),
        "invalid_grant"
    );
    scene.acme.refresh(typed.refresh_token()).await.tokens();
}

#[tokio::test]
async fn another_issuer_under_a_providers_name_ends_what_stood_on_the_word_of_the_first() {
    let scene = scene().await;
    let tokens = scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    let update = async |fields| {
        let id = "up".to_owned();
        let request = UpdateProvider {
            id,
            client_secret: None,
            fields,
        };
        scene.server.admin().call(request).await.unwrap();
    };
    let name = Some("Another name".to_owned());
    update(ProviderFields {
        name,
        ..ProviderFields::default()
    })
    .await;
    assert!(scene.acme.is_welcome(&tokens).await);
    update(registered(&Upstream::start_other().await)).await;
    assert!(!scene.acme.is_welcome(&tokens).await);
    assert_eq!(
        scene.acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
}

/// No row of a removed user is kept. The next sign-in with the same account at the provider creates a new user.
#[tokio::test]
async fn a_removed_user_leaves_no_row_behind() {
    let asking = |client: &mut Client| {
        tied(client);
        client.consent = ConsentRequirement::Require;
    };
    let scene = scene_with(asking, |_| {}).await;
    let rows = || {
        let read = |snapshot: &dyn Snapshot| {
            Ok([
                USERS.count(snapshot)?,
                USERS_BY_LOGIN_NAME.count(snapshot)?,
                USERS_BY_IDENTITY.count(snapshot)?,
                CONSENTS.count(snapshot)?,
                SESSIONS.count(snapshot)?,
                SESSIONS_BY_USER.count(snapshot)?,
                FAMILIES.count(snapshot)?,
                FAMILIES_BY_OWNER.count(snapshot)?,
            ])
        };
        scene.server.app.core.store.read_blocking(read).unwrap()
    };
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let consent = browser.visit(&question.answer("code=c")).await;
    let code = consent.allow().await.callback().code();
    let tokens = scene.acme.redeem(&code).await.tokens();
    assert_eq!(
        rows(),
        [1, 1, 1, 1, 1, 1, 1, 2],
        "a family under its user and its session"
    );
    scene
        .server
        .admin()
        .call(user::RemoveUser { who: uuid(&tokens) })
        .await
        .unwrap();
    assert_eq!(rows(), [0; 8]);
}
