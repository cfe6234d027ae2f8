//! What becomes of the provider's word: claims, tokens, keys, and the operator's look at it.

use std::collections::BTreeMap;

use base64::Engine;
use idsvc::admin::apply::users::DeclaredUser;
use idsvc::admin::apply::{Apply, DeclaredState};
use idsvc::admin::import::{ExistingUsers, ImportUsers, UserLine};
use idsvc::admin::provider::test::{FindingStatus, ProviderReport};
use idsvc::admin::provider::{ProviderFields, TestProvider};
use idsvc::admin::user;
use idsvc::federation::provider::LinkPolicy;
use idsvc::jose::jwt;
use idsvc::oauth::FaultCode;
use idsvc::oauth::client::{Client, ClientOrigin, ConsentRequirement};
use idsvc::pages::text::EN;
use idsvc::store::tables::{FAMILIES, SESSIONS};
use serde_json::json;

use super::{AT_PROVIDER, Question, open, registered, scene, scene_with, tied, uuid};
use crate::harness::{Audit, RelyingParty, Say, Tokens, Upstream};

#[tokio::test]
async fn userinfo_fills_what_the_id_token_leaves_out_and_speaks_of_the_same_person() {
    let scene = scene().await;
    scene.upstream.say(
        "/userinfo",
        Say::Json(json!({"sub": "u-1", "email": "ann@up.example", "email_verified": "true", "name": "Ann"})),
    );
    let tokens = scene
        .tokens(&scene.visitor(), "u-1", &json!({"nickname": "ann"}))
        .await;
    assert_eq!(tokens.0["account_id"], "ann@up.example");
    let seen = scene.upstream.seen("/userinfo").pop().unwrap();
    assert_eq!(
        seen.authorization.as_deref(),
        Some("Bearer the-upstream-access-token")
    );
    let user = scene
        .server
        .admin()
        .call(user::ShowUser { who: uuid(&tokens) })
        .await
        .unwrap();
    assert_eq!(
        (&user.claims["name"], &user.claims["nickname"]),
        (&json!("Ann"), &json!("ann"))
    );
    assert!(user.email_verified);
    scene.upstream.say(
        "/userinfo",
        Say::Json(json!({"sub": "u-4", "email": "eve@up.example", "name": "Eve"})),
    );
    let tokens = scene.tokens(&scene.visitor(), "u-4", &json!({})).await;
    let user = scene
        .server
        .admin()
        .call(user::ShowUser { who: uuid(&tokens) })
        .await
        .unwrap();
    assert_eq!(user.email, None, "nobody has verified it");
    scene.upstream.say(
        "/userinfo",
        Say::Json(json!({"sub": "u-2", "email": "victim@up.example"})),
    );
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-3", &json!({}));
    let screen = browser.visit(&question.answer("code=c")).await;
    assert!(screen.text().contains(EN.problem_provider_failed));
}

#[tokio::test]
async fn claims_are_mapped_by_the_record() {
    let scene = scene_with(tied, |fields| {
        fields.claims = Some(BTreeMap::from([
            ("nickname".to_owned(), "login".to_owned()),
            ("employee".to_owned(), "emp_no".to_owned()),
        ]));
    })
    .await;
    let claims = json!({"login": "ann-login", "nickname": "theirs", "emp_no": 7, "email": "not an address", "name": ["no text"]});
    let tokens = scene.tokens(&scene.visitor(), "u-1", &claims).await;
    let user = scene
        .server
        .admin()
        .call(user::ShowUser { who: uuid(&tokens) })
        .await
        .unwrap();
    assert_eq!(
        (&user.claims["nickname"], &user.claims["employee"]),
        (&json!("ann-login"), &json!(7))
    );
    assert!(
        user.email.is_none() && !user.claims.contains_key("name"),
        "what has a wrong form is left out"
    );
}

#[tokio::test]
async fn a_claim_nested_without_measure_is_left_out_and_its_user_is_shown() {
    let scene = scene_with(tied, |fields| {
        fields.claims = Some([("badge".to_owned(), "emp_no".to_owned())].into());
    })
    .await;
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
    let claims = json!({"name": "Ann", "address": nested(110), "emp_no": nested(65)});
    scene.tokens(&scene.visitor(), "u-1", &claims).await;
    let shown = serde_json::to_value(
        user::page(scene.server.admin(), &user::ListUsers::default())
            .unwrap()
            .records,
    )
    .unwrap();
    assert_eq!(shown[0]["claims"], json!({"name": "Ann"}));
}

#[tokio::test]
async fn the_upstreams_access_token_is_a_claim_until_it_expires_and_sealed_at_rest() {
    let scene = scene().await;
    let tokens = scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    let access = scene.acme.verify(tokens.access_token()).await.claims;
    assert_eq!(access["upstream_access_token"], "the-upstream-access-token");
    assert!(tokens.0.get("upstream_access_token").is_none());
    let (families, sessions) = scene
        .server
        .app
        .core
        .store
        .read_blocking(|snapshot| Ok((FAMILIES.scan(snapshot, .., 9)?, SESSIONS.scan(snapshot, .., 9)?)))
        .unwrap();
    let stored = serde_json::to_string(&(&families, &sessions)).unwrap();
    assert!(stored.contains("sealed") && !stored.contains("the-upstream-access-token"));
    let again = scene.acme.refresh(tokens.refresh_token()).await.tokens();
    let access = scene.acme.verify(again.access_token()).await.claims;
    assert_eq!(access["upstream_access_token"], "the-upstream-access-token");
    scene.server.advance(600);
    let later = scene.acme.refresh(again.refresh_token()).await.tokens();
    let access = scene.acme.verify(later.access_token()).await.claims;
    assert!(access.get("upstream_access_token").is_none());
    let family = scene
        .server
        .app
        .core
        .store
        .read_blocking(|snapshot| FAMILIES.scan(snapshot, .., 9))
        .unwrap();
    assert!(
        family
            .iter()
            .all(|(_, family)| family.authorization.upstream_token.is_none())
    );
    let off = ProviderFields {
        embed_token: Some(String::new()),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", off).await;
    let tokens = scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    let access = scene.acme.verify(tokens.access_token()).await.claims;
    assert!(access.get("upstream_access_token").is_none());
}

/// Who signs in for one application has not agreed that others act for them at the provider.
#[tokio::test]
async fn the_upstreams_access_token_is_for_the_application_whose_request_brought_it() {
    let scene = scene().await;
    let (other, public) = (
        scene.server.client_with("other", tied).await,
        scene.server.public_client("public").await,
    );
    let has_token = async |party: &RelyingParty, tokens: &Tokens| {
        let access = party.verify(tokens.access_token()).await.claims;
        access.get("upstream_access_token").is_some()
    };
    let browser = scene.visitor();
    let tokens = scene.tokens(&browser, "u-1", &json!({})).await;
    assert!(has_token(&scene.acme, &tokens).await);
    for party in [&scene.acme, &other] {
        let by_single_sign_on = party.tokens(&browser).await;
        assert!(!has_token(party, &by_single_sign_on).await);
    }
    for embeds in [false, true] {
        scene
            .server
            .change_client(&public, |client| {
                tied(client);
                client.embed_upstream_token = embeds;
            })
            .await;
        let browser = scene.visitor();
        let question = Question::of(&browser.authorize(&public.request()).await, &scene.upstream);
        scene.vouch(&question, "u-1", &json!({}));
        let code = browser.visit(&question.answer("code=c")).await.callback().code();
        let tokens = public.redeem(&code).await.tokens();
        assert_eq!(has_token(&public, &tokens).await, embeds);
    }
    let registers_itself = |client: &mut Client| {
        tied(client);
        client.origin = ClientOrigin::DynamicRegistration;
        client.consent = ConsentRequirement::Require;
    };
    let stranger = scene.server.client_with("stranger", registers_itself).await;
    let browser = scene.visitor();
    let question = Question::of(&browser.authorize(&stranger.request()).await, &scene.upstream);
    scene.vouch(&question, "u-1", &json!({}));
    let consent = browser.visit(&question.answer("code=c")).await;
    let code = consent.allow().await.callback().code();
    let tokens = stranger.redeem(&code).await.tokens();
    assert!(!has_token(&stranger, &tokens).await);
}

/// It is as long as one that is embedded may be, and the token has much else in it.
#[tokio::test]
async fn the_upstreams_access_token_is_named_if_it_makes_a_token_too_long() {
    let scene = scene().await;
    let many: Vec<_> = (0..90).map(|number| format!("scope-{number:050}")).collect();
    let registers_many = |client: &mut Client| {
        tied(client);
        client.scope = many
            .iter()
            .fold(client.scope.clone(), |scope, value| scope.with(value));
    };
    scene.server.change_client(&scene.acme, registers_many).await;
    let scope = format!("openid {}", many.join(" "));
    for (length, is_short) in [(1000, true), (8192, false)] {
        let browser = scene.visitor();
        let request = scene.acme.request().with("scope", &scope);
        let question = Question::of(&browser.authorize(&request).await, &scene.upstream);
        let said = json!({
            "access_token": "u".repeat(length),
            "expires_in": 600,
            "id_token": scene.id_token(&question, "u-1", &json!({})),
            "token_type": "Bearer",
        });
        scene.upstream.say("/token", Say::Json(said));
        let callback = browser.visit(&question.answer("code=c")).await.callback();
        assert_eq!(callback.get("code").is_some(), is_short);
        let description = callback.get("error_description");
        let is_named = description.is_some_and(|text| text.contains("claim is upstream_access_token"));
        assert_eq!(is_named, !is_short, "{description:?}");
    }
}

/// The documents of a provider that is no longer registered are neither fetched again nor kept.
#[tokio::test]
async fn what_a_removed_provider_published_is_forgotten() {
    let scene = scene().await;
    scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    let core = &scene.server.app.core;
    let record = std::sync::Arc::clone(core.catalog().provider("up").unwrap());
    let asked = || {
        let of = |path: &str| scene.upstream.seen(path).len();
        (of("/.well-known/openid-configuration"), of("/jwks"))
    };
    assert_eq!(asked(), (1, 1));
    let issuers = [record.issuer.clone()];
    scene.server.advance(7200);
    core.upstreams.refresh(&issuers, &[], core.clock.now()).await;
    assert_eq!(asked(), (2, 2), "what is registered is kept fresh");
    scene.server.advance(7200);
    core.upstreams.refresh(&[], &[], core.clock.now()).await;
    assert_eq!(asked(), (2, 2));
    let uri = format!("{}/jwks", record.issuer);
    core.upstreams.metadata(&record, core.clock.now()).await.unwrap();
    core.upstreams
        .key_set_for(&uri, "", core.clock.now())
        .await
        .unwrap();
    assert_eq!(asked(), (3, 3), "nothing of it was there");
    scene.server.advance(7200);
    core.upstreams.refresh(&[], &[uri], core.clock.now()).await;
    assert_eq!(asked(), (3, 4), "a record names these keys");
}

/// Some providers write `expires_in` as a text, and that must not make a sign-in fail.
#[tokio::test]
async fn a_lifetime_is_read_as_providers_write_it() {
    let scene = scene().await;
    for (expires_in, is_read) in [
        (json!("600"), true),
        (json!(600.0), true),
        (json!(600.9), true),
        (json!(null), false),
        (json!("soon"), false),
        (json!(-1), false),
        (json!(1e300), false),
        (json!([600]), false),
    ] {
        let browser = scene.visitor();
        let question = scene.ask(&browser).await;
        let now = scene.server.app.core.clock.now().seconds();
        let dated = json!({"iat": now, "exp": now + 60});
        scene.issue_lasting(&scene.id_token(&question, "u-1", &dated), &expires_in);
        let screen = browser.visit(&question.answer("code=c")).await;
        let tokens = scene.acme.redeem(&screen.callback().code()).await.tokens();
        scene.server.advance(601);
        let later = scene.acme.refresh(tokens.refresh_token()).await.tokens();
        let access = scene.acme.verify(later.access_token()).await.claims;
        let is_gone = access.get("upstream_access_token").is_none();
        assert_eq!(is_gone, is_read, "{expires_in}");
    }
}

#[tokio::test]
async fn a_provider_is_replaced_without_a_change_at_the_application() {
    let scene = scene_with(tied, |fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let ann = json!({"email": "ann@up.example", "email_verified": true});
    let before = scene.tokens(&scene.visitor(), "u-1", &ann).await;
    let next = Upstream::start_other().await;
    let mut fields = registered(&next);
    fields.link = Some(LinkPolicy::VerifiedEmail);
    scene.server.provider("next", fields).await;
    scene
        .server
        .change_client(&scene.acme, |client| {
            client.providers = ["next".to_owned()].into();
        })
        .await;
    let browser = scene.visitor();
    let question = Question::of(&browser.authorize(&scene.acme.request()).await, &next);
    let mut claims = next.claims(AT_PROVIDER, "other-subject");
    claims["nonce"] = question.get("nonce").unwrap().into();
    claims["email"] = "ann@up.example".into();
    claims["email_verified"] = true.into();
    next.say(
        "/token",
        Say::Json(json!({"access_token": "a", "id_token": next.sign(&claims)})),
    );
    let code = browser
        .visit(&question.answer_of("next", "code=c"))
        .await
        .callback()
        .code();
    let after = scene.acme.redeem(&code).await.tokens();
    assert_eq!(
        uuid(&before),
        uuid(&after),
        "the same verified address is the same user"
    );
    assert_eq!(after.0["amr"], json!([{"authority": "next"}]));
    scene.acme.refresh(before.refresh_token()).await.tokens();
}

/// A provider chooses the names of its users: none of them becomes whom the operator means by one.
#[tokio::test]
async fn nobody_whom_a_provider_brought_is_taken_for_somebody_declared() {
    let scene = scene().await;
    let claims = json!({"email": "admin@example.com", "email_verified": true});
    let evil = scene.tokens(&scene.visitor(), "evil", &claims).await;
    assert_eq!(evil.0["account_id"], "admin@example.com");
    let meaning = |uuid: Option<&str>| UserLine {
        uuid: uuid.map(|uuid| uuid.parse().unwrap()),
        email: Some("admin@example.com".to_owned()),
        user_type: Some("admin".to_owned()),
        ..UserLine::default()
    };
    let declare = async |line| {
        let declared = DeclaredUser { password: None, line };
        let request = Apply {
            state: DeclaredState {
                user: Some(vec![declared]),
                ..DeclaredState::default()
            },
            dry_run: false,
            prune: false,
            ..Apply::default()
        };
        scene
            .server
            .admin()
            .call(request)
            .await
            .map_err(|refusal| refusal.to_string())
    };
    let bring = async |line: UserLine, existing| {
        let line = json!({"uuid": line.uuid, "email": line.email, "user_type": line.user_type});
        let request = ImportUsers {
            lines: vec![(1, line.to_string())],
            existing,
            skip_bad: false,
            write: true,
        };
        scene.server.admin().call(request).await.unwrap()
    };
    let refused = declare(meaning(None)).await.unwrap_err();
    let report = bring(meaning(None), ExistingUsers::Update).await;
    let fault = &report.bad[0].faults[0];
    assert_eq!(
        (fault.code, &fault.fields[..]),
        (FaultCode::AlreadyExists, &["uuid".to_owned()][..])
    );
    assert_eq!(refused, fault.detail);
    assert!(refused.contains(&uuid(&evil)), "{refused}");
    assert_eq!(bring(meaning(None), ExistingUsers::Skip).await.unchanged, 1);
    let user_type = async || {
        let user = scene
            .server
            .admin()
            .call(user::ShowUser { who: uuid(&evil) })
            .await
            .unwrap();
        user.user_type
    };
    assert_eq!(user_type().await, "user");
    let meant = meaning(Some(&uuid(&evil)));
    assert_eq!(declare(meant.clone()).await.unwrap().changes.len(), 1);
    assert_eq!(user_type().await, "admin");
    assert_eq!(bring(meant, ExistingUsers::Update).await.bad, []);
}

#[tokio::test]
async fn a_new_key_of_the_provider_is_learned() {
    let scene = scene().await;
    scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    scene.upstream.publish(&[scene.upstream.next_key()]);
    scene.server.advance(61);
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    let mut claims = scene.upstream.claims(AT_PROVIDER, "u-1");
    claims["nonce"] = question.get("nonce").unwrap().into();
    scene.issue(&jwt::sign(scene.upstream.next_key(), "JWT", &claims).unwrap());
    browser.visit(&question.answer("code=c")).await.callback().code();
}

#[tokio::test]
async fn who_may_not_come_in_is_told_so() {
    let scene = scene_with(tied, |fields| fields.create_users = Some(false)).await;
    let browser = scene.visitor();
    let question = scene.ask(&browser).await;
    scene.vouch(&question, "u-1", &json!({}));
    let screen = browser.visit(&question.answer("code=c")).await;
    assert!(
        screen.text().contains(EN.problem_not_admitted),
        "{}",
        screen.text()
    );
}

/// A disabled user can sign in neither by a provider nor with a password, and both attempts are logged alike. The same
/// holds for a user whom the provider may not bring.
#[tokio::test]
async fn a_disabled_user_is_not_let_in_by_a_provider() {
    let scene = scene().await;
    let tokens = scene.tokens(&scene.visitor(), "u-1", &json!({})).await;
    let closed = ProviderFields {
        create_users: Some(false),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", closed).await;
    scene
        .server
        .admin()
        .call(user::DisableUser { who: uuid(&tokens) })
        .await
        .unwrap();
    let audit = Audit::listen();
    for subject in ["u-1", "u-2"] {
        let browser = scene.visitor();
        let question = scene.ask(&browser).await;
        scene.vouch(&question, subject, &json!({"email": "ann@up.example"}));
        let screen = browser.visit(&question.answer("code=c")).await;
        assert!(
            screen.text().contains(EN.problem_not_admitted),
            "{}",
            screen.text()
        );
        assert!(browser.cookie("__Host-idsvc_session").is_none());
    }
    let failed = |user: Option<String>| {
        let mut event = json!({"event": "sign_in_failed", "from": "127.0.0.1", "client_id": "acme"});
        if let Some(user) = user {
            event["user"] = user.into();
        }
        event
    };
    assert_eq!(
        audit.take(&["sign_in_failed", "signed_in"]),
        [failed(Some(uuid(&tokens))), failed(None)]
    );
}

#[tokio::test]
async fn a_picture_is_served_and_can_do_nothing() {
    let svg = r#"<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>"#;
    let scene = scene_with(open, |fields| {
        fields.logo = Some(base64::engine::general_purpose::STANDARD.encode(svg));
    })
    .await;
    let reply = scene.server.get("/federation/up/logo").await;
    assert_eq!(reply.header("content-type"), Some("image/svg+xml"));
    assert!(
        reply
            .header("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
    assert_eq!(scene.server.get("/federation/none/logo").await.status, 404);
}

#[tokio::test]
async fn a_provider_is_examined_step_by_step() {
    let test = || TestProvider { id: "up".to_owned() };
    let scene = scene().await;
    scene.upstream.say(
        "/authorize",
        Say::Raw(b"HTTP/1.1 303 See Other\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n".to_vec()),
    );
    let refused = |error: &str| {
        let body = format!(r#"{{"error":"{error}"}}"#);
        Say::Raw(
            format!(
                "HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes(),
        )
    };
    scene.upstream.say("/token", refused("invalid_grant"));
    let report = scene.server.admin().call(test()).await.unwrap();
    assert!(report.works, "{report:#?}");
    let failed = |report: &ProviderReport| -> Vec<String> {
        let failed = report
            .findings
            .iter()
            .filter(|finding| finding.standing == FindingStatus::Failed);
        failed.map(|finding| finding.check.clone()).collect()
    };
    scene.upstream.say("/token", refused("invalid_client"));
    scene.upstream.say("/authorize", refused("invalid_request"));
    scene.upstream.say("/jwks", Say::Json(json!({"keys": []})));
    let report = scene.server.admin().call(test()).await.unwrap();
    assert_eq!(failed(&report), ["keys", "redirect uri", "credentials"]);
    assert!(
        report
            .findings
            .iter()
            .filter(|finding| finding.standing == FindingStatus::Failed)
            .all(|finding| finding.remedy.is_some())
    );
    let fields = |check: &str| {
        let mut findings = report.findings.iter();
        findings
            .find(|finding| finding.check == check)
            .unwrap()
            .fields
            .join(" ")
    };
    assert_eq!(fields("keys"), "algs");
    assert_eq!(fields("redirect uri"), "");
    assert_eq!(fields("credentials"), "client_id client_secret auth_method");
    scene.upstream.say("/.well-known/openid-configuration", Say::Json(json!({
        "issuer": "https://other.example", "authorization_endpoint": "https://a.example/", "token_endpoint": "https://a.example/", "jwks_uri": "https://a.example/",
    })));
    let report = scene.server.admin().call(test()).await.unwrap();
    assert_eq!(failed(&report), ["discovery"]);
}
