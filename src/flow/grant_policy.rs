//! Decides whether this user may get a token for this client now. Every grant asks this, and so do introspection and
//! `UserInfo`, to learn whether a token is still valid.
//!
//! Removing a client or a provider removes only its own row. Its grants, sessions and consents end because they record
//! which client and which provider they belong to ([`Client::incarnation`], [`Provider::incarnation`]). A later
//! client or provider of the same name has another incarnation. The sweep removes the rows of the removed one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::identity::{AuthenticationMethod, ProviderOfSignIn, User};
use crate::oauth::client::{Client, GrantType};
use crate::oauth::code::Authorization;
use crate::oauth::consent;
use crate::oauth::error::{Cause, ErrorCode, Refusal};
use crate::oauth::group::Groups;
use crate::oauth::refresh::RefreshFamily;
use crate::oauth::scope::Scope;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::engine::Snapshot;
use crate::store::tables::{CLIENTS, CONSENTS, FAMILIES, PROVIDERS, USERS};
use crate::store::{StoreError, TxError};

use super::Catalog;

const USER_REFUSED: Refusal = Refusal::invalid_grant("the user may no longer sign in");
const PROVIDER_REFUSED: Refusal =
    Refusal::invalid_grant("the provider by which the user signed in is no longer in service");

/// Decides by the clients that are registered at the moment of the question.
#[derive(Clone)]
pub struct GrantPolicy {
    catalog: Arc<ArcSwap<Catalog>>,
}

impl GrantPolicy {
    pub(super) fn new(catalog: &Arc<ArcSwap<Catalog>>) -> Self {
        Self {
            catalog: Arc::clone(catalog),
        }
    }

    /// Refuses a client that may not use the grant (RFC 6749 section 5.2, `unauthorized_client`), or that has been
    /// disabled or removed.
    pub fn check_grant(&self, client: &Client, grant_type: GrantType) -> Result<(), Refusal> {
        self.check_client(client)?;
        if client.may_use(grant_type) {
            return Ok(());
        }
        Err(Refusal::naming(
            ErrorCode::UnauthorizedClient,
            &format!("this client is not registered for the grant {grant_type}"),
        ))
    }

    /// Authentication may take long, since a client's keys may have to be fetched. The client may have been disabled
    /// since then, or replaced by another one of the same name.
    ///
    /// Returns the client as it is now.
    fn check_client(&self, client: &Client) -> Result<CurrentClient, Refusal> {
        let is_current = |now: &Arc<Client>| now.enabled && now.own_grant == client.own_grant;
        let catalog = self.catalog.load();
        let now = catalog.client(&client.client_id).filter(is_current);
        Ok(CurrentClient {
            client: now.ok_or(Refusal::CLIENT_UNPROVEN)?,
            groups: Arc::clone(catalog.groups()),
        })
    }

    /// The same inside a transaction. The row of a client is removed before the catalog changes, so a request that is
    /// answered during the removal finds no row.
    fn check_stored_client(
        &self,
        snapshot: &dyn Snapshot,
        client: &Client,
        authorization: &Authorization,
    ) -> Result<CurrentClient, TxError<Refusal>> {
        let now = self.check_client(client)?;
        let is_stored = snapshot.has_stored_catalog() || CLIENTS.contains(snapshot, &client.client_id)?;
        if is_stored && client.owns_grant(authorization) {
            Ok(now)
        } else {
            Err(Refusal::CLIENT_UNPROVEN.into())
        }
    }

    /// Checks the client and the user of an authorization, and returns the user.
    ///
    /// A grant asks inside the transaction that issues, so that a user who has just been disabled gets nothing.
    pub fn admit(
        &self,
        snapshot: &dyn Snapshot,
        client: &Client,
        authorization: &Authorization,
    ) -> Result<User, TxError<Refusal>> {
        let now = self.check_stored_client(snapshot, client, authorization)?;
        match USERS.get(snapshot, &authorization.user)? {
            Some(user) => now.evaluate(snapshot, client, authorization, user),
            None => Err(USER_REFUSED.into()),
        }
    }

    /// The same for a user without an earlier grant, whose record may not be stored yet.
    pub fn authorize_new_user(
        &self,
        snapshot: &dyn Snapshot,
        client: &Client,
        authorization: &Authorization,
        user: User,
    ) -> Result<User, TxError<Refusal>> {
        let now = self.check_stored_client(snapshot, client, authorization)?;
        now.evaluate(snapshot, client, authorization, user)
    }
}

/// A client and all groups, as they are in one catalog. They may have changed since the client authenticated.
struct CurrentClient {
    client: Arc<Client>,
    groups: Arc<Groups>,
}

impl CurrentClient {
    /// The rules about the user.
    fn evaluate(
        &self,
        snapshot: &dyn Snapshot,
        client: &Client,
        authorization: &Authorization,
        user: User,
    ) -> Result<User, TxError<Refusal>> {
        if !user.enabled {
            return Err(USER_REFUSED.into());
        }
        if !self.client.lets_in(&user, &self.groups) {
            return Err(Refusal::not_in_group(ErrorCode::InvalidGrant, user.uuid).into());
        }
        if !is_in_service(snapshot, &authorization.factor)? {
            return Err(PROVIDER_REFUSED.into());
        }
        check_consent(snapshot, client, authorization)?;
        Ok(user)
    }
}

/// Why a user cannot use a client by any grant. The records of the two suffice to tell; [`GrantPolicy`] looks at more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Denial {
    /// The client is disabled.
    ClientDisabled,
    /// The user is disabled.
    Disabled,
    /// The user is in no group that may use the client.
    NotInGroup,
}

impl Denial {
    /// All reasons why this user cannot use this client.
    pub fn all_of(client: &Client, user: &User, groups: &Groups) -> Vec<Self> {
        let applies = |denial: &Self| match denial {
            Self::ClientDisabled => !client.enabled,
            Self::Disabled => !user.enabled,
            Self::NotInGroup => !client.lets_in(user, groups),
        };
        let mut denials = vec![Self::ClientDisabled, Self::Disabled, Self::NotInGroup];
        denials.retain(applies);
        denials
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientDisabled => "client_disabled",
            Self::Disabled => "disabled",
            Self::NotInGroup => "not_in_group",
        }
    }
}

/// Records the event if this is the refusal of a user who is in no group that may use the client.
pub fn record_refusal(refusal: &Refusal, client_id: &str) {
    if let (Some(Cause::NotInGroup), Some(user)) = (refusal.cause, refusal.user) {
        let reason = Cause::NotInGroup.as_str();
        audit::record(&Event::AccessRefused {
            user,
            client_id,
            reason,
        });
    }
}

/// The provider that the user signed in at. `None` if it was removed, also if another one has its id since.
fn provider_of(
    snapshot: &dyn Snapshot,
    signed_in_at: ProviderOfSignIn<'_>,
) -> Result<Option<Provider>, StoreError> {
    let provider = PROVIDERS.get(snapshot, signed_in_at.id)?;
    Ok(provider.filter(|provider| provider.incarnation == signed_in_at.incarnation))
}

/// Whether the provider that the user signed in at is enabled. `true` if there was none.
pub(super) fn is_in_service(
    snapshot: &dyn Snapshot,
    factor: &AuthenticationMethod,
) -> Result<bool, StoreError> {
    let Some(signed_in_at) = factor.signed_in_at() else {
        return Ok(true);
    };
    Ok(provider_of(snapshot, signed_in_at)?.is_some_and(|provider| provider.enabled))
}

/// Whether the provider that the user signed in at was removed since, or has got another issuer. That ends sessions
/// and grants, as a disabled provider does not.
pub fn has_lost_provider(snapshot: &dyn Snapshot, factor: &AuthenticationMethod) -> Result<bool, StoreError> {
    match factor.signed_in_at() {
        Some(signed_in_at) => Ok(provider_of(snapshot, signed_in_at)?.is_none()),
        None => Ok(false),
    }
}

/// Whether a grant has ended with its client or with the provider that the user signed in at. `client` is the one that
/// has the identifier now.
pub fn has_ended(
    snapshot: &dyn Snapshot,
    client: Option<&Client>,
    authorization: &Authorization,
) -> Result<bool, StoreError> {
    let is_of_client = client.is_some_and(|client| client.owns_grant(authorization));
    Ok(!is_of_client || has_lost_provider(snapshot, &authorization.factor)?)
}

/// Says that [`GrantPolicy::admit`] will be asked about this family.
pub fn will_admit(snapshot: &dyn Snapshot, family: Uuid, client: &Client) {
    FAMILIES.will_get_of_user(snapshot, &family, USERS.id(), "");
    if client.requires_consent() {
        FAMILIES.will_get_of_user(snapshot, &family, CONSENTS.id(), &client.client_id);
    }
}

/// A refresh family for its client. It is as if revoked if it has ended with the client or a provider.
pub fn read_family(
    snapshot: &dyn Snapshot,
    id: Uuid,
    client: &Client,
    now: Timestamp,
) -> Result<Option<RefreshFamily>, StoreError> {
    let Some(mut family) = FAMILIES.get(snapshot, &id)? else {
        return Ok(None);
    };
    revoke_ended(snapshot, &mut family, client, now)?;
    Ok(Some(family))
}

/// Revokes a family in memory if it has ended with its client or a provider.
pub(super) fn revoke_ended(
    snapshot: &dyn Snapshot,
    family: &mut RefreshFamily,
    client: &Client,
    now: Timestamp,
) -> Result<(), StoreError> {
    if has_ended(snapshot, Some(client), &family.authorization)? {
        family.revoke(now);
    }
    Ok(())
}

/// Refuses a client that needs the user's consent for this grant and does not have it.
fn check_consent(
    snapshot: &dyn Snapshot,
    client: &Client,
    authorization: &Authorization,
) -> Result<(), TxError<Refusal>> {
    let needs_consent = match authorization.factor {
        AuthenticationMethod::Password
        | AuthenticationMethod::Email
        | AuthenticationMethod::Passkey { .. }
        | AuthenticationMethod::Federated { .. } => client.requires_consent(),
        AuthenticationMethod::Anonymous => false,
    };
    if !needs_consent {
        return Ok(());
    }
    let key = (authorization.user, client.client_id.clone());
    let given = CONSENTS.get(snapshot, &key)?;
    let given = given.filter(|consent| client.owns_consent(consent));
    let scope = authorization.scope.filter(|value| value != Scope::AUTHENTICATED);
    let asked = consent::requested_consent(&scope, &authorization.claims, &authorization.resources);
    if consent::covers(given.as_ref(), &asked) {
        Ok(())
    } else {
        Err(Refusal::invalid_grant("the user has not given consent or has withdrawn it").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::client::{AddClient, DisableClient, EnableClient};
    use crate::admin::tests::{admin, core};
    use crate::clock::Timestamp;
    use crate::flow::Core;
    use crate::identity::Consent;
    use crate::oauth::ClientFields;
    use crate::oauth::client::ConsentRequirement;
    use crate::oauth::openid::claims::{ClaimsParameter, ClaimsRequest};
    use crate::oauth::registered_scope::RegisteredScopes;
    use crate::oauth::resource::Resources;
    use crate::store::unless_refused;

    async fn registered(core: &Core) -> Client {
        let request = AddClient {
            api_key: false,
            client_id: "web".to_owned(),
            public: false,
            secret: None,
            fields: ClientFields {
                redirect_uris: Some(vec!["https://app.example/cb".to_owned()]),
                ..ClientFields::default()
            },
        };
        admin(core).call(request).await.unwrap();
        Client::clone(&core.catalog().client("web").unwrap())
    }

    async fn granted(core: &Core) -> (User, Authorization) {
        let now = core.clock.now();
        let user = User::local(core.random.uuid_v4(), "alice@example.com", "org", now);
        let row = user.clone();
        let written = core
            .store
            .write("test_user", move |tx| USERS.put(tx, &row.uuid, &row));
        written.await.unwrap();
        let authorization = Authorization {
            client_id: "web".to_owned(),
            client_incarnation: core.catalog().client("web").unwrap().incarnation,
            user: user.uuid,
            session: None,
            auth_time: Some(now),
            factor: AuthenticationMethod::Password,
            second_factor: None,
            upstream_token: None,
            scope: "openid".parse().unwrap(),
            resources: Resources::new(),
            claims: ClaimsRequest::default(),
            bound_to: None,
            actor: None,
        };
        (user, authorization)
    }

    fn admits(core: &Core, client: &Client, authorization: &Authorization) -> bool {
        let admitted = core.store.read_blocking(|snapshot| {
            unless_refused(core.grant_policy().admit(snapshot, client, authorization))
        });
        admitted.unwrap().is_some()
    }

    /// The client's record was read when the client authenticated.
    #[tokio::test]
    async fn a_client_that_was_disabled_or_removed_since_gets_nothing() {
        let core = core();
        let client = registered(&core).await;
        let (user, authorization) = granted(&core).await;
        let admits_new_user = || {
            let admitted = core.store.read_blocking(|snapshot| {
                let newcomer = user.clone();
                let policy = core.grant_policy();
                unless_refused(policy.authorize_new_user(snapshot, &client, &authorization, newcomer))
            });
            admitted.unwrap().is_some()
        };
        for enabled in [false, true] {
            let admin = admin(&core);
            let client_id = "web".to_owned();
            if enabled {
                admin.call(EnableClient { client_id }).await.unwrap();
            } else {
                admin.call(DisableClient { client_id }).await.unwrap();
            }
            assert_eq!(admits(&core, &client, &authorization), enabled);
            assert_eq!(admits_new_user(), enabled);
        }
        let removed = core.store.write("test_removal", |tx| CLIENTS.remove(tx, "web"));
        assert!(removed.await.unwrap());
        assert!(!admits_new_user(), "the catalog has not heard of it yet");
    }

    #[tokio::test]
    async fn consent_covers_the_claims_that_were_asked_for_one_by_one() {
        let core = core();
        let mut client = registered(&core).await;
        client.consent = ConsentRequirement::Require;
        let (user, mut authorization) = granted(&core).await;
        let asked = r#"{"userinfo":{"email":null}}"#;
        authorization.claims =
            ClaimsParameter::parse(asked, &"email".parse().unwrap(), &RegisteredScopes::default())
                .unwrap()
                .request;
        for (scope, is_enough) in [("openid", false), ("openid email", true)] {
            let key = (user.uuid, "web".to_owned());
            let consent = Consent {
                scope: scope.to_owned(),
                client_incarnation: client.incarnation,
                given_at: Timestamp::from_seconds(0),
            };
            let written = core
                .store
                .write("test_consent", move |tx| CONSENTS.put(tx, &key, &consent));
            written.await.unwrap();
            assert_eq!(admits(&core, &client, &authorization), is_enough, "{scope}");
        }
    }
}
