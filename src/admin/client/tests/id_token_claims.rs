//! Which claims of the user are in ID tokens.

use super::*;
use crate::oauth::client::IdTokenContent;
use crate::oauth::profile::ClientProfile;

#[tokio::test]
async fn a_new_client_has_the_claims_of_the_scope_in_its_id_token_unless_it_has_a_profile() {
    let core = core();
    let web = admin(&core).call(request("web")).await.unwrap();
    assert_eq!(web.id_token_claims, IdTokenContent::Userinfo);
    let mut exact = request("exact");
    exact.fields.id_token_claims = Some(IdTokenContent::Requested);
    let exact = admin(&core).call(exact).await.unwrap();
    assert_eq!(exact.id_token_claims, IdTokenContent::Requested);
    let mut bank = request("bank");
    bank.fields.profile = Some(ClientProfile::Fapi2.into());
    bank.fields.jwks_uri = Some("https://app.example/keys".to_owned());
    let bank = admin(&core).call(bank).await.unwrap();
    assert_eq!(bank.id_token_claims, IdTokenContent::Requested);
    let renamed = ClientFields {
        client_name: Some("Exact".to_owned()),
        ..ClientFields::default()
    };
    let exact = admin(&core).call(change_of("exact", renamed)).await.unwrap();
    assert_eq!(exact.id_token_claims, IdTokenContent::Requested);
}
