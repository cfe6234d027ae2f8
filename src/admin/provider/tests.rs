use std::sync::{Mutex, mpsc};

use super::*;
use crate::admin::SecretString;
use crate::admin::client;
use crate::admin::client::tests::request;
use crate::admin::tests::{admin, assert_faults, core, refusal};
use crate::oauth::ClientFields;
use crate::oauth::list_edits::ListEdits;

fn fields(issuer: &str) -> ProviderFields {
    ProviderFields {
        issuer: Some(issuer.to_owned()),
        audiences: Some(vec!["app".to_owned()]),
        exchange: Some(true),
        ..ProviderFields::default()
    }
}

async fn added(core: &crate::flow::Core, id: &str) {
    let request = AddProvider {
        id: id.to_owned(),
        client_secret: None,
        fields: fields(&format!("https://{id}.example")),
    };
    admin(core).call(request).await.unwrap();
}

fn renamed(name: &str) -> UpdateProvider {
    UpdateProvider {
        id: "corp".to_owned(),
        client_secret: None,
        fields: ProviderFields {
            name: Some(name.to_owned()),
            ..ProviderFields::default()
        },
    }
}

/// The value is added to those of `amr` that are trusted.
fn of_two_factors(amr: &str) -> UpdateProvider {
    let add = ProviderFields {
        mfa_amr: Some(vec![amr.to_owned()]),
        ..ProviderFields::default()
    };
    let edits = ListEdits {
        add,
        ..ListEdits::default()
    };
    UpdateProvider {
        id: "corp".to_owned(),
        client_secret: None,
        fields: ProviderFields {
            edits: Some(Box::new(edits)),
            ..ProviderFields::default()
        },
    }
}

#[tokio::test]
async fn a_provider_stays_where_a_clients_people_sign_in() {
    let core = core();
    let corp = ProviderFields {
        client_id: Some("us".to_owned()),
        ..fields("https://corp.example")
    };
    let with = |secret: &str| AddProvider {
        id: "corp".to_owned(),
        client_secret: Some(SecretString::new(secret)),
        fields: corp.clone(),
    };
    let refused = refusal(admin(&core).call(with("zzzzzzzz\n")).await);
    assert_faults(&refused, &[(FaultCode::Invalid, &["client_secret"])]);
    admin(&core).call(with("zzzzzzzz")).await.unwrap();
    let mut sso = request("sso");
    sso.fields.providers = Some(vec!["corp".to_owned()]);
    sso.fields.password_sign_in = Some(false);
    admin(&core).call(sso).await.unwrap();
    let close = UpdateProvider {
        id: "corp".to_owned(),
        client_secret: Some(SecretString::new("")),
        fields: ProviderFields {
            client_id: Some(String::new()),
            ..ProviderFields::default()
        },
    };
    let refused = refusal(admin(&core).call(close.clone()).await);
    assert_faults(&refused, &[(FaultCode::InUse, &["client_id"])]);
    let allow = client::UpdateClient {
        client_id: "sso".to_owned(),
        no_secret: false,
        fields: ClientFields {
            password_sign_in: Some(true),
            ..ClientFields::default()
        },
    };
    admin(&core).call(allow).await.unwrap();
    admin(&core).call(close).await.unwrap();
}

/// The users of a provider are found by its issuer.
#[tokio::test]
async fn no_provider_takes_the_issuer_of_another() {
    let core = core();
    for id in ["corp", "partner"] {
        added(&core, id).await;
    }
    let request = UpdateProvider {
        id: "corp".to_owned(),
        client_secret: None,
        fields: fields("https://partner.example"),
    };
    let refused = refusal(admin(&core).call(request).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &["issuer"])]);
    assert_eq!(
        admin(&core)
            .call(ShowProvider {
                id: "corp".to_owned()
            })
            .await
            .unwrap()
            .issuer,
        "https://corp.example"
    );
}

#[tokio::test]
async fn of_two_changes_at_once_both_count() {
    let core = core();
    added(&core, "corp").await;
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let held = core.store.write("test", move |_| -> Result<_, StoreError> {
        let _ = wait.lock().unwrap().recv();
        Ok(())
    });
    let (_, first, second, ()) = tokio::join!(
        held,
        admin(&core).call(renamed("One")),
        admin(&core).call(of_two_factors("mfa")),
        async move { drop(go) },
    );
    first.unwrap();
    second.unwrap();
    let show = ShowProvider {
        id: "corp".to_owned(),
    };
    let stored = admin(&core).call(show).await.unwrap();
    assert_eq!(stored.name.as_deref(), Some("One"));
    assert_eq!(stored.mfa_amr, ["mfa"]);
}
