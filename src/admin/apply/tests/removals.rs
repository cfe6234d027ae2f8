//! Only records that the operator confirmed are removed.

use crate::admin::apply::tests::*;

/// An application may be added between the question and the answer. So the second plan is compared with the first.
#[tokio::test]
async fn what_came_after_the_question_is_not_removed() {
    let core = core();
    let named = |client_id: &str| DeclaredClient {
        client_id: client_id.to_owned(),
        ..web()
    };
    let there = || -> Vec<_> {
        let clients = client::page(admin(&core), None).unwrap().records.into_iter();
        clients.map(|client| client.client_id).collect()
    };
    let declared = |names: &[&str], prune| {
        let clients = names.iter().map(|name| named(name)).collect();
        request(Some(clients), None, prune)
    };
    admin(&core)
        .call(declared(&["web", "old", "older"], false))
        .await
        .unwrap();
    let dry = Apply {
        dry_run: true,
        ..declared(&["web"], true)
    };
    let shown: Vec<_> = admin(&core).call(dry).await.unwrap().removed().collect();
    assert_eq!(shown.len(), 2);
    let answered = |only: &[(String, String)]| Apply {
        only: Some(only.to_vec()),
        ..declared(&["web"], true)
    };
    admin(&core).call(declared(&["late"], false)).await.unwrap();
    for only in [shown.as_slice(), &[]] {
        let refused = refusal(admin(&core).call(answered(only)).await);
        assert_faults(&refused, &[(FaultCode::Conflict, &[])]);
        assert_eq!(there(), ["late", "old", "older", "web"], "nothing was changed");
    }
    // A confirmed record may be gone already.
    admin(&core)
        .call(client::RemoveClient {
            client_id: "late".to_owned(),
        })
        .await
        .unwrap();
    admin(&core)
        .call(client::RemoveClient {
            client_id: "older".to_owned(),
        })
        .await
        .unwrap();
    let applied = admin(&core).call(answered(&shown)).await.unwrap();
    assert_eq!(actions(&applied), [(Action::Remove, "old")]);
    assert_eq!(there(), ["web"]);
}

#[tokio::test]
async fn a_user_who_was_renamed_after_the_question_is_not_removed() {
    let core = core();
    let users = ["a@example.com", "b@example.com"].map(person);
    admin(&core)
        .call(request(None, Some(users.to_vec()), false))
        .await
        .unwrap();
    let there = user::page(admin(&core), &user::ListUsers::default())
        .unwrap()
        .records;
    let mut removed: Vec<_> = there
        .iter()
        .map(|user| RemovedUser {
            uuid: user.uuid,
            account_id: user.account_id.clone(),
            email: user.email.clone(),
        })
        .collect();
    removed[0].email = Some("before@example.com".to_owned());
    let wanted = Apply {
        remove_users: removed,
        ..Apply::default()
    };
    let applied = admin(&core).call(wanted).await.unwrap();
    assert_eq!(actions(&applied), [(Action::Remove, "b@example.com")]);
}

#[tokio::test]
async fn a_user_of_a_device_is_not_removed() {
    let core = core();
    let device = User::anonymous(
        core.random.uuid_v7(Duration::from_millis(1)),
        "default",
        core.clock.now(),
    );
    let wanted = Apply {
        remove_users: vec![RemovedUser {
            uuid: device.uuid,
            account_id: device.account_id.clone(),
            email: None,
        }],
        ..Apply::default()
    };
    let stored = core
        .store
        .write("device", move |tx| USERS.put(tx, &device.uuid, &device));
    stored.await.unwrap();
    let applied = admin(&core).call(wanted).await.unwrap();
    assert_eq!(actions(&applied), []);
}
