//! Sets up the example of `idsvc serve --dev`: one client and one user, with new secrets at every start.

use zeroize::Zeroizing;

use crate::admin::client::{AddClient, EnableClient, RotateSecret, UpdateClient};
use crate::admin::user::{AddUser, EnableUser, NewPassword, SetPassword, UserFields};
use crate::admin::{Actor, Admin, AdminError};
use crate::app::DevSite;
use crate::flow::Core;
use crate::oauth::ClientFields;
use crate::oauth::client::GrantType;
use crate::route::Route;

/// The identifier of the example client.
pub const CLIENT: &str = "example";
/// The e-mail address of the example user. The examples of the help and the guide add other users.
pub const USER: &str = "dana@example.com";

/// Every standard claim of OpenID Connect Core 5.1 that has no flag of its own.
const CLAIMS: [(&str, &str); 20] = [
    ("given_name", "Dana"),
    ("family_name", "Example"),
    ("middle_name", "Maria"),
    ("nickname", "dan"),
    ("preferred_username", "dana"),
    ("profile", "https://example.com/dana"),
    ("picture", "https://example.com/dana.png"),
    ("website", "https://dana.example.com/"),
    ("gender", "female"),
    ("birthdate", "1990-04-01"),
    ("zoneinfo", "Europe/Brussels"),
    ("locale", "en-GB"),
    ("phone_number", "+32 2 555 01 23"),
    ("phone_number_verified", "true"),
    ("address.formatted", "Korenmarkt 1\n9000 Ghent\nBelgium"),
    ("address.street_address", "Korenmarkt 1"),
    ("address.locality", "Ghent"),
    ("address.region", "East Flanders"),
    ("address.postal_code", "9000"),
    ("address.country", "Belgium"),
];

/// The example client and user.
pub struct Example {
    /// The relying party.
    pub site: DevSite,
    /// The example user's password.
    pub password: Zeroizing<String>,
}

/// Adds the client and the user if they are missing, and gives both a new secret.
pub async fn prepare(core: &Core) -> Result<Example, AdminError> {
    let admin = Admin {
        core,
        actor: Actor::of_process(),
    };
    let secret = prepare_client(admin).await?;
    let password = prepare_user(admin).await?;
    Ok(Example {
        site: DevSite::new(CLIENT.to_owned(), secret, USER.to_owned()),
        password,
    })
}

async fn prepare_client(admin: Admin<'_>) -> Result<Zeroizing<String>, AdminError> {
    let issuer = &admin.core.policy.issuer;
    let fields = ClientFields {
        client_name: Some("Example".to_owned()),
        redirect_uris: Some(vec![Route::DevCallback.url(issuer)]),
        grant_types: Some(vec![
            GrantType::AuthorizationCode,
            GrantType::RefreshToken,
            GrantType::DeviceCode,
        ]),
        post_logout_redirect_uris: Some(vec![format!("{issuer}/")]),
        ..ClientFields::default()
    };
    let client_id = CLIENT.to_owned();
    let view = if admin.core.catalog().client(CLIENT).is_some() {
        let update = UpdateClient {
            client_id: client_id.clone(),
            no_secret: false,
            fields,
        };
        admin.call(update).await?;
        let enable = EnableClient {
            client_id: client_id.clone(),
        };
        admin.call(enable).await?;
        let rotate = RotateSecret {
            client_id,
            secret: None,
            keep_old_seconds: None,
        };
        admin.call(rotate).await?
    } else {
        let add = AddClient {
            api_key: false,
            client_id,
            public: false,
            secret: None,
            fields,
        };
        admin.call(add).await?
    };
    Ok(view
        .client_secret
        .map(|secret| secret.to_zeroizing())
        .unwrap_or_default())
}

async fn prepare_user(admin: Admin<'_>) -> Result<Zeroizing<String>, AdminError> {
    let set = SetPassword {
        who: USER.to_owned(),
        password: NewPassword::Generated,
        keep_sessions: false,
    };
    let view = match admin.call(set).await {
        Ok(view) => {
            admin.call(EnableUser { who: USER.to_owned() }).await?;
            view
        }
        Err(AdminError::Refused(_)) => {
            let fields = UserFields {
                name: Some("Dana Example".to_owned()),
                venue_id: Some("venue-1".to_owned()),
                email_verified: Some(true),
                claims: CLAIMS
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .to_vec(),
                ..UserFields::default()
            };
            let request = AddUser {
                email: USER.to_owned(),
                password: NewPassword::Generated,
                fields,
            };
            admin.call(request).await?
        }
        Err(error) => return Err(error),
    };
    Ok(view
        .password
        .map(|password| password.to_zeroizing())
        .unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::client::ShowClient;
    use crate::admin::tests::core;
    use crate::admin::user::{ListUsers, ShowUser, page};

    #[tokio::test]
    async fn every_start_prepares_the_same_example_with_new_secrets() {
        let core = core();
        let first = prepare(&core).await.unwrap();
        let second = prepare(&core).await.unwrap();
        assert_ne!(first.password, second.password);
        assert_ne!(first.site.client_secret, second.site.client_secret);
        let admin = crate::admin::tests::admin(&core);
        assert_eq!(page(admin, &ListUsers::default()).unwrap().records.len(), 1);
        let dana = admin.call(ShowUser { who: USER.to_owned() }).await.unwrap();
        assert!(dana.email_verified && dana.phone_number_verified);
        assert_eq!(dana.claims.len(), 14);
        let show = ShowClient {
            client_id: CLIENT.to_owned(),
        };
        let client = admin.call(show).await.unwrap();
        assert!(client.redirect_uris[0].ends_with("/dev/callback"));
    }
}
