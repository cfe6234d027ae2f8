//! A client registers itself, and reads, changes and removes its registration: RFC 7591, RFC 7592.

use std::net::IpAddr;

use uuid::Uuid;

use super::client_check::{ClientRules, apply};
use super::client_room::ClientRoom;
use super::remove_client::remove_client;
use super::{Core, FlowError};
use crate::clock::Timestamp;
use crate::limit::network::customer_of;
use crate::oauth::client::{Client, ClientOrigin, Holder, Registration, StoredSecret};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::registration::{self, RequestedChange, RequestedMetadata};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{ClientSecret, Digest, InitialAccessToken, RegistrationAccessToken, Secret};
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{CLIENTS, INITIAL_ACCESS_TOKENS};
use crate::store::{StoreError, TxError};

/// The answer to an initial access token that is unknown, expired or used up.
pub const INITIAL_TOKEN_REFUSED: Refusal = Refusal::new(
    ErrorCode::InvalidToken,
    "the initial access token is unknown, expired or used up",
);
/// The answer to a registration access token that does not belong to the client (RFC 7592 section 2.1).
pub const ACCESS_TOKEN_REFUSED: Refusal = Refusal::new(
    ErrorCode::InvalidToken,
    "the registration access token does not belong to this client",
);
const REDIRECT_URI_ADDED: Refusal = Refusal::new(
    ErrorCode::InvalidRedirectUri,
    "users have given consent for the registered redirect URIs; to add one, register another client",
);
const FULL: Refusal = Refusal::new(
    ErrorCode::TemporarilyUnavailable,
    "there is no room for one more client, or for a larger one: those that registered themselves keep their places",
);

/// A registered client, with the secrets that only this answer shows.
pub struct ClientInformation {
    pub client: Client,
    pub client_secret: Option<Secret<ClientSecret>>,
    /// The token with which it reads and changes its registration.
    pub access_token: Secret<RegistrationAccessToken>,
}

/// Replaces the metadata of a client. `new_secret` is for a client that needs a secret and has none.
fn replace_metadata(
    rules: &ClientRules,
    requested: &RequestedMetadata,
    before: Option<&Client>,
    mut client: Client,
    new_secret: Option<&StoredSecret>,
) -> Result<Client, Refusal> {
    let mut faults = Vec::new();
    let fields = requested.fields(&rules.allowed_scope(&client));
    apply(fields, &mut client, &mut faults);
    client.token_endpoint_auth_methods = [requested.auth_method()].into();
    if !client.uses_secret() {
        client.secrets.clear();
    } else if client.secrets.is_empty() {
        client.secrets.extend(new_secret.cloned());
    }
    rules.check(before, &client, &mut faults);
    match registration::refusal_of(&faults) {
        Some(refusal) => Err(refusal),
        None => Ok(client),
    }
}

/// The client as its metadata document describes it. `client` is the record before the change.
pub(in crate::flow) fn describe(
    core: &Core,
    document: &RequestedMetadata,
    client: Client,
) -> Result<Client, Refusal> {
    replace_metadata(&ClientRules::for_client(core), document, None, client, None)
}

fn draw_secret(core: &Core, now: Timestamp) -> (StoredSecret, Secret<ClientSecret>) {
    let secret = Secret::generate(&[], &core.random);
    let stored = StoredSecret {
        digest: secret.digest(),
        created_at: now,
        expires_at: None,
    };
    (stored, secret)
}

/// Registers a client (RFC 7591 section 3). `token` is the initial access token, if one is required. One transaction
/// counts its use and stores the client, so a refused registration uses up nothing.
pub async fn register(
    core: &Core,
    body: &[u8],
    token: Option<&Secret<InitialAccessToken>>,
    from: IpAddr,
    now: Timestamp,
) -> Result<ClientInformation, FlowError> {
    let token = token.map(|token| {
        (
            Uuid::from_slice(token.locator()).unwrap_or_default(),
            token.digest(),
        )
    });
    core.store
        .read(|snapshot| check_initial_token(snapshot, token.as_ref(), now))
        .await?;
    let requested = RequestedMetadata::parse(body)?;
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let access_token = Secret::generate(&[], &core.random);
    let (stored_secret, client_secret) = draw_secret(core, now);
    let client = Client {
        origin: ClientOrigin::DynamicRegistration,
        registration: Some(Registration {
            access_token: access_token.digest(),
            is_used: false,
            is_removed: false,
        }),
        held_by: Some(Holder::Sender(sender(
            core,
            token.as_ref().map(|(id, _)| *id),
            from,
        ))),
        ..Client::new(&uuid.to_string(), uuid, core.random.uuid_v4(), false, now)
    };
    let rules = ClientRules::for_client(core);
    let client = replace_metadata(&rules, &requested, None, client, Some(&stored_secret))?;
    let room = ClientRoom::of(core);
    let (row, room_in_tx) = (client.clone(), room.clone());
    let written = core
        .store
        .write("register_client", move |tx| -> Result<_, TxError<Refusal>> {
            check_initial_token(&*tx, token.as_ref(), now)?;
            if !room_in_tx.put(tx, &row)? {
                return Err(FULL.into());
            }
            match &token {
                Some((id, _)) => Ok(use_initial_token(tx, id)?),
                None => Ok(()),
            }
        })
        .await;
    let settled = room.settle(core, &client.client_id).await;
    written?;
    settled?;
    audit::record(&Event::ClientRegistered {
        client_id: &client.client_id,
        name: client.own_name(),
        from,
        token: token.map(|(id, _)| id),
    });
    Ok(ClientInformation {
        client_secret: client.uses_secret().then_some(client_secret),
        client,
        access_token,
    })
}

/// Who holds the place of a new client: the initial access token, or the network.
fn sender(core: &Core, token: Option<Uuid>, from: IpAddr) -> Uuid {
    match token {
        Some(token) => core.sealer.pseudonym("initial access token", token.as_bytes()),
        None => core
            .sealer
            .pseudonym("network", customer_of(from).to_string().as_bytes()),
    }
}

/// Refuses a token that does not allow a registration now. `token` is `None` if the service requires none.
fn check_initial_token(
    snapshot: &dyn Snapshot,
    token: Option<&(Uuid, Digest<InitialAccessToken>)>,
    now: Timestamp,
) -> Result<(), TxError<Refusal>> {
    let Some((id, digest)) = token else {
        return Ok(());
    };
    let stored = INITIAL_ACCESS_TOKENS.get(snapshot, id)?;
    let is_accepted = stored.is_some_and(|stored| stored.accepts(digest, now));
    if is_accepted {
        Ok(())
    } else {
        Err(INITIAL_TOKEN_REFUSED.into())
    }
}

fn use_initial_token(tx: &mut dyn Tx, id: &Uuid) -> Result<(), StoreError> {
    if let Some(mut stored) = INITIAL_ACCESS_TOKENS.get(&*tx, id)?
        && let Some(left) = stored.uses_left
    {
        stored.uses_left = Some(left.saturating_sub(1));
        INITIAL_ACCESS_TOKENS.put(tx, id, &stored)?;
    }
    Ok(())
}

/// The client, if the token is that of its registration (RFC 7592 section 2.1).
fn authorized(
    snapshot: &dyn Snapshot,
    client_id: &str,
    token: &Digest<RegistrationAccessToken>,
) -> Result<Client, TxError<Refusal>> {
    let is_its = |client: &Client| {
        let registration = client.registration.as_ref();
        client.enabled && registration.is_some_and(|registration| registration.access_token == *token)
    };
    let client = CLIENTS.get(snapshot, client_id)?;
    Ok(client.filter(is_its).ok_or(ACCESS_TOKEN_REFUSED)?)
}

/// The registration of a client (RFC 7592 section 2.1).
pub async fn read(
    core: &Core,
    client_id: &str,
    access_token: Secret<RegistrationAccessToken>,
) -> Result<ClientInformation, FlowError> {
    let digest = access_token.digest();
    let client = core
        .store
        .read(|snapshot| authorized(snapshot, client_id, &digest))
        .await?;
    Ok(ClientInformation {
        client,
        client_secret: None,
        access_token,
    })
}

/// Replaces the metadata of a client (RFC 7592 section 2.2). After a user has given consent, no redirect URI can be
/// added, because users allowed access only to the host that the consent page showed.
pub async fn change(
    core: &Core,
    client_id: &str,
    access_token: Secret<RegistrationAccessToken>,
    body: &[u8],
    from: IpAddr,
    now: Timestamp,
) -> Result<ClientInformation, FlowError> {
    let digest = access_token.digest();
    let before = core
        .store
        .read(|snapshot| authorized(snapshot, client_id, &digest))
        .await?;
    let change = RequestedChange::parse(body, client_id)?;
    let (requested, named_secret) = (change.metadata, change.secret);
    if named_secret.is_some_and(|secret| !before.accepts_secret(&Digest::of(secret.as_bytes()), now)) {
        return Err(Refusal::new(
            ErrorCode::InvalidClientMetadata,
            "client_secret is not the current secret of this client",
        )
        .into());
    }
    let (stored_secret, client_secret) = draw_secret(core, now);
    let new_digest = stored_secret.digest;
    let (rules, id) = (ClientRules::for_client(core), client_id.to_owned());
    let room = ClientRoom::of(core);
    let room_in_tx = room.clone();
    let written = core
        .store
        .write("change_registration", move |tx| -> Result<_, TxError<Refusal>> {
            let before = authorized(&*tx, &id, &digest)?;
            let secret = Some(&stored_secret);
            let mut client = replace_metadata(&rules, &requested, Some(&before), before.clone(), secret)?;
            client.updated_at = now;
            let is_known = |uri| before.redirect_uris.contains(uri);
            if !before.is_never_used() && !client.redirect_uris.iter().all(is_known) {
                return Err(REDIRECT_URI_ADDED.into());
            }
            if !room_in_tx.put(tx, &client)? {
                return Err(FULL.into());
            }
            Ok(client)
        })
        .await;
    let settled = room.settle(core, client_id).await;
    let client = written?;
    settled?;
    audit::record(&Event::ClientRegistrationChanged { client_id, from });
    let is_new = client.secrets.iter().any(|secret| secret.digest == new_digest);
    Ok(ClientInformation {
        client,
        client_secret: is_new.then_some(client_secret),
        access_token,
    })
}

/// Removes a client (RFC 7592 section 2.3). If a user has given consent to the client, it is disabled, and the next
/// sweep removes it and its grants. The sweep reads all grants of the service, so strangers must not be able to start
/// it.
pub async fn remove(
    core: &Core,
    client_id: &str,
    access_token: &Secret<RegistrationAccessToken>,
    now: Timestamp,
) -> Result<(), FlowError> {
    let (digest, id) = (access_token.digest(), client_id.to_owned());
    let written = core
        .store
        .write("remove_registration", move |tx| -> Result<_, TxError<Refusal>> {
            let mut client = authorized(&*tx, &id, &digest)?;
            let name = client.own_name().map(str::to_owned);
            if client.is_never_used() {
                remove_client(tx, &client)?;
                return Ok(name);
            }
            client.enabled = false;
            client.updated_at = now;
            if let Some(registration) = &mut client.registration {
                registration.is_removed = true;
            }
            CLIENTS.put(tx, &id, &client)?;
            Ok(name)
        })
        .await;
    let reloaded = core.reload_clients(&[client_id.to_owned()]).await;
    let name = written?;
    reloaded?;
    audit::record(&Event::ClientRegistrationRemoved {
        client_id,
        name: name.as_deref(),
        reason: "request",
    });
    Ok(())
}

/// Whether the record of the client may change when a user allows it ([`record_user`]).
pub(in crate::flow) fn notes_users(client: &Client) -> bool {
    client.registration.is_some() && client.held_by != Some(Holder::Users)
}

/// Records that the user with this pseudonym allows the client.
pub(in crate::flow) fn record_user(tx: &mut dyn Tx, client_id: &str, user: Uuid) -> Result<(), StoreError> {
    let Some(mut client) = CLIENTS.get(&*tx, client_id)? else {
        return Ok(());
    };
    let held_by = Some(Holder::with_user(client.held_by, user));
    if let Some(registration) = &mut client.registration
        && !(registration.is_used && client.held_by == held_by)
    {
        registration.is_used = true;
        client.held_by = held_by;
        CLIENTS.put(tx, client_id, &client)?;
    }
    Ok(())
}
