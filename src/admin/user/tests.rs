use crate::admin::SecretString;
use crate::admin::tests::{admin, assert_faults, core, refusal};
use crate::admin::user::*;
use crate::identity::LinkedIdentity;
use crate::limit::password_attempt::PasswordAttempt;
use crate::store::tables::USERS_BY_IDENTITY;
use crate::store::tables::USERS_BY_LOGIN_NAME;

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
    let view = admin(&core).call(request("alice@example.com")).await.unwrap();
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
    let shown = serde_json::to_string(
        &admin(&core)
            .call(ShowUser {
                who: "ALICE@example.com".to_owned(),
            })
            .await
            .unwrap(),
    )
    .unwrap();
    assert!(!shown.contains("argon2") && !shown.contains(password.reveal()));
}

#[tokio::test]
async fn a_login_name_belongs_to_one_user() {
    let core = core();
    admin(&core).call(request("alice@example.com")).await.unwrap();
    let refused = refusal(admin(&core).call(request("Alice@Example.com")).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
    let bob = admin(&core).call(request("bob@example.com")).await.unwrap();
    let rename = UpdateUser {
        who: bob.uuid.to_string(),
        email: Some("alice@example.com".to_owned()),
        account_id: None,
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields::default(),
    };
    refusal(admin(&core).call(rename).await);
    assert_eq!(
        admin(&core)
            .call(ShowUser {
                who: "alice@example.com".to_owned()
            })
            .await
            .unwrap()
            .account_id,
        "alice@example.com"
    );
}

#[tokio::test]
async fn an_account_identifier_of_a_provider_user_is_not_for_others() {
    let core = core();
    refusal(admin(&core).call(request("google:1@example.com")).await);
    let bob = admin(&core).call(request("bob@example.com")).await.unwrap();
    let rename = |account_id: &str| UpdateUser {
        who: bob.uuid.to_string(),
        email: None,
        account_id: Some(account_id.to_owned()),
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields::default(),
    };
    for account_id in ["google:1", "google:1@example.com", "google:@"] {
        refusal(admin(&core).call(rename(account_id)).await);
    }
    admin(&core).call(rename("bob@[IPv6:2001:db8::1]")).await.unwrap();
}

#[tokio::test]
async fn a_new_address_can_be_signed_in_with_and_the_account_stays() {
    let core = core();
    admin(&core).call(request("alice@example.com")).await.unwrap();
    let fields = UserFields {
        claims: vec![("given_name".to_owned(), "Alice".to_owned())],
        ..UserFields::default()
    };
    let request = UpdateUser {
        who: "alice@example.com".to_owned(),
        email: Some("al@example.com".to_owned()),
        account_id: None,
        reset_failed_passwords: false,
        keep_factors: false,
        fields,
    };
    admin(&core).call(request).await.unwrap();
    let view = admin(&core)
        .call(ShowUser {
            who: "al@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(view.account_id, "alice@example.com");
    assert_eq!(view.claims["given_name"], "Alice");
}

#[tokio::test]
async fn a_name_that_was_given_up_is_free() {
    let core = core();
    let alice = admin(&core).call(request("alice@example.com")).await.unwrap();
    let rename = UpdateUser {
        who: alice.uuid.to_string(),
        email: Some("alice@example.org".to_owned()),
        account_id: Some("alice".to_owned()),
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields::default(),
    };
    admin(&core).call(rename).await.unwrap();
    let gone = refusal(
        admin(&core)
            .call(ShowUser {
                who: "alice@example.com".to_owned(),
            })
            .await,
    );
    assert_faults(&gone, &[(FaultCode::NotFound, &[])]);
    let other = admin(&core).call(request("alice@example.com")).await.unwrap();
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
    assert!(admin(&core).call(alice).await.unwrap().phone_number_verified);
    let change = |fields| UpdateUser {
        who: "alice@example.com".to_owned(),
        email: None,
        account_id: None,
        reset_failed_passwords: false,
        keep_factors: false,
        fields,
    };
    for (number, claims) in [("+1556", &[][..]), ("+1557", &[verified]), ("", &[])] {
        let view = admin(&core).call(change(fields(number, claims))).await.unwrap();
        assert_eq!(view.phone_number_verified, !claims.is_empty());
    }
    let nothing = fields("", &[verified, ("email", ""), ("email_verified", "true")]);
    let refused = refusal(admin(&core).call(change(nothing)).await);
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
        keep_factors: false,
        fields,
    };
    let alice = admin(&core).call(request("alice@example.com")).await.unwrap();
    let reserved: [(FaultCode, &[&str]); 1] = [(FaultCode::NotAllowed, &["user_type"])];
    for word in ["client", "anonymous"] {
        let new = AddUser {
            fields: typed(word),
            ..request("bob@example.com")
        };
        assert_faults(&refusal(admin(&core).call(new).await), &reserved);
        let changed = admin(&core).call(change(typed(word))).await;
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
        assert_eq!(admin(&core).call(change(same)).await.unwrap().user_type, word);
        let other = admin(&core).call(change(typed("staff"))).await.unwrap();
        assert_eq!(other.user_type, "staff");
    }
}

#[tokio::test]
async fn a_name_that_is_typed_too_long_is_nobodys() {
    let core = core();
    admin(&core).call(request("alice@example.com")).await.unwrap();
    let rename = |account_id: String| UpdateUser {
        who: "alice@example.com".to_owned(),
        email: None,
        account_id: Some(account_id),
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields::default(),
    };
    let refused = refusal(admin(&core).call(rename("x".repeat(600))).await);
    assert_faults(&refused, &[(FaultCode::TooLong, &["account_id"])]);
    let longest = "x".repeat(512);
    admin(&core).call(rename(longest.clone())).await.unwrap();
    assert!(admin(&core).call(ShowUser { who: longest.clone() }).await.is_ok());
    for beyond in ["x", "yyyy", "\u{1f511}"] {
        let refused = refusal(
            admin(&core)
                .call(ShowUser {
                    who: format!("{longest}{beyond}"),
                })
                .await,
        );
        assert_faults(&refused, &[(FaultCode::NotFound, &[])]);
    }
}

/// The account identifier is a claim in tokens, even if it cannot be used to sign in.
#[tokio::test]
async fn a_users_name_is_its_own_also_where_the_user_is_a_devices() {
    let core = core();
    admin(&core).call(request("alice@example.com")).await.unwrap();
    let device = User::anonymous(core.random.uuid_v4(), "org", core.clock.now());
    let uuid = device.uuid;
    let written = core.store.write("test_device", move |tx| write(tx, &device));
    written.await.unwrap();
    let rename = |account_id: &str| UpdateUser {
        who: uuid.to_string(),
        email: None,
        account_id: Some(account_id.to_owned()),
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields::default(),
    };
    let refused = refusal(admin(&core).call(rename("Alice@example.com")).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
    admin(&core).call(rename("kiosk@example.com")).await.unwrap();
    let refused = refusal(admin(&core).call(request("kiosk@example.com")).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
    admin(&core)
        .call(RemoveUser {
            who: uuid.to_string(),
        })
        .await
        .unwrap();
    admin(&core).call(request("kiosk@example.com")).await.unwrap();
}

/// The record is written without the checks.
#[tokio::test]
async fn a_devices_user_with_anothers_name_takes_it_away_from_nobody() {
    let core = core();
    admin(&core).call(request("alice@example.com")).await.unwrap();
    let mut device = User::anonymous(core.random.uuid_v4(), "org", core.clock.now());
    device.account_id = "alice@example.com".to_owned();
    let uuid = device.uuid;
    let written = core
        .store
        .write("test_device", move |tx| USERS.put(tx, &uuid, &device));
    written.await.unwrap();
    admin(&core)
        .call(RemoveUser {
            who: uuid.to_string(),
        })
        .await
        .unwrap();
    assert!(
        admin(&core)
            .call(ShowUser {
                who: "alice@example.com".to_owned()
            })
            .await
            .is_ok()
    );
}

/// The record is written without the checks. A refusal is committed, so nothing may be written before it.
#[tokio::test]
async fn an_unlinked_user_with_anothers_name_takes_it_away_from_nobody() {
    let core = core();
    let alice = admin(&core).call(request("alice@example.com")).await.unwrap();
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
    let unlinking = || UnlinkUser {
        who: uuid.to_string(),
        provider: "corp".to_owned(),
    };
    let linked = || {
        core.store
            .read_blocking(|snapshot| USERS_BY_IDENTITY.get(snapshot, &identity))
            .unwrap()
    };
    let refused = refusal(admin(&core).call(unlinking()).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
    assert_eq!(
        admin(&core)
            .call(ShowUser {
                who: "alice@example.com".to_owned()
            })
            .await
            .unwrap()
            .uuid,
        alice.uuid
    );
    assert_eq!(linked(), Some(uuid));
    let rename = UpdateUser {
        who: uuid.to_string(),
        email: None,
        account_id: Some("kiosk".to_owned()),
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields::default(),
    };
    admin(&core).call(rename).await.unwrap();
    admin(&core).call(unlinking()).await.unwrap();
    assert_eq!(linked(), None);
    assert_eq!(
        admin(&core)
            .call(ShowUser {
                who: "alice@example.com".to_owned()
            })
            .await
            .unwrap()
            .uuid,
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
    assert_eq!(refusal(admin(&core).call(bad).await).len(), 5);
}

#[tokio::test]
async fn a_removed_user_leaves_nothing_behind() {
    let core = core();
    admin(&core).call(request("alice@example.com")).await.unwrap();
    admin(&core)
        .call(RemoveUser {
            who: "alice@example.com".to_owned(),
        })
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
    admin(&core).call(request("alice@example.com")).await.unwrap();
}

#[tokio::test]
async fn a_password_that_no_browser_sends_is_not_given_to_anybody() {
    let core = core();
    let given = |text: &str| NewPassword::Given(SecretString::new(text));
    admin(&core).call(request("alice@example.com")).await.unwrap();
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
            refusal(admin(&core).call(bob).await),
            refusal(admin(&core).call(set).await),
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
        let refused = refusal(admin(&core).call(alice(soon)).await);
        assert_faults(&refused, &guessed);
    }
    admin(&core).call(alice("correct horse battery")).await.unwrap();
    let set = |password| SetPassword {
        who: "alice@wonderland.org".to_owned(),
        password,
        keep_sessions: true,
    };
    for soon in ["ALICE@wonderland.org", "Liddell1865", "        "] {
        let refused = refusal(admin(&core).call(set(given(soon))).await);
        assert_faults(&refused, &guessed);
    }
    admin(&core).call(set(NewPassword::Generated)).await.unwrap();
    admin(&core)
        .call(set(given("wonderland, at length")))
        .await
        .unwrap();
}
