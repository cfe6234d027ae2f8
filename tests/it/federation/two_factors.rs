//! What a provider says of its own second factor, and the second step of users who are linked to it.

use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user::UnlinkUser;
use idsvc::federation::provider::LinkPolicy;
use idsvc::flow::factors;
use idsvc::identity::{Factor, FactorKind, SecondFactorRule, Totp, User};
use idsvc::oauth::Policy;
use idsvc::pages::text::EN;
use idsvc::store::tables::USERS;
use serde_json::{Value, json};

use super::{Question, Scene, open, scene, scene_under, scene_with, tied};
use crate::harness::{Person, Say, Server};
use crate::second_factor::{App, type_code};

fn trusting(fields: &mut ProviderFields) {
    fields.mfa_amr = Some(vec!["mfa".to_owned()]);
    fields.mfa_acr = Some(vec!["gold".to_owned()]);
}

/// `acr` and `amr` of the ID token of a new user.
async fn levels(scene: &Scene, subject: &str, claims: &Value) -> (Value, Value) {
    let tokens = scene.tokens(&scene.visitor(), subject, claims).await;
    let mut id = scene.acme.verify(tokens.id_token()).await.claims;
    (id["acr"].take(), id["amr"].take())
}

/// A local user with an authenticator app, and the address that the provider has verified.
async fn local_user(server: &Server) -> Person {
    let alice = server
        .user_with("alice", |user| {
            user.email = Some("alice@up.example".to_owned());
            user.email_verified = true;
        })
        .await;
    let core = &server.app.core;
    let (user, id) = (alice.user.uuid, core.random.uuid_v7(core.clock.since_epoch()));
    let factor = Factor {
        name: String::new(),
        added_at: core.clock.now(),
        last_used_at: None,
        kind: FactorKind::Totp(Totp {
            sealed: String::new(),
            last_step: 0,
        }),
    };
    let added = core
        .store
        .write("test_factor", move |tx| factors::add(tx, user, id, &factor));
    assert!(added.await.unwrap());
    alice
}

#[tokio::test]
async fn a_provider_that_is_not_trusted_for_it_is_one_factor_whatever_it_says() {
    let scene = scene().await;
    let claims = json!({"amr": ["pwd", "otp", "mfa"], "acr": "2"});
    let one = (json!("1"), json!(["fed"]));
    assert_eq!(levels(&scene, "u-1", &claims).await, one);
    let asked = scene.acme.request().with("acr_values", "2");
    let browser = scene.visitor();
    let question = Question::of(&browser.authorize(&asked).await, &scene.upstream);
    scene.vouch(&question, "u-1", &claims);
    let answer = browser.visit(&question.answer("code=c-1")).await.callback();
    assert_eq!(answer.error(), "unmet_authentication_requirements");
}

#[tokio::test]
async fn a_trusted_value_counts_as_two_factors_and_each_method_is_named_once() {
    let scene = scene_with(tied, trusting).await;
    let two = (json!("2"), json!(["fed", "mfa"]));
    for (subject, claims) in [
        ("u-1", json!({"amr": ["pwd", "mfa", "mfa"]})),
        ("u-2", json!({"acr": "gold"})),
        ("u-3", json!({"amr": ["mfa"], "acr": "gold"})),
    ] {
        assert_eq!(levels(&scene, subject, &claims).await, two, "{claims}");
    }
    let one = (json!("1"), json!(["fed"]));
    for (subject, claims) in [
        ("u-4", json!({"amr": ["pwd"], "acr": "silver"})),
        ("u-5", json!({"amr": "mfa"})),
        ("u-6", json!({"amr": ["MFA", ["mfa"], 1], "acr": ["gold"]})),
        ("u-7", json!({"amr": ["gold"], "acr": "mfa"})),
        ("u-8", json!({})),
    ] {
        assert_eq!(levels(&scene, subject, &claims).await, one, "{claims}");
    }
    // The tokens of a client name the provider, and nothing beside it.
    let tokens = scene
        .tokens(&scene.visitor(), "u-1", &json!({"amr": ["mfa"]}))
        .await;
    assert_eq!(tokens.0["amr"], json!([{"authority": "up"}]));
    // A demand for two factors is met at once.
    let asked = scene.acme.request().with("acr_values", "2");
    let browser = scene.visitor();
    let question = Question::of(&browser.authorize(&asked).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({"acr": "gold"}));
    browser
        .visit(&question.answer("code=c-1"))
        .await
        .callback()
        .code();
}

#[tokio::test]
async fn only_a_verified_id_token_says_how_the_user_signed_in() {
    let scene = scene_with(tied, trusting).await;
    let says = json!({"sub": "u-1", "amr": ["mfa"], "acr": "gold", "name": "Ann"});
    scene.upstream.say("/userinfo", Say::Json(says));
    let one = (json!("1"), json!(["fed"]));
    assert_eq!(levels(&scene, "u-1", &json!({})).await, one);
    // A token that is changed on the way is refused as a whole.
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    let token = scene.id_token(&question, "u-1", &json!({}));
    let changed = scene.id_token(&question, "u-1", &json!({"amr": ["mfa"]}));
    let parts: Vec<_> = token.split('.').zip(changed.split('.')).collect();
    let forged = format!("{}.{}.{}", parts[0].0, parts[1].1, parts[2].0);
    scene.issue(&forged);
    let answer = browser.visit(&question.answer("code=c-1")).await;
    assert!(
        browser.cookie("__Host-idsvc_session").is_none(),
        "{}",
        answer.text()
    );
}

/// Otherwise the operator of the provider could sign in as the user with one factor.
#[tokio::test]
async fn a_provider_does_not_go_around_the_second_step_of_a_user_who_is_linked_to_it() {
    let linking = |fields: &mut ProviderFields| fields.link = Some(LinkPolicy::VerifiedEmail);
    let scene = scene_with(open, linking).await;
    let alice = local_user(&scene.server).await;
    let claims = json!({"email": "alice@up.example", "email_verified": true, "amr": ["mfa"], "acr": "2"});
    // The sign-in that links the account, and the next one.
    for _ in 0..2 {
        let browser = scene.visitor();
        let request = scene.acme.request().with("idp_hint", "up");
        let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
        scene.vouch(&question, "u-1", &claims);
        let page = browser.visit(&question.answer("code=c-1")).await.follow().await;
        assert_eq!(
            (page.page(), page.heading().as_str()),
            ("/second-factor", EN.second_factor_title),
            "{}",
            page.text()
        );
        assert!(browser.cookie("__Host-idsvc_session").is_none());
    }
    // Once the operator trusts it, it is enough.
    let mut fields = ProviderFields::default();
    trusting(&mut fields);
    scene.server.change_provider("up", fields).await;
    let browser = scene.visitor();
    let request = scene.acme.request().with("idp_hint", "up");
    let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
    scene.vouch(&question, "u-1", &claims);
    let code = browser
        .visit(&question.answer("code=c-1"))
        .await
        .callback()
        .code();
    let id = scene.acme.redeem(&code).await.tokens().id().claims;
    assert_eq!((&id["sub"], &id["acr"]), (&json!(alice.sub()), &json!("2")));
}

/// Otherwise the person who made the account would keep a way in to it.
#[tokio::test]
async fn a_provider_that_proves_the_address_of_an_unproven_holder_ends_what_that_person_set_up() {
    let linking = |fields: &mut ProviderFields| fields.link = Some(LinkPolicy::VerifiedEmail);
    let scene = scene_with(tied, linking).await;
    let alice = local_user(&scene.server).await;
    let unproven = |user: &mut User| {
        user.email_verified = false;
        user.unproven_holder = true;
    };
    scene.server.change_user(&alice, unproven).await;
    let claims = json!({"email": "alice@up.example", "email_verified": true});
    let tokens = scene.tokens(&scene.visitor(), "u-1", &claims).await;
    assert_eq!(tokens.id().claims["sub"], alice.sub());
    let uuid = alice.user.uuid;
    let store = &scene.server.app.core.store;
    let left = store.read_blocking(|snapshot| factors::of_user(snapshot, uuid));
    let user = store.read_blocking(|snapshot| USERS.get(snapshot, &uuid));
    let user = user.unwrap().unwrap();
    assert!(left.unwrap().is_empty() && user.password.is_none() && user.email_verified);
    assert_eq!(user.identities.len(), 1);
    // The next sign-in is that of any linked user.
    let tokens = scene.tokens(&scene.visitor(), "u-1", &claims).await;
    assert_eq!(tokens.id().claims["sub"], alice.sub());
}

/// A scene in which everybody needs two factors.
async fn strict(provider: impl FnOnce(&mut ProviderFields)) -> Scene {
    let rule = |policy: &mut Policy| policy.accounts.second_factor = SecondFactorRule::All;
    scene_under(rule, tied, provider).await
}

#[tokio::test]
async fn where_all_need_two_factors_a_trusted_provider_is_enough_and_another_is_not() {
    for is_trusted in [false, true] {
        let change = |fields: &mut ProviderFields| {
            if is_trusted {
                trusting(fields);
            }
        };
        let scene = strict(change).await;
        let browser = scene.visitor();
        let question = scene.ask(&browser).await;
        scene.vouch(&question, "u-1", &json!({"amr": ["mfa"]}));
        let page = browser.visit(&question.answer("code=c-1")).await;
        if is_trusted {
            page.callback().code();
        } else {
            let page = page.follow().await;
            assert_eq!(
                (page.page(), page.heading().as_str()),
                ("/second-factor", EN.totp_add)
            );
        }
    }
}

#[tokio::test]
async fn a_link_that_is_taken_away_ends_the_enrolment_that_waits() {
    let scene = strict(|_| ()).await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let page = browser.visit(&question.answer("code=c-1")).await.follow().await;
    let app = App::of(&page);
    let users = scene
        .server
        .app
        .core
        .store
        .read_blocking(|snapshot| USERS.scan(snapshot, .., usize::MAX));
    let (uuid, _) = users.unwrap().pop().unwrap();
    let request = UnlinkUser {
        who: uuid.to_string(),
        provider: "up".to_owned(),
    };
    scene.server.admin().call(request).await.unwrap();
    let answer = type_code(&page, &app.code(&scene.server, 0)).await;
    assert_ne!(answer.page(), "/second-factor");
    assert!(browser.cookie("__Host-idsvc_session").is_none());
}

#[tokio::test]
async fn a_demand_for_a_passkey_is_refused_where_users_cannot_have_one() {
    let scene = scene().await;
    let request = scene.acme.request().with("acr_values", "phr");
    let refused = scene.visitor().authorize(&request).await.callback();
    assert_eq!(refused.error(), "unmet_authentication_requirements");
}
