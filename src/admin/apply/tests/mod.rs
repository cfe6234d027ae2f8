mod exports;
mod passwords;
mod providers;
mod registration;
mod removals;

use std::ops::ControlFlow;
use std::time::Duration;

use crate::admin::apply::*;
use crate::admin::client;
use crate::admin::client::{AddClient, RotateSecret};
use crate::admin::import::UserLine;
use crate::admin::tests::{admin, assert_faults, core, refusal};
use crate::admin::user;
use crate::admin::user::{AddUser, NewPassword, UserFields};
use crate::federation::provider::ProviderFields;
use crate::flow::Core;
use crate::oauth::ClientFields;
use crate::oauth::client::GrantType;

fn web() -> DeclaredClient {
    DeclaredClient {
        client_id: "web".to_owned(),
        fields: ClientFields {
            redirect_uris: Some(vec!["https://app.example/cb".to_owned()]),
            ..ClientFields::default()
        },
        ..DeclaredClient::default()
    }
}

fn web_with(change: impl FnOnce(&mut ClientFields)) -> DeclaredClient {
    let mut client = web();
    change(&mut client.fields);
    client
}

/// The records that the faults are about.
fn subjects(faults: &[Fault]) -> Vec<String> {
    let subjects = faults.iter().filter_map(|fault| fault.subject.as_ref());
    subjects.map(ToString::to_string).collect()
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
        state: DeclaredState {
            client,
            user,
            ..DeclaredState::default()
        },
        dry_run: false,
        prune,
        ..Apply::default()
    }
}

fn exported(core: &Core, with_hashes: bool) -> Vec<Exported> {
    let mut records = Vec::new();
    export(core, with_hashes, &mut |record| {
        records.push(record);
        ControlFlow::Continue(())
    })
    .unwrap();
    records
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
    let planned = admin(&core).call(dry).await.unwrap();
    assert_eq!(
        actions(&planned),
        [(Action::Add, "web"), (Action::Add, "a@example.com")]
    );
    assert!(planned.changes[0].client_secret.is_none());
    assert!(client::page(admin(&core), None).unwrap().records.is_empty());
    let first = admin(&core).call(wanted.clone()).await.unwrap();
    assert_eq!(first.changes.len(), 2);
    assert!(
        first.changes[0].client_secret.is_some(),
        "a secret is made where none is given"
    );
    let second = admin(&core).call(wanted).await.unwrap();
    assert_eq!((second.changes.len(), second.unchanged), (0, 2));
}

#[tokio::test]
async fn a_difference_is_told_part_by_part_and_a_secret_is_not_told() {
    let core = core();
    admin(&core)
        .call(request(Some(vec![web()]), None, false))
        .await
        .unwrap();
    let changed = DeclaredClient {
        secret: Some(SecretString::new("s".repeat(40))),
        ..web_with(|fields| fields.client_name = Some("Acme".to_owned()))
    };
    let applied = admin(&core)
        .call(request(Some(vec![changed.clone()]), None, false))
        .await
        .unwrap();
    let fields: Vec<_> = applied.changes[0]
        .fields
        .iter()
        .map(|field| (field.name.as_str(), field.after.clone()))
        .collect();
    assert_eq!(fields, [("name", Some(Value::from("Acme"))), ("secret", None)]);
    let again = admin(&core)
        .call(request(Some(vec![changed]), None, false))
        .await
        .unwrap();
    assert!(again.changes.is_empty());
    // The name is no longer declared and is removed. The secret is kept.
    let applied = admin(&core)
        .call(request(Some(vec![web()]), None, false))
        .await
        .unwrap();
    assert_eq!(applied.changes[0].fields.len(), 1);
}

/// An export with such a user can be applied.
#[tokio::test]
async fn a_type_that_is_no_persons_is_kept_and_not_declared() {
    let (core, elsewhere) = (core(), core());
    let mut robot = person("robot@example.com");
    robot.line.user_type = Some("client".to_owned());
    let wanted = request(None, Some(vec![robot]), false);
    let refused = refusal(admin(&core).call(wanted.clone()).await);
    assert_faults(&refused, &[(FaultCode::NotAllowed, &["user_type"])]);
    let mut before = User::local(
        core.random.uuid_v7(Duration::from_millis(1)),
        "robot@example.com",
        "default",
        core.clock.now(),
    );
    "client".clone_into(&mut before.user_type);
    let written = core.store.write("test_robot", move |tx| user::write(tx, &before));
    written.await.unwrap();
    assert_eq!(admin(&core).call(wanted).await.unwrap().unchanged, 1);
    let mut moved = person("robot@example.com");
    moved.line.user_type = Some("client".to_owned());
    moved.line.uuid = Some(uuid::Uuid::from_u128(7));
    let made = admin(&elsewhere)
        .call(request(None, Some(vec![moved]), false))
        .await
        .unwrap();
    assert_eq!(actions(&made).len(), 1, "it was one where it comes from");
}

/// A request has some users of a file only.
#[tokio::test]
async fn pruning_reaches_declared_kinds_only_and_no_user() {
    let core = core();
    admin(&core)
        .call(request(
            Some(vec![web()]),
            Some(vec![person("a@example.com")]),
            false,
        ))
        .await
        .unwrap();
    let applied = admin(&core)
        .call(request(None, Some(Vec::new()), true))
        .await
        .unwrap();
    assert_eq!(actions(&applied), []);
    let applied = admin(&core)
        .call(request(Some(Vec::new()), None, true))
        .await
        .unwrap();
    assert_eq!(actions(&applied), [(Action::Remove, "web")]);
    let users = user::page(admin(&core), &user::ListUsers::default()).unwrap();
    assert_eq!(users.records.len(), 1);
}

/// The users of a file are planned before its groups are stored, so that a fault among them changes nothing.
#[tokio::test]
async fn a_plan_of_users_counts_the_groups_that_their_file_declares() {
    let core = core();
    let groups = |names: &[&str]| Apply {
        state: DeclaredState {
            group: Some(
                names
                    .iter()
                    .map(|name| DeclaredNamed {
                        name: (*name).to_owned(),
                        fields: GroupFields::default(),
                    })
                    .collect(),
            ),
            ..DeclaredState::default()
        },
        ..Apply::default()
    };
    admin(&core).call(groups(&["old"])).await.unwrap();
    let plan = async |group: &str, declared: Option<&[&str]>, prune| {
        let mut alice = person("alice@example.com");
        alice.line.groups = Some(vec![group.to_owned()]);
        let wanted = Apply {
            dry_run: true,
            declared_groups: declared.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            ..request(None, Some(vec![alice]), prune)
        };
        match admin(&core).call(wanted).await {
            Ok(applied) => applied.changes.len(),
            refused => {
                assert_faults(&refusal(refused), &[(FaultCode::NotFound, &["groups"])]);
                0
            }
        }
    };
    for (group, declared, prune, planned) in [
        ("new", None, false, 0),
        ("new", Some(&["new"][..]), false, 1),
        ("old", Some(&["new"]), false, 1),
        ("old", Some(&["new"]), true, 0),
        ("old", Some(&["new", "old"]), true, 1),
        ("old", None, true, 1),
    ] {
        assert_eq!(
            plan(group, declared, prune).await,
            planned,
            "{group} {declared:?} {prune}"
        );
    }
    assert_eq!(exported(&core, false).len(), 1, "a plan stores nothing");
}

#[tokio::test]
async fn everything_that_is_wrong_is_said_and_nothing_is_done() {
    let core = core();
    let mut broken = web();
    broken.fields.redirect_uris = Some(vec!["http://app.example/cb".to_owned()]);
    let named = |id: &str| {
        let mut user = person("c@example.com");
        user.line.account_id = Some(id.to_owned());
        user
    };
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
            named("carol"),
            named(" Carol "),
        ]),
        false,
    );
    let mut refused = refusal(admin(&core).call(wanted).await);
    refused.retain(|fault| fault.code == FaultCode::AlreadyExists);
    assert_eq!(
        subjects(&refused),
        ["client web", "user b@example.com", "user carol"]
    );
    let single = request(
        Some(vec![DeclaredClient {
            client_id: "x".to_owned(),
            ..web_with(|fields| fields.redirect_uris = Some(vec!["http://app.example/cb".to_owned()]))
        }]),
        Some(vec![person("no address")]),
        false,
    );
    let refused = refusal(admin(&core).call(single).await);
    let expected: [(FaultCode, &[&str]); 2] = [
        (FaultCode::Invalid, &["redirect_uris"]),
        (FaultCode::Invalid, &["email"]),
    ];
    assert_faults(&refused, &expected);
    assert_eq!(subjects(&refused), ["client x", "user no address"]);
    assert!(client::page(admin(&core), None).unwrap().records.is_empty());
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
    admin(&core)
        .call(request(None, Some(before), false))
        .await
        .unwrap();
    let clash = vec![named("a", "b@example.com", 1)];
    assert!(
        admin(&core)
            .call(request(None, Some(clash), false))
            .await
            .is_err()
    );
    assert_eq!(
        admin(&core)
            .call(user::ShowUser {
                who: "b@example.com".to_owned()
            })
            .await
            .unwrap()
            .account_id,
        "b"
    );
}
