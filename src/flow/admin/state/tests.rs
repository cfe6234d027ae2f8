use super::*;
use crate::flow::admin::client::{self, AddClient, ClientFields};
use crate::flow::admin::import::UserLine;
use crate::flow::admin::tests::{admin, core, refusal};
use crate::flow::admin::user::{self, AddUser, NewPassword, UserFields};

fn web() -> DeclaredClient {
    DeclaredClient {
        client_id: "web".to_owned(),
        redirect_uris: vec!["https://app.example/cb".to_owned()],
        ..DeclaredClient::default()
    }
}

fn person(email: &str) -> DeclaredUser {
    DeclaredUser {
        password: None,
        line: UserLine {
            email: Some(email.to_owned()),
            ..UserLine::default()
        },
    }
}

fn request(client: Option<Vec<DeclaredClient>>, user: Option<Vec<DeclaredUser>>, prune: bool) -> Apply {
    Apply {
        state: State {
            provider: None,
            client,
            user,
        },
        dry_run: false,
        prune,
    }
}

fn actions(applied: &Applied) -> Vec<(Action, &str)> {
    applied
        .changes
        .iter()
        .map(|change| (change.action, change.id.as_str()))
        .collect()
}

#[tokio::test]
async fn what_is_declared_comes_about_once() {
    let core = core();
    let wanted = request(Some(vec![web()]), Some(vec![person("a@example.com")]), false);
    let dry = Apply {
        dry_run: true,
        ..wanted.clone()
    };
    let planned = apply(admin(&core), dry).await.unwrap();
    assert_eq!(
        actions(&planned),
        [(Action::Add, "web"), (Action::Add, "a@example.com")]
    );
    assert!(planned.changes[0].client_secret.is_none());
    assert!(client::list(admin(&core)).unwrap().is_empty());
    let first = apply(admin(&core), wanted.clone()).await.unwrap();
    assert_eq!(first.changes.len(), 2);
    assert!(
        first.changes[0].client_secret.is_some(),
        "a secret is made where none is given"
    );
    let second = apply(admin(&core), wanted).await.unwrap();
    assert_eq!((second.changes.len(), second.unchanged), (0, 2));
}

#[tokio::test]
async fn a_difference_is_told_part_by_part_and_a_secret_is_not_told() {
    let core = core();
    apply(admin(&core), request(Some(vec![web()]), None, false))
        .await
        .unwrap();
    let changed = DeclaredClient {
        name: Some("Acme".to_owned()),
        secret: Some(Disclosed::new("s".repeat(40))),
        ..web()
    };
    let applied = apply(admin(&core), request(Some(vec![changed.clone()]), None, false))
        .await
        .unwrap();
    let fields: Vec<_> = applied.changes[0]
        .fields
        .iter()
        .map(|field| (field.name.as_str(), field.after.clone()))
        .collect();
    assert_eq!(fields, [("name", Some(Value::from("Acme"))), ("secret", None)]);
    let again = apply(admin(&core), request(Some(vec![changed]), None, false))
        .await
        .unwrap();
    assert!(again.changes.is_empty());
    // Left out again, the name goes and the secret stays.
    let applied = apply(admin(&core), request(Some(vec![web()]), None, false))
        .await
        .unwrap();
    assert_eq!(applied.changes[0].fields.len(), 1);
}

#[tokio::test]
async fn pruning_reaches_declared_kinds_only_and_no_user_of_a_device() {
    let core = core();
    apply(
        admin(&core),
        request(Some(vec![web()]), Some(vec![person("a@example.com")]), false),
    )
    .await
    .unwrap();
    let device = User::anonymous(core.random.uuid_v7(1), "default", core.clock.now());
    core.store
        .write("device", move |tx| {
            crate::store::tables::USERS.put(tx, &device.uuid, &device)
        })
        .await
        .unwrap();
    let applied = apply(admin(&core), request(Some(Vec::new()), None, true))
        .await
        .unwrap();
    assert_eq!(actions(&applied), [(Action::Remove, "web")]);
    assert_eq!(user::list(admin(&core), 10).unwrap().len(), 2);
    let applied = apply(admin(&core), request(None, Some(Vec::new()), true))
        .await
        .unwrap();
    assert_eq!(actions(&applied), [(Action::Remove, "a@example.com")]);
    assert_eq!(user::list(admin(&core), 10).unwrap().len(), 1);
}

#[tokio::test]
async fn everything_that_is_wrong_is_said_and_nothing_is_done() {
    let core = core();
    let mut broken = web();
    broken.redirect_uris = vec!["http://app.example/cb".to_owned()];
    let wanted = request(
        Some(vec![
            web(),
            web(),
            DeclaredClient {
                client_id: "x".to_owned(),
                ..broken
            },
        ]),
        Some(vec![
            person("no address"),
            person("b@example.com"),
            person("B@example.com"),
        ]),
        false,
    );
    let refused = refusal(apply(admin(&core), wanted).await).message;
    assert!(refused.contains("client web is declared twice"), "{refused}");
    assert!(
        refused.contains("user b@example.com is declared twice"),
        "{refused}"
    );
    let single = request(
        Some(vec![DeclaredClient {
            client_id: "x".to_owned(),
            redirect_uris: vec!["http://app.example/cb".to_owned()],
            ..web()
        }]),
        Some(vec![person("no address")]),
        false,
    );
    let refused = refusal(apply(admin(&core), single).await).message;
    assert!(
        refused.contains("client x: redirect URI") && refused.contains("user no address:"),
        "{refused}"
    );
    assert!(client::list(admin(&core)).unwrap().is_empty());
}

#[tokio::test]
async fn two_users_may_swap_their_names() {
    let core = core();
    let named = |id: &str, email: &str, uuid: u128| {
        let mut user = person(email);
        user.line.account_id = Some(id.to_owned());
        user.line.uuid = Some(uuid::Uuid::from_u128(uuid));
        user
    };
    let before = vec![named("a", "a@example.com", 1), named("b", "b@example.com", 2)];
    apply(admin(&core), request(None, Some(before), false))
        .await
        .unwrap();
    let clash = vec![named("a", "b@example.com", 1)];
    assert!(
        apply(admin(&core), request(None, Some(clash), false))
            .await
            .is_err()
    );
    assert_eq!(user::show(admin(&core), "b@example.com").unwrap().account_id, "b");
}

#[tokio::test]
async fn an_export_applied_changes_nothing_and_a_copy_of_it_is_the_same() {
    let (one, other) = (core(), core());
    let robot = ClientFields {
        redirect_uris: Some(vec!["https://app.example/cb".to_owned()]),
        scope: Some(vec!["openid".to_owned(), "notes".to_owned()]),
        name: Some("Notes".to_owned()),
        ..ClientFields::default()
    };
    let add = |client_id: &str, public| AddClient {
        client_id: client_id.to_owned(),
        public,
        secret: None,
        api_key: false,
        fields: robot.clone(),
    };
    client::add(admin(&one), add("web", false)).await.unwrap();
    client::add(admin(&one), add("phone", true)).await.unwrap();
    let alice = AddUser {
        email: "alice@example.com".to_owned(),
        password: NewPassword::Generated,
        fields: UserFields {
            claims: vec![
                ("given_name".to_owned(), "Alice".to_owned()),
                ("badge".to_owned(), "7".to_owned()),
            ],
            ..UserFields::default()
        },
    };
    user::add(admin(&one), alice).await.unwrap();
    let exported = export(admin(&one), true).unwrap();
    let state = || State {
        provider: None,
        client: Some(
            exported
                .client
                .iter()
                .map(|entry| serde_json::from_value(Value::Object(entry.clone())).unwrap())
                .collect(),
        ),
        user: Some(
            exported
                .user
                .iter()
                .map(|entry| DeclaredUser {
                    password: None,
                    line: serde_json::from_value(Value::Object(entry.clone())).unwrap(),
                })
                .collect(),
        ),
    };
    let applied = |state| Apply {
        state,
        dry_run: false,
        prune: true,
    };
    let unchanged = apply(admin(&one), applied(state())).await.unwrap();
    assert_eq!((unchanged.changes, unchanged.unchanged), (Vec::new(), 3));
    apply(admin(&other), applied(state())).await.unwrap();
    assert_eq!(export(admin(&other), true).unwrap(), exported);
    let open = serde_json::to_string(&export(admin(&one), false).unwrap()).unwrap();
    assert!(!open.contains("argon2") && !open.contains("sha256"), "{open}");
}

#[test]
fn the_keys_of_an_entry_are_those_of_its_type() {
    let client = serde_json::to_value(DeclaredClient::default()).unwrap();
    for key in client.as_object().unwrap().keys() {
        let by_file = [format!("{key}_file"), key.clone()];
        assert!(
            by_file.iter().any(|key| clients::KEYS.contains(&key.as_str())),
            "{key}"
        );
    }
    let line = serde_json::to_value(UserLine::default()).unwrap();
    for key in line
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| *key != "created_at")
    {
        assert!(users::KEYS.contains(&key.as_str()), "{key}");
    }
}

fn upstream(id: &str, issuer: &str) -> DeclaredProvider {
    DeclaredProvider {
        id: id.to_owned(),
        issuer: issuer.to_owned(),
        client_id: Some("us".to_owned()),
        client_secret: Some(Disclosed::new("upstream secret")),
        ..DeclaredProvider::default()
    }
}

fn with_providers(
    provider: Vec<DeclaredProvider>,
    client: Option<Vec<DeclaredClient>>,
    prune: bool,
) -> Apply {
    let mut wanted = request(client, None, prune);
    wanted.state.provider = Some(provider);
    wanted
}

#[tokio::test]
async fn a_provider_comes_with_the_client_that_names_it_and_its_secret_is_compared() {
    let core = core();
    let client = DeclaredClient {
        providers: vec!["corp".to_owned()],
        ..web()
    };
    let corp = upstream("corp", "https://corp.example");
    let alone = refusal(apply(admin(&core), request(Some(vec![client.clone()]), None, false)).await);
    assert_eq!(alone.message, "client web: there is no provider corp");
    let both = with_providers(vec![corp.clone()], Some(vec![client]), false);
    let applied = apply(admin(&core), both.clone()).await.unwrap();
    assert_eq!(actions(&applied), [(Action::Add, "corp"), (Action::Add, "web")]);
    let again = apply(admin(&core), both).await.unwrap();
    assert_eq!((again.changes.len(), again.unchanged), (0, 2));
    // Left out, the secret stays; another one is told as changed, without its value.
    let silent = DeclaredProvider {
        client_secret: None,
        ..corp.clone()
    };
    let kept = apply(admin(&core), with_providers(vec![silent], None, false))
        .await
        .unwrap();
    assert_eq!(kept.changes, []);
    let other = DeclaredProvider {
        client_secret: Some(Disclosed::new("another secret")),
        ..corp
    };
    let changed = apply(admin(&core), with_providers(vec![other], None, false))
        .await
        .unwrap();
    let fields: Vec<_> = changed.changes[0]
        .fields
        .iter()
        .map(|field| (field.name.as_str(), &field.after))
        .collect();
    assert_eq!(fields, [("client_secret", &None)]);
    let exported = serde_json::to_string(&export(admin(&core), true).unwrap()).unwrap();
    assert!(exported.contains("https://corp.example") && !exported.contains("secret\":"));
}

#[tokio::test]
async fn no_provider_goes_that_a_client_names_and_no_issuer_comes_twice() {
    let core = core();
    let client = DeclaredClient {
        providers: vec!["corp".to_owned()],
        ..web()
    };
    let corp = upstream("corp", "https://corp.example");
    apply(
        admin(&core),
        with_providers(vec![corp.clone()], Some(vec![client]), false),
    )
    .await
    .unwrap();
    let orphaned = refusal(apply(admin(&core), with_providers(Vec::new(), None, true)).await);
    assert_eq!(orphaned.message, "provider corp: client web names it");
    let twin = upstream("other", "https://corp.example");
    let doubled = refusal(apply(admin(&core), with_providers(vec![twin.clone()], None, false)).await);
    assert_eq!(
        doubled.message,
        "provider other: provider corp has the same issuer"
    );
    // The two may change places in one go.
    let moved = DeclaredProvider {
        issuer: "https://new.example".to_owned(),
        ..corp
    };
    let swapped = apply(admin(&core), with_providers(vec![moved, twin], None, false))
        .await
        .unwrap();
    assert_eq!(
        actions(&swapped),
        [(Action::Change, "corp"), (Action::Add, "other")]
    );
    let gone = apply(admin(&core), with_providers(Vec::new(), Some(vec![web()]), true))
        .await
        .unwrap();
    assert_eq!(
        actions(&gone),
        [
            (Action::Remove, "corp"),
            (Action::Remove, "other"),
            (Action::Change, "web")
        ]
    );
}
