//! Applies what was exported.

use super::*;

#[tokio::test]
async fn an_export_applied_changes_nothing_and_a_copy_of_it_is_the_same() {
    let (one, other) = (core(), core());
    let robot = ClientFields {
        redirect_uris: Some(vec!["https://app.example/cb".to_owned()]),
        scope: Some(vec!["openid".to_owned(), "notes".to_owned()]),
        client_name: Some("Notes".to_owned()),
        ..ClientFields::default()
    };
    let add = |client_id: &str, public| AddClient {
        client_id: client_id.to_owned(),
        public,
        secret: None,
        api_key: false,
        fields: robot.clone(),
    };
    admin(&one).call(add("web", false)).await.unwrap();
    admin(&one).call(add("phone", true)).await.unwrap();
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
    admin(&one).call(alice).await.unwrap();
    let records = exported(&one, true);
    let state = || {
        let (mut clients, mut users) = (Vec::new(), Vec::new());
        for record in records.clone() {
            match record {
                Exported::Client(entry) => {
                    clients.push(serde_json::from_value(Value::Object(entry)).unwrap());
                }
                Exported::User(entry) => {
                    users.push(serde_json::from_value(Value::Object(entry)).unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
        DeclaredState {
            client: Some(clients),
            user: Some(users),
            ..DeclaredState::default()
        }
    };
    let applied = |state| Apply {
        state,
        dry_run: false,
        prune: true,
        ..Apply::default()
    };
    let unchanged = admin(&one).call(applied(state())).await.unwrap();
    assert_eq!((unchanged.changes, unchanged.unchanged), (Vec::new(), 3));
    admin(&other).call(applied(state())).await.unwrap();
    assert_eq!(exported(&other, true), records);
    let open = serde_json::to_string(&exported(&one, false)).unwrap();
    assert!(!open.contains("argon2") && !open.contains("sha256"), "{open}");
}

#[tokio::test]
async fn an_export_that_nobody_takes_any_more_ends_there() {
    let core = core();
    let people = ["a@example.com", "b@example.com"].map(person).to_vec();
    admin(&core)
        .call(request(Some(vec![web()]), Some(people), false))
        .await
        .unwrap();
    for most in 1..=3 {
        let mut taken = 0;
        export(&core, false, &mut |_| {
            taken += 1;
            if taken < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
        .unwrap();
        assert_eq!(taken, most);
    }
}

#[tokio::test]
async fn a_dry_run_shows_no_identifier_that_nobody_declared() {
    let core = core();
    let uuid = core.random.uuid_v7(Duration::from_millis(1));
    let mut named = person("b@example.com");
    named.line.uuid = Some(uuid);
    let wanted = |dry_run| Apply {
        dry_run,
        ..request(
            Some(vec![web()]),
            Some(vec![person("a@example.com"), named.clone()]),
            false,
        )
    };
    let shown = |applied: &Applied| -> Vec<String> {
        let fields = applied.changes.iter().flat_map(|change| &change.fields);
        let made = fields.filter(|field| field.name.ends_with("uuid"));
        made.filter_map(|field| field.after.as_ref()?.as_str().map(str::to_owned))
            .collect()
    };
    let planned = admin(&core).call(wanted(true)).await.unwrap();
    assert_eq!(shown(&planned), [uuid.to_string()]);
    assert!(
        planned
            .changes
            .iter()
            .all(|change| change.client_secret.is_none())
    );
    assert_eq!(shown(&admin(&core).call(wanted(false)).await.unwrap()).len(), 3);
}

#[tokio::test]
async fn a_refusal_names_the_fields_of_each_record() {
    let core = core();
    let mut faulty = Vec::new();
    let mut add = |change: fn(&mut ClientFields)| {
        let mut client = DeclaredClient {
            client_id: format!("c{}", faulty.len()),
            ..DeclaredClient::default()
        };
        change(&mut client.fields);
        faulty.push(client);
    };
    add(|fields| fields.grant_types = Some(vec![GrantType::AuthorizationCode]));
    add(|fields| fields.grant_types = Some(vec![GrantType::ClientCredentials]));
    add(|fields| fields.grant_types = Some(vec![GrantType::JwtBearer]));
    add(|fields| {
        fields.redirect_uris = Some(vec!["https://app.example/cb".to_owned()]);
        fields.grant_types = Some(Vec::new());
    });
    add(|fields| {
        fields.redirect_uris = Some(vec!["https://app.example/cb".to_owned()]);
        fields.password_sign_in = Some(false);
        fields.default_scope = Some(vec!["more".to_owned()]);
        fields.max_scope = Some(vec!["more".to_owned()]);
        fields.scope_texts = Some(std::iter::once(("more".to_owned(), "More".to_owned())).collect());
    });
    add(|_| {});
    let mut user = person("a@example.com");
    user.line.claims = ["user_type", "venueId", "organization"]
        .map(|name| (name.to_owned(), Value::from("x")))
        .into();
    let provider = |id: &str| DeclaredProvider {
        id: id.to_owned(),
        ..DeclaredProvider::default()
    };
    let wanted = Apply {
        state: DeclaredState {
            provider: Some(vec![
                DeclaredProvider {
                    fields: ProviderFields {
                        exchange: Some(true),
                        algs: Some(Vec::new()),
                        ..ProviderFields::default()
                    },
                    ..provider("one")
                },
                DeclaredProvider {
                    fields: ProviderFields {
                        client_id: Some("us".to_owned()),
                        ..ProviderFields::default()
                    },
                    ..provider("two")
                },
                DeclaredProvider {
                    client_secret: Some(SecretString::new("zzzzzzzz")),
                    ..provider("three")
                },
            ]),
            client: Some(faulty),
            user: Some(vec![user]),
            ..DeclaredState::default()
        },
        dry_run: true,
        prune: false,
        ..Apply::default()
    };
    let refused = refusal(admin(&core).call(wanted).await);
    let found: Vec<_> = refused
        .iter()
        .map(|fault| {
            let id = fault.subject.as_ref().map(|subject| subject.id.as_str());
            (id.unwrap(), fault.code, fault.fields.join(" "))
        })
        .collect();
    let (required, not_allowed) = (FaultCode::Required, FaultCode::NotAllowed);
    for (id, code, fields) in [
        ("c0", required, "redirect_uris"),
        ("c1", required, "keys jwks_uri max_scope"),
        ("c2", required, "providers"),
        ("c3", not_allowed, "grant_types redirect_uris"),
        ("c4", not_allowed, "password_sign_in providers"),
        ("c4", not_allowed, "default_scope scope"),
        ("c4", not_allowed, "max_scope scope"),
        ("c4", not_allowed, "scope_texts scope"),
        ("c5", required, "redirect_uris grant_types"),
        ("one", required, "issuer"),
        ("one", required, "algs"),
        ("one", required, "audiences client_id"),
        ("two", required, "client_secret auth_method"),
        ("three", required, "client_id exchange id_jag"),
        ("three", required, "client_id"),
        ("a@example.com", not_allowed, "claims venue_id"),
        ("a@example.com", not_allowed, "claims user_type"),
    ] {
        assert!(
            found.contains(&(id, code, fields.to_owned())),
            "{id} {fields}\n{found:?}"
        );
    }
}
