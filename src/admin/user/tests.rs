use crate::admin::SecretString;
use crate::admin::tests::{admin, assert_faults, core, refusal};
use crate::admin::user::*;
use crate::identity::LinkedIdentity;
use crate::limit::password_attempt::PasswordAttempt;

fn request(email: &str) -> AddUser {
    AddUser {
        email: email.to_owned(),
        password: NewPassword::Generated,
        fields: UserFields::default(),
    }
}

#[tokio::test]
async fn a_generated_password_is_shown_once_and_works() {
    let core = core();
    let view = add(admin(&core), request("alice@example.com")).await.unwrap();
    let password = view.password.unwrap();
    let user = core
        .store
        .read_blocking(|snapshot| USERS.get(snapshot, &view.uuid))
        .unwrap()
        .unwrap();
    let verdict = core
        .passwords
        .verify(user.password, password.to_zeroizing(), PasswordAttempt::trusted())
        .await
        .unwrap();
    assert!(verdict.matches);
    let shown = serde_json::to_string(&show(admin(&core), "ALICE@example.com").await.unwrap()).unwrap();
    assert!(!shown.contains("argon2") && !shown.contains(password.reveal()));
}

#[tokio::test]
async fn a_login_name_belongs_to_one_user() {
    let core = core();
    add(admin(&core), request("alice@example.com")).await.unwrap();
    let refused = refusal(add(admin(&core), request("Alice@Example.com")).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
    let bob = add(admin(&core), request("bob@example.com")).await.unwrap();
    let rename = UpdateUser {
        who: bob.uuid.to_string(),
        email: Some("alice@example.com".to_owned()),
        account_id: None,
        reset_failed_passwords: false,
        fields: UserFields::default(),
    };
    refusal(update(admin(&core), rename).await);
    assert_eq!(
        show(admin(&core), "alice@example.com").await.unwrap().account_id,
        "alice@example.com"
    );
}

#[tokio::test]
async fn an_account_identifier_of_a_provider_user_is_not_for_others() {
    let core = core();
    refusal(add(admin(&core), request("google:1@example.com")).await);
    let bob = add(admin(&core), request("bob@example.com")).await.unwrap();
    let rename = |account_id: &str| UpdateUser {
        who: bob.uuid.to_string(),
        email: None,
        account_id: Some(account_id.to_owned()),
        reset_failed_passwords: false,
        fields: UserFields::default(),
    };
    for account_id in ["google:1", "google:1@example.com", "google:@"] {
        refusal(update(admin(&core), rename(account_id)).await);
    }
    update(admin(&core), rename("bob@[IPv6:2001:db8::1]"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_new_address_can_be_signed_in_with_and_the_account_stays() {
    let core = core();
    add(admin(&core), request("alice@example.com")).await.unwrap();
    let fields = UserFields {
        claims: vec![("given_name".to_owned(), "Alice".to_owned())],
        ..UserFields::default()
    };
    let request = UpdateUser {
        who: "alice@example.com".to_owned(),
        email: Some("al@example.com".to_owned()),
        account_id: None,
        reset_failed_passwords: false,
        fields,
    };
    update(admin(&core), request).await.unwrap();
    let view = show(admin(&core), "al@example.com").await.unwrap();
    assert_eq!(view.account_id, "alice@example.com");
    assert_eq!(view.claims["given_name"], "Alice");
}

#[tokio::test]
async fn a_name_that_was_given_up_is_free() {
    let core = core();
    let alice = add(admin(&core), request("alice@example.com")).await.unwrap();
    let rename = UpdateUser {
        who: alice.uuid.to_string(),
        email: Some("alice@example.org".to_owned()),
        account_id: Some("alice".to_owned()),
        reset_failed_passwords: false,
        fields: UserFields::default(),
    };
    update(admin(&core), rename).await.unwrap();
    let gone = refusal(show(admin(&core), "alice@example.com").await);
    assert_faults(&gone, &[(FaultCode::NotFound, &[])]);
    let other = add(admin(&core), request("alice@example.com")).await.unwrap();
    assert_ne!(other.uuid, alice.uuid);
}

#[tokio::test]
async fn what_is_said_of_an_address_is_said_of_the_one_that_comes_along() {
    let core = core();
    let fields = |number: &str, claims: &[(&str, &str)]| UserFields {
        phone_number: Some(number.to_owned()),
        claims: claims
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect(),
        ..UserFields::default()
    };
    let verified = ("phone_number_verified", "true");
    let mut alice = request("alice@example.com");
    alice.fields = fields("+1555", &[verified]);
    assert!(add(admin(&core), alice).await.unwrap().phone_number_verified);
    let change = |fields| UpdateUser {
        who: "alice@example.com".to_owned(),
        email: None,
        account_id: None,
        reset_failed_passwords: false,
        fields,
    };
    for (number, claims) in [("+1556", &[][..]), ("+1557", &[verified]), ("", &[])] {
        let view = update(admin(&core), change(fields(number, claims)))
            .await
            .unwrap();
        assert_eq!(view.phone_number_verified, !claims.is_empty());
    }
    let nothing = fields("", &[verified, ("email", ""), ("email_verified", "true")]);
    let refused = refusal(update(admin(&core), change(nothing)).await);
    let expected: [(FaultCode, &[&str]); 2] = [
        (FaultCode::NotAllowed, &["email_verified", "email"]),
        (FaultCode::NotAllowed, &["phone_number_verified", "phone_number"]),
    ];
    assert_faults(&refused, &expected);
}

/// APIs recognise clients and anonymous users by these types.
#[tokio::test]
async fn nobody_is_given_a_type_that_is_no_persons_and_who_has_it_keeps_it() {
    let core = core();
    let typed = |user_type: &str| UserFields {
        user_type: Some(user_type.to_owned()),
        ..UserFields::default()
    };
    let change = |fields| UpdateUser {
        who: "alice@example.com".to_owned(),
        email: None,
        account_id: None,
        reset_failed_passwords: false,
        fields,
    };
    let alice = add(admin(&core), request("alice@example.com")).await.unwrap();
    let reserved: [(FaultCode, &[&str]); 1] = [(FaultCode::NotAllowed, &["user_type"])];
    for word in ["client", "anonymous"] {
        let new = AddUser {
            fields: typed(word),
            ..request("bob@example.com")
        };
        assert_faults(&refusal(add(admin(&core), new).await), &reserved);
        let changed = update(admin(&core), change(typed(word))).await;
        assert_faults(&refusal(changed), &reserved);
        let kept = core.store.write("test_type", move |tx| {
            let mut user = USERS.get(&*tx, &alice.uuid)?.unwrap();
            word.clone_into(&mut user.user_type);
            USERS.put(tx, &user.uuid, &user)
        });
        kept.await.unwrap();
        let same = UserFields {
            name: Some("Alice".to_owned()),
            ..typed(word)
        };
        assert_eq!(update(admin(&core), change(same)).await.unwrap().user_type, word);
        let other = update(admin(&core), change(typed("staff"))).await.unwrap();
        assert_eq!(other.user_type, "staff");
    }
}

#[tokio::test]
async fn a_name_that_is_typed_too_long_is_nobodys() {
    let core = core();
    add(admin(&core), request("alice@example.com")).await.unwrap();
    let rename = |account_id: String| UpdateUser {
        who: "alice@example.com".to_owned(),
        email: None,
        account_id: Some(account_id),
        reset_failed_passwords: false,
        fields: UserFields::default(),
    };
    let refused = refusal(update(admin(&core), rename("x".repeat(600))).await);
    assert_faults(&refused, &[(FaultCode::TooLong, &["account_id"])]);
    let longest = "x".repeat(512);
    update(admin(&core), rename(longest.clone())).await.unwrap();
    assert!(show(admin(&core), &longest).await.is_ok());
    for beyond in ["x", "yyyy", "\u{1f511}"] {
        let refused = refusal(show(admin(&core), &format!("{longest}{beyond}")).await);
        assert_faults(&refused, &[(FaultCode::NotFound, &[])]);
    }
}

/// The account identifier is a claim in tokens, even if it cannot be used to sign in.
#[tokio::test]
async fn a_users_name_is_its_own_also_where_the_user_is_a_devices() {
    let core = core();
    add(admin(&core), request("alice@example.com")).await.unwrap();
    let device = User::anonymous(core.random.uuid_v4(), "org", core.clock.now());
    let uuid = device.uuid;
    let written = core.store.write("test_device", move |tx| write(tx, &device));
    written.await.unwrap();
    let rename = |account_id: &str| UpdateUser {
        who: uuid.to_string(),
        email: None,
        account_id: Some(account_id.to_owned()),
        reset_failed_passwords: false,
        fields: UserFields::default(),
    };
    let refused = refusal(update(admin(&core), rename("Alice@example.com")).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
    update(admin(&core), rename("kiosk@example.com")).await.unwrap();
    let refused = refusal(add(admin(&core), request("kiosk@example.com")).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
    remove(admin(&core), uuid.to_string()).await.unwrap();
    add(admin(&core), request("kiosk@example.com")).await.unwrap();
}

/// The record is written without the checks.
#[tokio::test]
async fn a_devices_user_with_anothers_name_takes_it_away_from_nobody() {
    let core = core();
    add(admin(&core), request("alice@example.com")).await.unwrap();
    let mut device = User::anonymous(core.random.uuid_v4(), "org", core.clock.now());
    device.account_id = "alice@example.com".to_owned();
    let uuid = device.uuid;
    let written = core
        .store
        .write("test_device", move |tx| USERS.put(tx, &uuid, &device));
    written.await.unwrap();
    remove(admin(&core), uuid.to_string()).await.unwrap();
    assert!(show(admin(&core), "alice@example.com").await.is_ok());
}

/// The record is written without the checks. A refusal is committed, so nothing may be written before it.
#[tokio::test]
async fn an_unlinked_user_with_anothers_name_takes_it_away_from_nobody() {
    let core = core();
    let alice = add(admin(&core), request("alice@example.com")).await.unwrap();
    let now = core.clock.now();
    let mut device = User::anonymous(core.random.uuid_v4(), "org", now);
    device.account_id = "alice@example.com".to_owned();
    device.identities.push(LinkedIdentity {
        issuer: "https://corp.example".to_owned(),
        subject: "u-1".to_owned(),
        provider: "corp".to_owned(),
        linked_at: now,
    });
    let uuid = device.uuid;
    let identity = ("https://corp.example".to_owned(), "u-1".to_owned());
    let key = identity.clone();
    let written = core.store.write("test_device", move |tx| {
        USERS_BY_IDENTITY.put(tx, &key, &uuid)?;
        USERS.put(tx, &uuid, &device)
    });
    written.await.unwrap();
    let unlinking = || Unlink {
        who: uuid.to_string(),
        provider: "corp".to_owned(),
    };
    let linked = || {
        core.store
            .read_blocking(|snapshot| USERS_BY_IDENTITY.get(snapshot, &identity))
            .unwrap()
    };
    let refused = refusal(unlink(admin(&core), unlinking()).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
    assert_eq!(
        show(admin(&core), "alice@example.com").await.unwrap().uuid,
        alice.uuid
    );
    assert_eq!(linked(), Some(uuid));
    let rename = UpdateUser {
        who: uuid.to_string(),
        email: None,
        account_id: Some("kiosk".to_owned()),
        reset_failed_passwords: false,
        fields: UserFields::default(),
    };
    update(admin(&core), rename).await.unwrap();
    unlink(admin(&core), unlinking()).await.unwrap();
    assert_eq!(linked(), None);
    assert_eq!(
        show(admin(&core), "alice@example.com").await.unwrap().uuid,
        alice.uuid
    );
}

#[tokio::test]
async fn all_that_is_wrong_with_a_user_is_said_at_once() {
    let core = core();
    let bad = AddUser {
        email: "alice".to_owned(),
        password: NewPassword::Given(SecretString::new("short")),
        fields: UserFields {
            claims: vec![
                ("sub".to_owned(), "x".to_owned()),
                ("birthdate".to_owned(), "x".to_owned()),
            ],
            organization: Some(String::new()),
            ..UserFields::default()
        },
    };
    assert_eq!(refusal(add(admin(&core), bad).await).len(), 5);
}

#[tokio::test]
async fn a_removed_user_leaves_nothing_behind() {
    let core = core();
    add(admin(&core), request("alice@example.com")).await.unwrap();
    remove(admin(&core), "alice@example.com".to_owned())
        .await
        .unwrap();
    assert!(
        page(admin(&core), &ListUsers::default())
            .unwrap()
            .records
            .is_empty()
    );
    let names = core
        .store
        .read_blocking(|snapshot| USERS_BY_LOGIN_NAME.count(snapshot))
        .unwrap();
    assert_eq!(names, 0);
    add(admin(&core), request("alice@example.com")).await.unwrap();
}

#[tokio::test]
async fn a_password_that_no_browser_sends_is_not_given_to_anybody() {
    let core = core();
    let given = |text: &str| NewPassword::Given(SecretString::new(text));
    add(admin(&core), request("alice@example.com")).await.unwrap();
    for untypable in [
        "correct horse\n",
        "correct\r\nhorse",
        "correct\thorse",
        "correct horse\0",
    ] {
        let bob = AddUser {
            password: given(untypable),
            ..request("bob@example.com")
        };
        let set = SetPassword {
            who: "alice@example.com".to_owned(),
            password: given(untypable),
            keep_sessions: true,
        };
        for refused in [
            refusal(add(admin(&core), bob).await),
            refusal(set_password(admin(&core), set).await),
        ] {
            assert_faults(&refused, &[(FaultCode::Invalid, &["password"])]);
        }
    }
    assert_eq!(
        page(admin(&core), &ListUsers::default()).unwrap().records.len(),
        1
    );
}

#[tokio::test]
async fn a_password_that_is_soon_guessed_is_not_given_to_anybody() {
    let core = core();
    let given = |text: &str| NewPassword::Given(SecretString::new(text));
    let alice = |password: &str| AddUser {
        password: given(password),
        fields: UserFields {
            name: Some("Alice Liddell".to_owned()),
            ..UserFields::default()
        },
        ..request("alice@wonderland.org")
    };
    let guessed: [(FaultCode, &[&str]); 1] = [(FaultCode::Invalid, &["password"])];
    for soon in [
        "password",
        "12345678",
        "wonderland",
        "aliceliddell",
        "id.example.com",
    ] {
        let refused = refusal(add(admin(&core), alice(soon)).await);
        assert_faults(&refused, &guessed);
    }
    add(admin(&core), alice("correct horse battery")).await.unwrap();
    let set = |password| SetPassword {
        who: "alice@wonderland.org".to_owned(),
        password,
        keep_sessions: true,
    };
    for soon in ["ALICE@wonderland.org", "Liddell1865", "        "] {
        let refused = refusal(set_password(admin(&core), set(given(soon))).await);
        assert_faults(&refused, &guessed);
    }
    set_password(admin(&core), set(NewPassword::Generated))
        .await
        .unwrap();
    set_password(admin(&core), set(given("wonderland, at length")))
        .await
        .unwrap();
}
