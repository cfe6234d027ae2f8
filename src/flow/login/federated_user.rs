//! Finds, links or creates the user of a provider's account, for a sign-in and for a token exchange.

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::federation::account::{AccountDecision, EmailOwner, decide};
use crate::federation::profile::Profile;
use crate::federation::provider::Provider;
use crate::flow::users;
use crate::flow::users::EndedByProof;
use crate::identity::{LinkedIdentity, LoginName, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::login_names;
use crate::store::tables::{PROVIDERS, USERS, USERS_BY_IDENTITY};

/// An account at a provider, and what a new user for it would need.
pub struct ProviderAccount<'a> {
    /// The provider's record, as it was when the provider was asked.
    pub provider: &'a Provider,
    /// The `sub` of the account.
    pub subject: &'a str,
    pub profile: &'a Profile,
    /// The UUID for a new user, drawn before the transaction.
    pub uuid: Uuid,
    /// The organization of new users.
    pub organization: &'a str,
}

/// How a provider's account was matched with a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMatch {
    /// It was linked before, and nothing has changed.
    Unchanged,
    /// It was linked before, and the provider's profile has changed.
    Updated,
    /// It has just been linked to an existing user.
    Linked,
    /// The user has just been created.
    Created,
}

/// Decides which user the account belongs to, by the provider's current record. Writes nothing.
///
/// `None` if the provider's policy refuses the user. Also if the provider is disabled or was removed, even if another
/// issuer has its id now.
pub fn find(
    snapshot: &dyn Snapshot,
    account: &ProviderAccount<'_>,
    now: Timestamp,
) -> Result<Option<(User, UserMatch)>, StoreError> {
    let ProviderAccount {
        provider: asked,
        subject,
        profile,
        ..
    } = account;
    let is_same = |registered: &Provider| registered.issuer == asked.issuer && registered.enabled;
    let Some(provider) = PROVIDERS.get(snapshot, &asked.id)?.filter(is_same) else {
        return Ok(None);
    };
    let key = (provider.issuer.clone(), (*subject).to_owned());
    // A link to a removed user does not count.
    let linked = match USERS_BY_IDENTITY.get(snapshot, &key)? {
        Some(uuid) => USERS.get(snapshot, &uuid)?,
        None => None,
    };
    if let Some(mut user) = linked {
        if is_source(&provider, &user) && profile.write_to(&mut user) {
            user.updated_at = now;
            return Ok(Some((user, UserMatch::Updated)));
        }
        return Ok(Some((user, UserMatch::Unchanged)));
    }
    let email_owner = match &profile.email {
        Some(email) => find_by_name(snapshot, email)?,
        None => None,
    };
    let email_owner = match &email_owner {
        Some(user) => Some(to_email_owner(snapshot, user)?),
        None => None,
    };
    let identity = LinkedIdentity {
        issuer: provider.issuer.clone(),
        subject: (*subject).to_owned(),
        provider: provider.id.clone(),
        linked_at: now,
    };
    let (uuid, organization) = (account.uuid, account.organization);
    Ok(
        match decide(&provider, identity, profile, email_owner, uuid, organization, now) {
            AccountDecision::Link(user) => Some((*user, UserMatch::Linked)),
            AccountDecision::Create(mut user) => {
                if find_by_name(snapshot, &user.account_id)?.is_some() {
                    user.account_id = user.uuid.to_string();
                }
                Some((*user, UserMatch::Created))
            }
            AccountDecision::Refused => None,
        },
    )
}

/// Judges the user who has the e-mail address, by the record of the provider that created the user, if one did.
fn to_email_owner<'a>(snapshot: &dyn Snapshot, user: &'a User) -> Result<EmailOwner<'a>, StoreError> {
    let (mut is_email_trusted, mut is_enabled) = (true, user.enabled);
    if user.comes_from_provider() {
        let source = source_of(snapshot, user)?;
        is_enabled &= source.as_ref().is_none_or(|source| source.enabled);
        let email = user.email.as_deref().unwrap_or_default();
        is_email_trusted = source.is_some_and(|source| source.vouches_for(email));
    }
    Ok(EmailOwner {
        user,
        is_email_trusted,
        is_enabled,
    })
}

/// The provider that created the user, if it is still registered, under any id.
fn source_of(snapshot: &dyn Snapshot, user: &User) -> Result<Option<Provider>, StoreError> {
    let all = PROVIDERS.scan(snapshot, .., usize::MAX)?;
    let mut all = all.into_iter().map(|(_, provider)| provider);
    Ok(all.find(|provider| is_source(provider, user)))
}

/// Whether this provider created the user. Issuers are compared: an id may belong to another issuer now, and an
/// issuer may have another id.
fn is_source(provider: &Provider, user: &User) -> bool {
    let mut identities = user.identities.iter();
    let first = identities.find(|identity| identity.provider == user.source);
    first.is_some_and(|identity| identity.issuer == provider.issuer)
}

fn find_by_name(snapshot: &dyn Snapshot, name: &str) -> Result<Option<User>, StoreError> {
    match login_names::owner(snapshot, &LoginName::new(name))? {
        Some(uuid) => USERS.get(snapshot, &uuid),
        None => Ok(None),
    }
}

/// The provider has verified the address of a user to whom its account is linked now. If the account was made without a
/// proof of the address, this is the first one ([`users::prove_address`]).
pub fn prove_address(
    tx: &mut dyn Tx,
    user: &mut User,
    matched: UserMatch,
    now: Timestamp,
) -> Result<EndedByProof, StoreError> {
    if matched != UserMatch::Linked || !user.is_unproven() {
        return Ok(EndedByProof::default());
    }
    let linked_now = user.identities.pop();
    let proof = users::prove_address(tx, user, now)?;
    user.identities.extend(linked_now);
    Ok(proof)
}

/// Stores what [`find`] decided.
pub fn save(tx: &mut dyn Tx, user: &User, matched: UserMatch) -> Result<(), StoreError> {
    if matched == UserMatch::Unchanged {
        return Ok(());
    }
    USERS.put(tx, &user.uuid, user)?;
    for identity in &user.identities {
        let key = (identity.issuer.clone(), identity.subject.clone());
        USERS_BY_IDENTITY.put(tx, &key, &user.uuid)?;
    }
    if matched == UserMatch::Created {
        login_names::give(tx, user)?;
    }
    Ok(())
}

/// Records in the audit log that a user was created or linked.
pub fn record(user: Uuid, matched: UserMatch, provider: &str) {
    match matched {
        UserMatch::Unchanged | UserMatch::Updated => {}
        UserMatch::Linked => audit::record(&Event::IdentityLinked { user, provider }),
        UserMatch::Created => audit::record(&Event::FederatedUserCreated { user, provider }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::provider;
    use crate::admin::provider::{AddProvider, ProviderFields, UpdateProvider};
    use crate::admin::tests::{admin, core};
    use crate::federation::provider::LinkPolicy;
    use crate::flow::Core;

    async fn register(core: &Core, issuer: &str) -> Provider {
        register_as(core, "corp", issuer, LinkPolicy::Never).await
    }

    async fn register_as(core: &Core, id: &str, issuer: &str, link: LinkPolicy) -> Provider {
        let fields = ProviderFields {
            issuer: Some(issuer.to_owned()),
            audiences: Some(vec!["app".to_owned()]),
            exchange: Some(true),
            create_users: Some(true),
            link: Some(link),
            ..ProviderFields::default()
        };
        let id = id.to_owned();
        admin(core)
            .call(AddProvider {
                id,
                client_secret: None,
                fields,
            })
            .await
            .unwrap();
        Provider::clone(core.catalog().provider_of(issuer).unwrap())
    }

    async fn update(core: &Core, provider: &Provider, fields: ProviderFields) {
        let request = UpdateProvider {
            id: provider.id.clone(),
            client_secret: None,
            fields,
        };
        admin(core).call(request).await.unwrap();
    }

    async fn enable(core: &Core, provider: &Provider, enabled: bool) {
        let fields = ProviderFields {
            enabled: Some(enabled),
            ..ProviderFields::default()
        };
        update(core, provider, fields).await;
    }

    async fn arrives(
        core: &Core,
        provider: &Provider,
        subject: &'static str,
        name: &str,
    ) -> Option<(User, UserMatch)> {
        let claims = serde_json::json!({"email": "victim@example.com", "email_verified": true, "name": name});
        let profile = Profile::read(claims.as_object().unwrap(), provider);
        let (provider, uuid, now) = (provider.clone(), core.random.uuid_v4(), core.clock.now());
        let arrived = core.store.write("arrive", move |tx| -> Result<_, StoreError> {
            let account = ProviderAccount {
                provider: &provider,
                subject,
                profile: &profile,
                uuid,
                organization: "org",
            };
            let found = find(&*tx, &account, now)?;
            if let Some((user, matched)) = &found {
                save(tx, user, *matched)?;
            }
            Ok(found)
        });
        arrived.await.unwrap()
    }

    fn is_admitted(core: &Core, provider: &Provider) -> bool {
        let account = ProviderAccount {
            provider,
            subject: "u-1",
            profile: &Profile::default(),
            uuid: core.random.uuid_v4(),
            organization: "org",
        };
        let found = core
            .store
            .read_blocking(|snapshot| find(snapshot, &account, core.clock.now()));
        found.unwrap().is_some()
    }

    #[tokio::test]
    async fn a_removed_provider_admits_no_user_even_if_its_id_is_used_again() {
        let core = core();
        let first = register(&core, "https://a.example").await;
        assert!(is_admitted(&core, &first));
        admin(&core)
            .call(provider::RemoveProvider { id: first.id.clone() })
            .await
            .unwrap();
        assert!(!is_admitted(&core, &first));
        let namesake = register(&core, "https://b.example").await;
        assert!(!is_admitted(&core, &first) && is_admitted(&core, &namesake));
    }

    /// The index has a row for a user without a record.
    #[tokio::test]
    async fn a_link_to_a_removed_user_does_not_prevent_a_sign_in() {
        let core = core();
        let corp = register(&core, "https://a.example").await;
        let (gone, _) = arrives(&core, &corp, "u-1", "Alice").await.unwrap();
        let removed = core
            .store
            .write("test_removal", move |tx| USERS.remove(tx, &gone.uuid));
        assert!(removed.await.unwrap());
        let (user, matched) = arrives(&core, &corp, "u-1", "Alice").await.unwrap();
        assert!(matched == UserMatch::Created && user.uuid != gone.uuid);
        let (again, matched) = arrives(&core, &corp, "u-1", "Alice").await.unwrap();
        assert!(matched == UserMatch::Unchanged && again.uuid == user.uuid);
    }

    /// The id of a provider may be given to another issuer, which did not vouch for the users of the first one.
    #[tokio::test]
    async fn a_provider_does_not_vouch_for_users_that_another_issuer_created() {
        let core = core();
        let first = register(&core, "https://a.example").await;
        let (waiting, _) = arrives(&core, &first, "evil", "First").await.unwrap();
        assert_eq!(waiting.source, "corp");
        let fields = ProviderFields {
            issuer: Some("https://b.example".to_owned()),
            link: Some(LinkPolicy::VerifiedEmail),
            ..ProviderFields::default()
        };
        update(&core, &first, fields).await;
        let second = Provider::clone(core.catalog().provider("corp").unwrap());
        let (user, matched) = arrives(&core, &second, "victim", "Second").await.unwrap();
        assert_eq!(matched, UserMatch::Created);
        assert_ne!(user.uuid, waiting.uuid);
        let (user, matched) = arrives(&core, &second, "victim", "Third").await.unwrap();
        assert_eq!(
            (matched, &user.claims["name"]),
            (UserMatch::Updated, &"Third".into())
        );
    }

    /// If such a user were linked to another account, both accounts would sign in to it once the provider is enabled
    /// again.
    #[tokio::test]
    async fn a_user_of_a_disabled_provider_is_neither_linked_nor_created_again() {
        let core = core();
        let policy = LinkPolicy::VerifiedEmail;
        let evil = register_as(&core, "evil", "https://evil.example", policy).await;
        let good = register_as(&core, "good", "https://good.example", policy).await;
        let (waiting, _) = arrives(&core, &evil, "evil", "Evil").await.unwrap();
        enable(&core, &evil, false).await;
        assert!(arrives(&core, &good, "victim", "Victim").await.is_none());
        assert!(arrives(&core, &evil, "evil", "Evil").await.is_none());
        enable(&core, &evil, true).await;
        let (user, matched) = arrives(&core, &good, "victim", "Victim").await.unwrap();
        assert_eq!((user.uuid, matched), (waiting.uuid, UserMatch::Linked));
    }

    /// So do the settings of its record: whether their addresses are verified, and whether it is enabled.
    #[tokio::test]
    async fn users_stay_with_their_issuer_when_the_provider_gets_another_id() {
        let core = core();
        let policy = LinkPolicy::VerifiedEmail;
        let first = register_as(&core, "corp", "https://a.example", policy).await;
        let (user, _) = arrives(&core, &first, "u-1", "First").await.unwrap();
        admin(&core)
            .call(provider::RemoveProvider { id: first.id.clone() })
            .await
            .unwrap();
        let again = register_as(&core, "next", "https://a.example", policy).await;
        let (later, matched) = arrives(&core, &again, "u-1", "Second").await.unwrap();
        assert_eq!((later.uuid, matched), (user.uuid, UserMatch::Updated));
        assert_eq!(
            (&later.claims["name"], &*later.source),
            (&"Second".into(), "corp")
        );
        let other = register_as(&core, "other", "https://b.example", policy).await;
        enable(&core, &again, false).await;
        assert!(arrives(&core, &other, "u-2", "Other").await.is_none());
        enable(&core, &again, true).await;
        let (linked, matched) = arrives(&core, &other, "u-2", "Other").await.unwrap();
        assert_eq!((linked.uuid, matched), (user.uuid, UserMatch::Linked));
    }
}
