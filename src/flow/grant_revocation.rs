//! Ends what was granted to a client, or on the word of a provider, when that client or provider is removed.

use std::collections::BTreeSet;

use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::identity::AuthenticationMethod;
use crate::oauth::client::Client;
use crate::oauth::code::Authorization;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::{API_KEY_USES, APIS, CLIENTS, CONSENTS, FAMILIES, SESSIONS};

/// The clients and providers whose grants end in one transaction.
///
/// Their names may be given to other clients or providers, which must not inherit these grants. So the grants end in
/// the transaction of the removal, even if they are many, and no crash comes between.
#[derive(Debug, Default)]
pub struct GrantRevocation {
    clients: BTreeSet<String>,
    providers: BTreeSet<String>,
}

impl GrantRevocation {
    /// Adds what was granted to this client.
    pub fn add_client(&mut self, client_id: &str) {
        self.clients.insert(client_id.to_owned());
    }

    /// Removes a client, and adds its grants. It is also removed from the introspection clients of APIs, because a new
    /// client of the same name must not introspect their tokens.
    pub fn remove_client(&mut self, tx: &mut dyn Tx, client: &Client) -> Result<(), StoreError> {
        CLIENTS.remove(tx, &client.client_id)?;
        for (id, mut api) in APIS.scan(&*tx, .., usize::MAX)? {
            if api.metadata.introspection_clients.remove(&client.client_id) {
                APIS.put(tx, &id, &api)?;
            }
        }
        for key in &client.api_keys {
            API_KEY_USES.remove(tx, &key.id)?;
        }
        self.add_client(&client.client_id);
        Ok(())
    }

    /// Adds what began at this provider.
    pub fn add_provider(&mut self, id: &str) {
        self.providers.insert(id.to_owned());
    }

    /// Ends sessions, refresh families, codes and consents.
    ///
    /// Reads each of these tables once, however many clients and providers there are. There is no index for this,
    /// since it happens once in the life of a client or a provider.
    pub fn execute(&self, tx: &mut dyn Tx, now: Timestamp) -> Result<(), StoreError> {
        let is_vouched =
            |factor: &AuthenticationMethod| factor.provider().is_some_and(|id| self.providers.contains(id));
        let is_meant = |authorization: &Authorization| {
            self.clients.contains(&authorization.client_id) || is_vouched(&authorization.factor)
        };
        if !self.providers.is_empty() {
            for id in SESSIONS.keys_where(&*tx, |_, session| is_vouched(&session.factor))? {
                if let Some(session) = SESSIONS.get(&*tx, &id)? {
                    session::end(tx, id, &session, now)?;
                }
            }
        }
        if !self.clients.is_empty() {
            for key in CONSENTS.keys_where(&*tx, |(_, client), _| self.clients.contains(client))? {
                CONSENTS.remove(tx, &key)?;
            }
        }
        if self.clients.is_empty() && self.providers.is_empty() {
            return Ok(());
        }
        let families = FAMILIES.keys_where(&*tx, |_, family| {
            family.revoked_at.is_none() && is_meant(&family.authorization)
        });
        for id in families? {
            session::end_family(tx, id, now)?;
        }
        session::forget_codes(tx, now, is_meant).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::admin::apply::clients::DeclaredClient;
    use crate::admin::apply::providers::DeclaredProvider;
    use crate::admin::apply::{Apply, DeclaredState, apply};
    use crate::admin::provider::{ProviderFields, UpdateProvider};
    use crate::admin::tests::{admin, core_on};
    use crate::admin::{client, provider};
    use crate::flow::Core;
    use crate::identity::{Consent, Device, Session};
    use crate::oauth::ClientFields;
    use crate::oauth::openid::claims::ClaimsRequest;
    use crate::oauth::refresh::RefreshFamily;
    use crate::oauth::refresh_keys::RefreshKeys;
    use crate::oauth::resource::Resources;
    use crate::oauth::scope::Scope;
    use crate::secret::Digest;
    use crate::store::engine::counted;
    use crate::store::engine::counted::Passes;
    use crate::store::tables::SESSIONS_BY_USER;

    const NAMES: [&str; 4] = ["kept", "one", "three", "two"];
    const OUTSIDE: &str = "nobody";
    /// Of the codes, only those of the last minutes are read.
    const REVOKED_FROM: [&str; 4] = ["sessions", "families", "codes", "consents"];

    fn declared(clients: &[&str], providers: &[(&str, &str)]) -> Apply {
        let client = |id: &&str| DeclaredClient {
            client_id: (*id).to_owned(),
            fields: ClientFields {
                redirect_uris: Some(vec!["https://app.example/cb".to_owned()]),
                ..ClientFields::default()
            },
            ..DeclaredClient::default()
        };
        let provider = |(id, issuer): &(&str, &str)| DeclaredProvider {
            id: (*id).to_owned(),
            fields: ProviderFields {
                issuer: Some(format!("https://{issuer}.example")),
                exchange: Some(true),
                audiences: Some(vec!["us".to_owned()]),
                ..ProviderFields::default()
            },
            ..DeclaredProvider::default()
        };
        Apply {
            state: DeclaredState {
                provider: Some(providers.iter().map(provider).collect()),
                client: Some(clients.iter().map(client).collect()),
                ..DeclaredState::default()
            },
            dry_run: false,
            prune: true,
            ..Apply::default()
        }
    }

    /// Clients and providers of the same names. Each client has a family by password, one by each provider, and a
    /// consent. Each provider has vouched for a session.
    async fn clients_and_providers_with_grants() -> (Core, Passes) {
        let (store, passes) = counted::store();
        let core = core_on(store);
        let providers = NAMES.map(|name| (name, name));
        apply(admin(&core), declared(&NAMES, &providers)).await.unwrap();
        let (now, lifetimes) = (core.clock.now(), core.policy.lifetimes);
        core.store
            .write_blocking("seed", move |tx| {
                let mut id = 0_u128;
                let mut next = || {
                    id += 1;
                    Uuid::from_u128(id)
                };
                for provider in NAMES.into_iter().chain([OUTSIDE]) {
                    let factor = match provider {
                        OUTSIDE => AuthenticationMethod::Password,
                        provider => AuthenticationMethod::Federated {
                            provider: provider.to_owned(),
                        },
                    };
                    let (session, user) = (next(), next());
                    let began = Session {
                        digest: Digest::of(b"cookie"),
                        user,
                        auth_time: Some(now),
                        was_asked_anew: false,
                        factor: factor.clone(),
                        second_factor: None,
                        created_at: now,
                        last_used_at: now,
                        device: Device::default(),
                    };
                    SESSIONS.put(tx, &session, &began)?;
                    SESSIONS_BY_USER.put(tx, &(user, session), &())?;
                    for client in NAMES {
                        let authorization = Authorization {
                            client_id: client.to_owned(),
                            user,
                            session: None,
                            auth_time: Some(now),
                            factor: factor.clone(),
                            second_factor: None,
                            upstream_token: None,
                            scope: Scope::default(),
                            resources: Resources::new(),
                            claims: ClaimsRequest::default(),
                            bound_to: None,
                        };
                        let id = next();
                        let keys = RefreshKeys::new([(1, vec![1; 32].into())]);
                        let first = keys.first_token(id, [2; 16]).unwrap();
                        let record = Client::new(client, Uuid::nil(), Uuid::nil(), false, now);
                        let family = RefreshFamily::start(&first, authorization, &record, &lifetimes, now);
                        FAMILIES.put(tx, &id, &family)?;
                        let consent = Consent {
                            scope: "openid".to_owned(),
                            given_at: now,
                        };
                        CONSENTS.put(tx, &(user, client.to_owned()), &consent)?;
                    }
                }
                Ok(())
            })
            .unwrap();
        passes.lock().unwrap().clear();
        (core, passes)
    }

    /// How often each table with grants was read since the last call.
    fn passes_of(passes: &Passes) -> Vec<usize> {
        let counted = std::mem::take(&mut *passes.lock().unwrap());
        REVOKED_FROM
            .iter()
            .map(|table| counted.get(table).copied().unwrap_or_default())
            .collect()
    }

    /// The live families: the client of each, and its provider.
    fn alive(core: &Core) -> Vec<(String, String)> {
        let families = core
            .store
            .read_blocking(|snapshot| FAMILIES.scan(snapshot, .., usize::MAX));
        let families = families.unwrap().into_iter();
        families
            .filter(|(_, family)| family.revoked_at.is_none())
            .map(|(_, family)| family.authorization)
            .map(|granted| {
                let vouched = granted.factor.provider().unwrap_or(OUTSIDE).to_owned();
                (granted.client_id, vouched)
            })
            .collect()
    }

    #[tokio::test]
    async fn each_table_is_read_once_however_many_are_removed() {
        let (core, passes) = clients_and_providers_with_grants().await;
        let left = declared(&["kept"], &[("kept", "kept"), ("one", "elsewhere")]);
        apply(admin(&core), left.clone()).await.unwrap();
        assert_eq!(passes_of(&passes), [1, 1, 0, 1]);
        let pairs = |all: &[(&str, &str)]| -> Vec<_> {
            all.iter()
                .map(|(client, by)| ((*client).to_owned(), (*by).to_owned()))
                .collect()
        };
        assert_eq!(alive(&core), pairs(&[("kept", "kept"), ("kept", OUTSIDE)]));
        let (sessions, consents) = core
            .store
            .read_blocking(|snapshot| {
                Ok((
                    SESSIONS.scan(snapshot, .., usize::MAX)?,
                    CONSENTS.scan(snapshot, .., usize::MAX)?,
                ))
            })
            .unwrap();
        let vouched: Vec<_> = sessions
            .iter()
            .map(|(_, session)| session.factor.provider())
            .collect();
        assert_eq!(vouched, [Some("kept"), None]);
        assert_eq!(consents.len(), NAMES.len() + 1);
        assert!(consents.iter().all(|((_, client), _)| client == "kept"));
        apply(admin(&core), left).await.unwrap();
        assert_eq!(passes_of(&passes), [0; 4], "nothing is removed");
    }

    #[tokio::test]
    async fn a_removal_reads_only_the_tables_that_can_have_its_grants() {
        let (core, passes) = clients_and_providers_with_grants().await;
        client::remove(admin(&core), "one".to_owned()).await.unwrap();
        assert_eq!(passes_of(&passes), [0, 1, 0, 1]);
        assert!(alive(&core).iter().all(|(client, _)| client != "one"));
        provider::remove(admin(&core), "one".to_owned()).await.unwrap();
        assert_eq!(passes_of(&passes), [1, 1, 0, 0]);
        let update = |fields| UpdateProvider {
            id: "two".to_owned(),
            client_secret: None,
            fields,
        };
        let renamed = ProviderFields {
            name: Some("Two".to_owned()),
            ..ProviderFields::default()
        };
        provider::update(admin(&core), update(renamed)).await.unwrap();
        assert_eq!(passes_of(&passes), [0; 4]);
        let moved = ProviderFields {
            issuer: Some("https://moved.example".to_owned()),
            ..ProviderFields::default()
        };
        provider::update(admin(&core), update(moved)).await.unwrap();
        assert_eq!(passes_of(&passes), [1, 1, 0, 0]);
        let left: BTreeMap<_, usize> = alive(&core)
            .into_iter()
            .fold(BTreeMap::new(), |mut left, (_, by)| {
                *left.entry(by).or_default() += 1;
                left
            });
        let expected = [("kept", 3), (OUTSIDE, 3), ("three", 3)].map(|(by, count)| (by.to_owned(), count));
        assert_eq!(left, BTreeMap::from(expected));
    }
}
