//! Declared providers.

use crate::admin::apply::tests::*;

fn upstream(id: &str, issuer: &str) -> DeclaredProvider {
    DeclaredProvider {
        id: id.to_owned(),
        client_secret: Some(SecretString::new("upstream secret")),
        fields: ProviderFields {
            issuer: Some(issuer.to_owned()),
            client_id: Some("us".to_owned()),
            ..ProviderFields::default()
        },
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
    let client = web_with(|fields| fields.providers = Some(vec!["corp".to_owned()]));
    let corp = upstream("corp", "https://corp.example");
    let alone = refusal(
        admin(&core)
            .call(request(Some(vec![client.clone()]), None, false))
            .await,
    );
    assert_faults(&alone, &[(FaultCode::NotFound, &["providers"])]);
    assert_eq!(subjects(&alone), ["client web"]);
    let both = with_providers(vec![corp.clone()], Some(vec![client]), false);
    let applied = admin(&core).call(both.clone()).await.unwrap();
    assert_eq!(actions(&applied), [(Action::Add, "corp"), (Action::Add, "web")]);
    let again = admin(&core).call(both).await.unwrap();
    assert_eq!((again.changes.len(), again.unchanged), (0, 2));
    // A missing secret is kept. Another one is reported as changed, without its value.
    let silent = DeclaredProvider {
        client_secret: None,
        ..corp.clone()
    };
    let kept = admin(&core)
        .call(with_providers(vec![silent], None, false))
        .await
        .unwrap();
    assert_eq!(kept.changes, []);
    let other = DeclaredProvider {
        client_secret: Some(SecretString::new("another secret")),
        ..corp
    };
    let changed = admin(&core)
        .call(with_providers(vec![other], None, false))
        .await
        .unwrap();
    let fields: Vec<_> = changed.changes[0]
        .fields
        .iter()
        .map(|field| (field.name.as_str(), &field.after))
        .collect();
    assert_eq!(fields, [("client_secret", &None)]);
    let exported = serde_json::to_string(&exported(&core, true)).unwrap();
    assert!(exported.contains("https://corp.example") && !exported.contains("secret\":"));
}

#[tokio::test]
async fn nobody_signs_in_at_a_provider_whose_tokens_are_exchanged_and_no_more() {
    let core = core();
    let client = web_with(|fields| {
        fields.providers = Some(vec!["corp".to_owned()]);
        fields.password_sign_in = Some(false);
    });
    let corp = upstream("corp", "https://corp.example");
    let for_exchange = DeclaredProvider {
        client_secret: None,
        fields: ProviderFields {
            client_id: None,
            exchange: Some(true),
            audiences: Some(vec!["app".to_owned()]),
            ..corp.fields.clone()
        },
        ..corp.clone()
    };
    let alone = with_providers(vec![for_exchange.clone()], None, false);
    let closed = with_providers(vec![for_exchange], Some(vec![client.clone()]), false);
    let shut_out: [(FaultCode, &[&str]); 1] = [(FaultCode::NotAllowed, &["password_sign_in", "providers"])];
    let refused = refusal(admin(&core).call(closed.clone()).await);
    assert_faults(&refused, &shut_out);
    let open = with_providers(vec![corp], Some(vec![client]), false);
    assert_eq!(admin(&core).call(open).await.unwrap().changes.len(), 2);
    for wanted in [closed, alone] {
        let refused = refusal(admin(&core).call(wanted).await);
        assert_faults(&refused, &shut_out);
        assert_eq!(subjects(&refused), ["client web"]);
    }
}

#[tokio::test]
async fn no_provider_goes_that_a_client_names_and_no_issuer_comes_twice() {
    let core = core();
    let client = web_with(|fields| fields.providers = Some(vec!["corp".to_owned()]));
    let corp = upstream("corp", "https://corp.example");
    admin(&core)
        .call(with_providers(vec![corp.clone()], Some(vec![client]), false))
        .await
        .unwrap();
    let orphaned = refusal(admin(&core).call(with_providers(Vec::new(), None, true)).await);
    assert_faults(&orphaned, &[(FaultCode::InUse, &[])]);
    assert_eq!(subjects(&orphaned), ["provider corp"]);
    let twin = upstream("other", "https://corp.example");
    let doubled = refusal(
        admin(&core)
            .call(with_providers(vec![twin.clone()], None, false))
            .await,
    );
    assert_faults(&doubled, &[(FaultCode::AlreadyExists, &["issuer"])]);
    assert_eq!(subjects(&doubled), ["provider other"]);
    // The two may swap their issuers in one apply.
    let mut moved = corp;
    moved.fields.issuer = Some("https://new.example".to_owned());
    let swapped = admin(&core)
        .call(with_providers(vec![moved, twin], None, false))
        .await
        .unwrap();
    assert_eq!(
        actions(&swapped),
        [(Action::Change, "corp"), (Action::Add, "other")]
    );
    let gone = admin(&core)
        .call(with_providers(Vec::new(), Some(vec![web()]), true))
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

/// One of them would be ignored.
#[tokio::test]
async fn a_providers_keys_are_said_in_one_way() {
    let core = core();
    let mut keyed = upstream("corp", "https://corp.example");
    keyed.fields.keys = Some(client::tests::keys());
    let mut both = keyed.clone();
    both.fields.jwks_uri = Some("https://corp.example/jwks".to_owned());
    let mut empty = both.clone();
    empty.fields.keys = Some(Vec::new());
    let refused = refusal(admin(&core).call(with_providers(vec![both], None, false)).await);
    assert_faults(&refused, &[(FaultCode::NotAllowed, &["keys", "jwks_uri"])]);
    for one in [keyed, empty] {
        let applied = admin(&core).call(with_providers(vec![one], None, false)).await;
        assert_eq!(applied.unwrap().changes.len(), 1);
    }
}
