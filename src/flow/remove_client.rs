//! Removes a client. Its grants and consents end with it: see [`crate::flow::grant_policy`].

use crate::oauth::Client;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::{API_KEY_USES, APIS, CLIENT_SECRET_USES, CLIENTS};

/// Removes a client, and the uses of its secrets and API keys. It is also removed from the introspection clients of APIs, because a
/// new client of the same name must not introspect their tokens.
pub fn remove_client(tx: &mut dyn Tx, client: &Client) -> Result<(), StoreError> {
    CLIENTS.remove(tx, &client.client_id)?;
    for (id, mut api) in APIS.scan(&*tx, .., usize::MAX)? {
        if api.metadata.introspection_clients.remove(&client.client_id) {
            APIS.put(tx, &id, &api)?;
        }
    }
    CLIENT_SECRET_USES.remove(tx, &client.client_id)?;
    for key in &client.api_keys {
        API_KEY_USES.remove(tx, &key.id)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::admin::apply::clients::DeclaredClient;
    use crate::admin::apply::providers::DeclaredProvider;
    use crate::admin::apply::{Apply, DeclaredState};
    use crate::admin::provider::{ProviderFields, UpdateProvider};
    use crate::admin::tests::{admin, core_on};
    use crate::admin::{client, provider};
    use crate::flow::Core;
    use crate::flow::grant_policy::{has_ended, has_lost_provider};
    use crate::flow::sweep::{Cursor, sweep};
    use crate::identity::{AuthenticationMethod, Consent, Device, Session};
    use crate::oauth::ClientFields;
    use crate::oauth::code::Authorization;
    use crate::oauth::openid::claims::ClaimsRequest;
    use crate::oauth::refresh::RefreshFamily;
    use crate::oauth::refresh_keys::RefreshKeys;
    use crate::oauth::resource::Resources;
    use crate::oauth::scope::Scope;
    use crate::secret::Digest;
    use crate::store::engine::counted;
    use crate::store::engine::counted::{CountedStore, Passes};
    use crate::store::tables::{CONSENTS, FAMILIES, PROVIDERS, SESSIONS, SESSIONS_BY_USER};

    const NAMES: [&str; 4] = ["kept", "one", "three", "two"];
    const OUTSIDE: &str = "nobody";
    const WITH_GRANTS: [&str; 4] = ["sessions", "families", "codes", "consents"];

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
        let CountedStore { store, passes } = counted::store();
        let core = core_on(store);
        let providers = NAMES.map(|name| (name, name));
        admin(&core).call(declared(&NAMES, &providers)).await.unwrap();
        let (now, lifetimes, catalog) = (core.clock.now(), core.policy.lifetimes, core.catalog());
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
                            incarnation: catalog.provider(provider).unwrap().incarnation,
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
                        let record = catalog.client(client).unwrap();
                        let authorization = Authorization {
                            client_id: client.to_owned(),
                            client_incarnation: record.incarnation,
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
                            actor: None,
                        };
                        let id = next();
                        let keys = RefreshKeys::new([(1, vec![1; 32].into())]);
                        let first = keys.first_token(id, [2; 16]).unwrap();
                        let family = RefreshFamily::start(&first, authorization, &record, &lifetimes, now);
                        FAMILIES.put(tx, &id, &family)?;
                        let consent = Consent {
                            scope: "openid".to_owned(),
                            client_incarnation: record.incarnation,
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
        WITH_GRANTS
            .iter()
            .map(|table| counted.get(table).copied().unwrap_or_default())
            .collect()
    }

    /// The families that have not ended: the client of each, and its provider.
    fn alive(core: &Core) -> Vec<(String, String)> {
        core.store
            .read_blocking(|snapshot| {
                let mut alive = Vec::new();
                for (_, family) in FAMILIES.scan(snapshot, .., usize::MAX)? {
                    let granted = family.authorization;
                    let client = CLIENTS.get(snapshot, &granted.client_id)?;
                    if !has_ended(snapshot, client.as_ref(), &granted)? {
                        let vouched = granted.factor.provider().unwrap_or(OUTSIDE).to_owned();
                        alive.push((granted.client_id, vouched));
                    }
                }
                Ok(alive)
            })
            .unwrap()
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter()
            .map(|(client, by)| ((*client).to_owned(), (*by).to_owned()))
            .collect()
    }

    #[tokio::test]
    async fn grants_end_without_a_look_at_them_and_the_sweep_removes_their_rows() {
        let (core, passes) = clients_and_providers_with_grants().await;
        let left = declared(&["kept"], &[("kept", "kept"), ("one", "elsewhere")]);
        admin(&core).call(left).await.unwrap();
        // Clients and providers of the same names inherit nothing.
        let again = declared(&NAMES, &NAMES.map(|name| (name, name)));
        admin(&core).call(again).await.unwrap();
        assert_eq!(passes_of(&passes), [0; 4]);
        assert_eq!(alive(&core), pairs(&[("kept", "kept"), ("kept", OUTSIDE)]));

        core.clock.advance(core.policy.lifetimes.session.absolute);
        let mut cursor = Cursor::default();
        while sweep(&core, &mut cursor, core.clock.now()).await.unwrap().more {}
        let (families, sessions, consents) = core
            .store
            .read_blocking(|snapshot| {
                Ok((
                    FAMILIES.count(snapshot)?,
                    SESSIONS.count(snapshot)?,
                    CONSENTS.scan(snapshot, .., usize::MAX)?,
                ))
            })
            .unwrap();
        assert_eq!((families, sessions), (2, 0), "the other sessions are over");
        assert_eq!(consents.len(), NAMES.len() + 1);
        assert!(consents.iter().all(|((_, client), _)| client == "kept"));
    }

    #[tokio::test]
    async fn only_another_issuer_ends_what_began_at_a_provider() {
        let (core, passes) = clients_and_providers_with_grants().await;
        admin(&core)
            .call(client::RemoveClient {
                client_id: "one".to_owned(),
            })
            .await
            .unwrap();
        assert!(alive(&core).iter().all(|(client, _)| client != "one"));
        admin(&core)
            .call(provider::RemoveProvider { id: "one".to_owned() })
            .await
            .unwrap();
        let update = |fields| UpdateProvider {
            id: "two".to_owned(),
            client_secret: None,
            fields,
        };
        let renamed = ProviderFields {
            name: Some("Two".to_owned()),
            ..ProviderFields::default()
        };
        admin(&core).call(update(renamed)).await.unwrap();
        assert!(alive(&core).iter().any(|(_, by)| by == "two"));
        for issuer in ["https://moved.example", "https://two.example"] {
            let moved = ProviderFields {
                issuer: Some(issuer.to_owned()),
                ..ProviderFields::default()
            };
            admin(&core).call(update(moved)).await.unwrap();
        }
        assert_eq!(passes_of(&passes), [0; 4]);
        let left: BTreeMap<_, usize> = alive(&core)
            .into_iter()
            .fold(BTreeMap::new(), |mut left, (_, by)| {
                *left.entry(by).or_default() += 1;
                left
            });
        let expected = [("kept", 3), (OUTSIDE, 3), ("three", 3)].map(|(by, count)| (by.to_owned(), count));
        assert_eq!(left, BTreeMap::from(expected));
        let lost: Vec<_> = core
            .store
            .read_blocking(|snapshot| {
                let mut lost = Vec::new();
                for (_, session) in SESSIONS.scan(snapshot, .., usize::MAX)? {
                    if has_lost_provider(snapshot, &session.factor)? {
                        lost.push(session.factor.provider().unwrap_or_default().to_owned());
                    }
                }
                Ok(lost)
            })
            .unwrap();
        assert_eq!(lost, ["one", "two"]);
    }

    /// The rows of a release without incarnations.
    #[tokio::test]
    async fn grants_of_an_older_release_stay_until_their_client_or_provider_is_removed() {
        let (core, _) = clients_and_providers_with_grants().await;
        let written = core
            .store
            .write("test_older_release", |tx| -> Result<_, StoreError> {
                for name in NAMES {
                    let mut client = CLIENTS.get(&*tx, name)?.unwrap();
                    client.incarnation = Uuid::nil();
                    CLIENTS.put(tx, name, &client)?;
                    let mut provider = PROVIDERS.get(&*tx, name)?.unwrap();
                    provider.incarnation = Uuid::nil();
                    PROVIDERS.put(tx, name, &provider)?;
                }
                for (id, mut family) in FAMILIES.scan(&*tx, .., usize::MAX)? {
                    let granted = &mut family.authorization;
                    granted.client_incarnation = Uuid::nil();
                    if let AuthenticationMethod::Federated { incarnation, .. } = &mut granted.factor {
                        *incarnation = Uuid::nil();
                    }
                    FAMILIES.put(tx, &id, &family)?;
                }
                Ok(())
            });
        written.await.unwrap();
        core.reload_catalog().await.unwrap();
        let all = NAMES.len() * (NAMES.len() + 1);
        assert_eq!(alive(&core).len(), all);
        // A change keeps the record.
        let renamed = declared(&NAMES, &NAMES.map(|name| (name, name)));
        admin(&core).call(renamed.clone()).await.unwrap();
        admin(&core)
            .call(client::EnableClient {
                client_id: "two".to_owned(),
            })
            .await
            .unwrap();
        assert_eq!(alive(&core).len(), all);
        let left = declared(&["kept"], &[("kept", "kept")]);
        admin(&core).call(left).await.unwrap();
        admin(&core).call(renamed).await.unwrap();
        assert_eq!(alive(&core), pairs(&[("kept", "kept"), ("kept", OUTSIDE)]));
    }
}
