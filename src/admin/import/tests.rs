use crate::admin::import::*;
use crate::admin::tests::{admin, assert_faults, core};
use crate::admin::user;

fn request(lines: &[&str], write: bool) -> ImportUsers {
    ImportUsers {
        lines: (1..).zip(lines.iter().map(|line| (*line).to_owned())).collect(),
        existing: ExistingUsers::Refuse,
        skip_bad: false,
        write,
    }
}

/// Asserts that the first line is the only bad one, and has one fault.
fn assert_bad(report: &Imported, code: FaultCode, fields: &[&str]) {
    let [BadLine { line: 1, faults }] = &report.bad[..] else {
        panic!("{report:?}");
    };
    assert_faults(faults, &[(code, fields)]);
}

#[tokio::test]
async fn a_line_brings_a_whole_user() {
    let core = core();
    let line = r#"{"uuid":"7f9c24e8-3b12-4fe1-9a51-111111111111","account_id":"alice","email":"Alice@Example.com","email_verified":true,
        "phone_number":"+32 2 555","user_type":"staff","venue_id":"v1","organization":"acme","enabled":false,"created_at":12,
        "claims":{"given_name":"Alice","address":{"locality":"Ghent"},"badge":"7"},
        "password_hash":"$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"}"#;
    let report = admin(&core).call(request(&[line], true)).await.unwrap();
    assert_eq!((report.added, report.bad.len()), (1, 0));
    let view = admin(&core)
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(view.uuid.to_string(), "7f9c24e8-3b12-4fe1-9a51-111111111111");
    assert_eq!(
        (view.source.as_str(), view.enabled, view.created_at.seconds()),
        ("IMPORT", false, 12)
    );
    assert_eq!(view.claims["badge"], "7");
    assert!(view.has_password && view.email_verified && !view.phone_number_verified);
}

#[tokio::test]
async fn every_bad_line_is_named_and_none_is_imported() {
    let core = core();
    let lines = [
        r#"{"email":"good@example.com"}"#,
        r#"{"email":"bad"}"#,
        r#"{"emial":"x@example.com"}"#,
        "no json",
        r#"{"claims":{}}"#,
        r#"{"email":"Good@Example.com"}"#,
        r#"{"email":"c@example.com","password_hash":"md5"}"#,
        r#"{"email":"d@example.com","claims":{"sub":"x","email_verified":true}}"#,
        "[",
        r#"[null,null,"pos@example.com",true]"#,
        r#"{"account_id":"e","email_verified":true,"phone_number_verified":true}"#,
    ];
    for write in [false, true] {
        let report = admin(&core).call(request(&lines, write)).await.unwrap();
        let bad = report.bad.iter().map(|bad| {
            let fields: Vec<_> = bad.faults.iter().map(|fault| fault.fields.join(" ")).collect();
            (bad.line, fields.join("; "))
        });
        let expected = [
            (2, "email"),
            (3, ""),
            (4, ""),
            (5, "email account_id"),
            (6, "uuid account_id email"),
            (7, "password_hash"),
            (8, "claims email_verified; claims"),
            (9, ""),
            (10, ""),
            (11, "email_verified email; phone_number_verified phone_number"),
        ];
        assert_eq!(
            bad.collect::<Vec<_>>(),
            expected.map(|(line, fields)| (line, fields.to_owned()))
        );
        assert!(report.bad[1].faults[0].detail.contains("unknown field `emial`"));
        assert!(
            user::page(admin(&core), &user::ListUsers::default())
                .unwrap()
                .records
                .is_empty()
        );
    }
    let lenient = ImportUsers {
        skip_bad: true,
        ..request(&lines, true)
    };
    assert_eq!(admin(&core).call(lenient).await.unwrap().added, 1);
    assert_eq!(
        user::page(admin(&core), &user::ListUsers::default())
            .unwrap()
            .records
            .len(),
        1
    );
}

#[tokio::test]
async fn a_second_run_goes_on_where_the_first_ended() {
    let core = core();
    let first = r#"{"email":"a@example.com","password_hash":"$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"}"#;
    admin(&core).call(request(&[first], true)).await.unwrap();
    core.clock.advance(std::time::Duration::from_secs(5));
    let second = request(&[first, r#"{"email":"b@example.com"}"#], true);
    let report = admin(&core).call(second.clone()).await.unwrap();
    assert_eq!((report.added, report.unchanged, report.bad.len()), (1, 1, 0));
    let report = admin(&core).call(second).await.unwrap();
    assert_eq!((report.added, report.unchanged), (0, 2));
}

#[tokio::test]
async fn a_user_who_differs_is_refused_skipped_or_changed_as_told() {
    let core = core();
    admin(&core)
        .call(request(&[r#"{"email":"a@example.com"}"#], true))
        .await
        .unwrap();
    let line = r#"{"email":"a@example.com","venue_id":"v2"}"#;
    let told = |existing| ImportUsers {
        existing,
        ..request(&[line], true)
    };
    let refused = admin(&core).call(told(ExistingUsers::Refuse)).await.unwrap();
    assert_bad(&refused, FaultCode::AlreadyExists, &[]);
    assert_eq!(
        admin(&core)
            .call(told(ExistingUsers::Skip))
            .await
            .unwrap()
            .unchanged,
        1
    );
    assert_eq!(
        admin(&core)
            .call(user::ShowUser {
                who: "a@example.com".to_owned()
            })
            .await
            .unwrap()
            .venue_id,
        None
    );
    assert_eq!(
        admin(&core)
            .call(told(ExistingUsers::Update))
            .await
            .unwrap()
            .updated,
        1
    );
    assert_eq!(
        admin(&core)
            .call(told(ExistingUsers::Update))
            .await
            .unwrap()
            .unchanged,
        1
    );
    assert_eq!(
        admin(&core)
            .call(user::ShowUser {
                who: "a@example.com".to_owned()
            })
            .await
            .unwrap()
            .venue_id
            .as_deref(),
        Some("v2")
    );
}

/// The file may be years old. Its passwords may be known to an attacker, and users may have changed them since.
#[tokio::test]
async fn a_hash_gives_its_password_once() {
    let core = core();
    let with = |hash: &str| ImportUsers {
        existing: ExistingUsers::Update,
        ..request(
            &[&format!(
                r#"{{"email":"a@example.com","password_hash":"{hash}"}}"#
            )],
            true,
        )
    };
    let (first, second) = (
        "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e",
        "$2b$04$zzzdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e",
    );
    admin(&core).call(with(first)).await.unwrap();
    let chosen = user::SetPassword {
        who: "a@example.com".to_owned(),
        password: user::NewPassword::Generated,
        keep_sessions: true,
    };
    admin(&core).call(chosen).await.unwrap();
    for (hash, updated) in [(first, 0), (second, 1), (second, 0)] {
        let report = admin(&core).call(with(hash)).await.unwrap();
        assert_eq!((report.updated, report.unchanged), (updated, 1 - updated));
    }
}

#[tokio::test]
async fn a_line_between_two_users_is_bad() {
    let core = core();
    let two = [r#"{"email":"a@example.com"}"#, r#"{"email":"b@example.com"}"#];
    admin(&core).call(request(&two, true)).await.unwrap();
    let between = ImportUsers {
        existing: ExistingUsers::Update,
        ..request(
            &[r#"{"account_id":"a@example.com","email":"b@example.com"}"#],
            true,
        )
    };
    let report = admin(&core).call(between).await.unwrap();
    assert_bad(
        &report,
        FaultCode::AlreadyExists,
        &["uuid", "account_id", "email"],
    );
}

#[tokio::test]
async fn a_name_that_nobody_could_sign_in_with_is_bad() {
    let core = core();
    let line = format!(r#"{{"account_id":"{}"}}"#, "x".repeat(513));
    let report = admin(&core).call(request(&[&line], true)).await.unwrap();
    assert_bad(&report, FaultCode::TooLong, &["account_id"]);
}

#[tokio::test]
async fn a_type_that_is_no_persons_is_bad() {
    let core = core();
    let line = r#"{"email":"alice@example.com","user_type":"client"}"#;
    let report = admin(&core).call(request(&[line], true)).await.unwrap();
    assert_bad(&report, FaultCode::NotAllowed, &["user_type"]);
    let person = r#"{"email":"alice@example.com"}"#;
    admin(&core).call(request(&[person], true)).await.unwrap();
    let uuid = admin(&core)
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap()
        .uuid;
    let named = format!(r#"{{"email":"alice@example.com","uuid":"{uuid}","user_type":"client"}}"#);
    let update = ImportUsers {
        existing: ExistingUsers::Update,
        ..request(&[&named], true)
    };
    let report = admin(&core).call(update).await.unwrap();
    assert_bad(&report, FaultCode::NotAllowed, &["user_type"]);
}

#[tokio::test]
async fn a_user_is_not_made_in_the_future() {
    let core = core();
    let seconds = core.clock.now().seconds();
    let made = |created_at: u64| format!(r#"{{"email":"alice@example.com","created_at":{created_at}}}"#);
    let (millis, ahead) = (made(seconds * 1000), made(seconds + 301));
    for line in [millis, ahead] {
        let report = admin(&core).call(request(&[&line], true)).await.unwrap();
        assert_eq!(report.added, 0);
        assert_bad(&report, FaultCode::Invalid, &["created_at"]);
    }
    let soon = made(seconds + 200);
    let report = admin(&core).call(request(&[&soon], true)).await.unwrap();
    assert_eq!((report.added, report.bad.len()), (1, 0), "{:?}", report.bad);
    let user = admin(&core)
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(user.created_at.seconds(), seconds);
}
