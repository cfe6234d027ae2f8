use super::*;
use crate::admin::client::AddClient;
use crate::admin::tests::{admin, assert_faults, core, refusal};
use crate::oauth::client::GrantType;
use crate::oauth::{ClientFields, FaultCode};

fn tv(fields: ClientFields) -> AddClient {
    AddClient {
        client_id: "tv".to_owned(),
        public: false,
        secret: None,
        api_key: false,
        fields,
    }
}

#[tokio::test]
async fn a_key_is_shown_once_listed_and_revoked() {
    let core = core();
    let admin = admin(&core);
    let uris = Some(vec!["https://tv.example/cb".to_owned()]);
    let tv = tv(ClientFields {
        redirect_uris: uris,
        ..ClientFields::default()
    });
    admin.call(tv).await.unwrap();
    let made = admin
        .call(AddApiKey {
            client_id: "tv".to_owned(),
        })
        .await
        .unwrap();
    let key = Secret::<ApiKey>::parse(made.api_key.unwrap().reveal()).unwrap();
    assert!(core.catalog().api_key(&key.digest()).is_some());
    let listed = admin
        .call(ListApiKeys {
            client_id: "tv".to_owned(),
        })
        .await
        .unwrap();
    assert!(matches!(&listed[..], [view] if view.id == made.id && view.api_key.is_none()));
    let which = RevokeApiKey {
        client_id: "tv".to_owned(),
        id: made.id,
    };
    admin.call(which.clone()).await.unwrap();
    assert!(core.catalog().api_key(&key.digest()).is_none());
    assert_faults(&refusal(admin.call(which).await), &[(FaultCode::NotFound, &[])]);
}

#[tokio::test]
async fn a_client_that_may_not_refresh_gets_no_key() {
    let core = core();
    let admin = admin(&core);
    let never_refreshing = ClientFields {
        redirect_uris: Some(vec!["https://tv.example/cb".to_owned()]),
        grant_types: Some(vec![GrantType::AuthorizationCode]),
        ..ClientFields::default()
    };
    admin.call(tv(never_refreshing)).await.unwrap();
    assert_faults(
        &refusal(
            admin
                .call(AddApiKey {
                    client_id: "tv".to_owned(),
                })
                .await,
        ),
        &[(FaultCode::NotAllowed, &["grant_types"])],
    );
    assert_faults(
        &refusal(
            admin
                .call(AddApiKey {
                    client_id: "nobody".to_owned(),
                })
                .await,
        ),
        &[(FaultCode::NotFound, &[])],
    );
}
