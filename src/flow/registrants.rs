//! The clients that nobody vouches for, in memory: those that registered themselves, and those that have a metadata
//! document.
//!
//! Anyone can make one, so they have a share of the memory. They are kept as the bytes of their rows. A row is decoded
//! when a request names its client, and the clients that were decoded last are kept as well.
//!
//! If there is no room for one more, it takes the place of another: the oldest one that no user has allowed, of the sender
//! who holds most of these. If users have allowed all, it is the oldest one of the user who holds most. A client that two
//! users have allowed is held by the first of them, and goes after the others of this user. The last client of a user goes
//! after those that users hold beside another, and only if no second user has allowed it. A client of three or more users
//! never goes.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::oauth::Client;
use crate::oauth::client::{ClientOrigin, Holder};
#[cfg(feature = "postgres")]
use crate::store::catalog_use::note_count;
use crate::store::record::Record;

/// The part of the room that the rows of decoded clients may have. A client takes several times the memory of its row.
const DECODED_PART: usize = 32;
/// The memory of a client beside its row: its entries in the maps.
const ENTRY_BYTES: usize = 320;
/// The memory that an origin takes in the map of origins.
const ORIGIN_BYTES: usize = 32;
/// The most clients whose place one newcomer takes. A row has at most 16 KiB.
const MOST_REPLACED: usize = 32;
/// So many registrations may be under way at all nodes together.
const MOST_AT_ONCE: usize = 1000;

/// The clients that nobody vouches for.
pub struct Registrants {
    state: RwLock<State>,
    decoded: Mutex<Decoded>,
    /// Clients in the store that have no room in memory.
    left_out: Mutex<Vec<String>>,
    origin_hash: RandomState,
    /// The bytes of each origin's clients.
    room: usize,
}

#[derive(Default)]
struct State {
    rows: HashMap<Arc<str>, Arc<[u8]>>,
    registered: Tally,
    documented: Tally,
    /// How many addresses and settings of clients in service allow each origin, by its hash.
    origins: HashMap<u64, u32>,
    /// Counts the changes, so that nothing is kept decoded that was read before one.
    changes: u64,
    /// The clients that were changed here and whose transactions are not over, with the number of these.
    ahead_of_store: HashMap<Arc<str>, u32>,
}

impl State {
    fn tally(&self, origin: ClientOrigin) -> &Tally {
        match origin {
            ClientOrigin::MetadataDocument => &self.documented,
            ClientOrigin::DynamicRegistration | ClientOrigin::Operator => &self.registered,
        }
    }

    fn tally_mut(&mut self, origin: ClientOrigin) -> &mut Tally {
        match origin {
            ClientOrigin::MetadataDocument => &mut self.documented,
            ClientOrigin::DynamicRegistration | ClientOrigin::Operator => &mut self.registered,
        }
    }

    fn weight_of(&self, client_id: &str) -> Option<usize> {
        let row = self.rows.get(client_id)?;
        Some(weight(&Client::decode(row).ok()?, row.len()))
    }
}

/// The clients of one origin.
#[derive(Default)]
struct Tally {
    count: usize,
    bytes: usize,
    never_allowed: Held,
    /// The clients that one or two users have allowed.
    allowed: Held,
}

impl Tally {
    fn held_mut(&mut self, client: &Client) -> Option<&mut Held> {
        match client.held_by {
            _ if client.is_never_used() => Some(&mut self.never_allowed),
            Some(Holder::User(_) | Holder::FirstUser(_) | Holder::TwoUsers { .. }) | None => {
                Some(&mut self.allowed)
            }
            Some(Holder::Sender(_) | Holder::Users) => None,
        }
    }

    /// The clients whose place others may take, the first ones first.
    fn in_turn(&self) -> impl Iterator<Item = &Arc<str>> {
        let unused = self.never_allowed.in_turn(0);
        let used = self.allowed.in_turn(1);
        unused.chain(used).chain(self.allowed.last_of_one_user())
    }
}

/// The clients that [`Registrants::put_in_place`] has changed. While this lives, what the store has of them is out of date.
pub(super) struct AheadOfStore {
    registrants: Arc<Registrants>,
    client_id: String,
    pub(super) replaced: Vec<String>,
}

impl Drop for AheadOfStore {
    fn drop(&mut self) {
        let state = self.registrants.state.write();
        let ahead = &mut state.unwrap_or_else(PoisonError::into_inner).ahead_of_store;
        for id in self.replaced.iter().chain([&self.client_id]) {
            if let Some(transactions) = ahead.get_mut(id.as_str()) {
                *transactions -= 1;
                if *transactions == 0 {
                    ahead.remove(id.as_str());
                }
            }
        }
    }
}

/// A client among those of its holder. The first one goes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct HeldClient {
    is_shared: bool,
    created_at: Timestamp,
    id: Arc<str>,
}

impl HeldClient {
    fn new(client: &Client, id: &Arc<str>) -> Self {
        Self {
            is_shared: matches!(
                client.held_by,
                Some(Holder::FirstUser(_) | Holder::TwoUsers { .. })
            ),
            created_at: client.created_at,
            id: Arc::clone(id),
        }
    }
}

/// Clients by who holds them. Those of earlier releases have one holder, who is nil.
#[derive(Default)]
struct Held {
    by_holder: HashMap<Uuid, BTreeSet<HeldClient>>,
    /// The holders by the number of their clients. Of two with as many, the one with the older client is the last.
    sizes: BTreeSet<(usize, Reverse<Timestamp>, Uuid)>,
}

impl Held {
    fn change(&mut self, client: &Client, change: impl FnOnce(&mut BTreeSet<HeldClient>)) {
        let holder = client.held_by.and_then(Holder::id).unwrap_or_default();
        let clients = self.by_holder.entry(holder).or_default();
        let size = |clients: &BTreeSet<HeldClient>| {
            let first = clients.first()?;
            Some((clients.len(), Reverse(first.created_at), holder))
        };
        if let Some(before) = size(clients) {
            self.sizes.remove(&before);
        }
        change(clients);
        match size(clients) {
            Some(after) => drop(self.sizes.insert(after)),
            None => drop(self.by_holder.remove(&holder)),
        }
    }

    /// The clients of each holder, those of the largest first.
    fn by_size(&self) -> impl Iterator<Item = &BTreeSet<HeldClient>> {
        let holders = self.sizes.iter().rev();
        holders.filter_map(|(.., holder)| self.by_holder.get(holder))
    }

    /// The clients of the largest holder, then those of the next. Each keeps the last `kept` ones.
    fn in_turn(&self, kept: usize) -> impl Iterator<Item = &Arc<str>> {
        let in_turn = self
            .by_size()
            .flat_map(move |clients| clients.iter().take(clients.len().saturating_sub(kept)));
        in_turn.map(|client| &client.id)
    }

    /// The last client of each holder, unless a second user has allowed it.
    fn last_of_one_user(&self) -> impl Iterator<Item = &Arc<str>> {
        let last = self.by_size().filter_map(BTreeSet::last);
        last.filter(|client| !client.is_shared).map(|client| &client.id)
    }
}

#[derive(Default)]
struct Decoded {
    clients: HashMap<String, Arc<Client>>,
    row_bytes: usize,
    /// The count of changes that all of them are of.
    changes: u64,
}

/// The memory that a client takes whose row has this length.
fn weight(client: &Client, row_len: usize) -> usize {
    row_len + 2 * client.client_id.len() + ENTRY_BYTES + ORIGIN_BYTES * client.origins().count()
}

fn encoded(client: &Client) -> Vec<u8> {
    let mut row = Vec::new();
    // Only a record that refuses to be written could fail here, and this one came from the store or goes there.
    let _ = client.encode(&mut row);
    row
}

impl Registrants {
    /// None yet. `room` is their share of the memory, in bytes.
    pub(super) fn new(room: usize) -> Self {
        Self {
            state: RwLock::default(),
            decoded: Mutex::default(),
            left_out: Mutex::default(),
            origin_hash: RandomState::new(),
            room: room / 2,
        }
    }

    /// The client with this identifier, as `expand` completes it.
    pub(super) fn get(&self, client_id: &str, expand: impl FnOnce(Client) -> Client) -> Option<Arc<Client>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let row = Arc::clone(state.rows.get(client_id)?);
        let changes = state.changes;
        drop(state);
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if decoded.changes != changes {
            *decoded = Decoded {
                changes: decoded.changes.max(changes),
                ..Decoded::default()
            };
        }
        if let Some(client) = decoded.clients.get(client_id) {
            return Some(Arc::clone(client));
        }
        let client = Arc::new(expand(Client::decode(&row).ok()?));
        if decoded.row_bytes + row.len() > self.room / DECODED_PART {
            decoded.clients.clear();
            decoded.row_bytes = 0;
        }
        if decoded.changes == changes {
            decoded.row_bytes += row.len();
            decoded.clients.insert(client_id.to_owned(), Arc::clone(&client));
        }
        Some(client)
    }

    /// Does as the store, which has `client` for this identifier. A transaction that is not over knows better.
    pub(super) fn follow_store(&self, client_id: &str, client: Option<&Client>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.ahead_of_store.contains_key(client_id) {
            return;
        }
        match client {
            Some(client) => self.put_into(&mut state, client),
            None => self.remove_from(&mut state, client_id),
        }
    }

    fn put_into(&self, state: &mut State, client: &Client) {
        let row = encoded(client);
        let id: Arc<str> = client.client_id.as_str().into();
        let origins = self.origins_of(client);
        self.remove_from(state, &client.client_id);
        for origin in origins {
            *state.origins.entry(origin).or_default() += 1;
        }
        let tally = state.tally_mut(client.origin);
        tally.count += 1;
        tally.bytes += weight(client, row.len());
        if let Some(held) = tally.held_mut(client) {
            held.change(client, |clients| {
                clients.insert(HeldClient::new(client, &id));
            });
        }
        state.rows.insert(id, row.into());
    }

    fn remove_from(&self, state: &mut State, client_id: &str) {
        state.changes += 1;
        let Some((id, row)) = state.rows.remove_entry(client_id) else {
            return;
        };
        let Ok(client) = Client::decode(&row) else {
            return;
        };
        for origin in self.origins_of(&client) {
            if let Some(count) = state.origins.get_mut(&origin) {
                *count -= 1;
                if *count == 0 {
                    state.origins.remove(&origin);
                }
            }
        }
        let tally = state.tally_mut(client.origin);
        tally.count -= 1;
        tally.bytes -= weight(&client, row.len());
        if let Some(held) = tally.held_mut(&client) {
            held.change(&client, |clients| {
                clients.remove(&HeldClient::new(&client, &id));
            });
        }
    }

    fn origins_of(&self, client: &Client) -> Vec<u64> {
        let origins = client.origins().filter(|_| client.enabled);
        origins
            .map(|origin| self.origin_hash.hash_one(origin.as_str()))
            .collect()
    }

    /// Whether scripts of this origin may call endpoints because of one of these clients.
    pub(super) fn allows_origin(&self, origin: &str) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.origins.contains_key(&self.origin_hash.hash_one(origin))
    }

    /// Adds a client of the store. If there is no room, clients that no user has allowed are left out in turn.
    pub(super) fn put_stored(&self, client: &Client) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        self.put_into(&mut state, client);
        while state.tally(client.origin).bytes > self.room {
            let mut in_turn = state.tally(client.origin).never_allowed.in_turn(0);
            let Some(id) = in_turn.next().map(ToString::to_string) else {
                return;
            };
            drop(in_turn);
            self.remove_from(&mut state, &id);
            let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
            left_out.push(id);
        }
    }

    /// Some of the clients of the store that have no room. Each is returned once.
    pub(super) fn take_left_out(&self, most: usize) -> Vec<String> {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = left_out.len().saturating_sub(most);
        left_out.split_off(kept)
    }

    /// The clients that have to go so that this one has room: a new one, or one that grows. There may be `most` of each
    /// origin. `None` if there is no room even so. If far too many are there, only some of them go: each newcomer brings the
    /// number down.
    pub(super) fn replaced_by(&self, client: &Client, most: usize) -> Option<Vec<String>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        self.replaced_in(&state, client, most)
    }

    /// Adds a client, or replaces it, in place of those of [`Registrants::replaced_by`], and returns these. Of clients that
    /// come at once, each counts the others.
    pub(super) fn put_in_place(self: &Arc<Self>, client: &Client, most: usize) -> Option<AheadOfStore> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let replaced = self.replaced_in(&state, client, most)?;
        for id in &replaced {
            self.remove_from(&mut state, id);
        }
        self.put_into(&mut state, client);
        for id in replaced.iter().chain([&client.client_id]) {
            *state.ahead_of_store.entry(id.as_str().into()).or_default() += 1;
        }
        Some(AheadOfStore {
            registrants: Arc::clone(self),
            client_id: client.client_id.clone(),
            replaced,
        })
    }

    /// Like [`Registrants::replaced_by`], in a transaction of a store that several nodes share. Near the limits, it is committed
    /// only if no node has added another client meanwhile.
    pub(super) fn replaced_by_newest(&self, client: &Client, most: usize) -> Option<Vec<String>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let tally = state.tally(client.origin);
        if tally.count + MOST_AT_ONCE > most || tally.bytes > self.room / 2 {
            #[cfg(feature = "postgres")]
            note_count();
        }
        self.replaced_in(&state, client, most)
    }

    fn replaced_in(&self, state: &State, client: &Client, most: usize) -> Option<Vec<String>> {
        let tally = state.tally(client.origin);
        let bytes = weight(client, encoded(client).len());
        let before = state.weight_of(&client.client_id);
        if before.is_some_and(|before| bytes <= before) {
            return Some(Vec::new());
        }
        let mut count_over = match before {
            Some(_) => 0,
            None => (tally.count + 1).saturating_sub(most),
        };
        let mut bytes_over = (tally.bytes + bytes - before.unwrap_or(0)).saturating_sub(self.room);
        let mut replaced = Vec::new();
        let mut others = tally.in_turn().filter(|id| ***id != *client.client_id);
        while (count_over > 0 || bytes_over > 0) && replaced.len() < MOST_REPLACED {
            let id = others.next()?;
            count_over = count_over.saturating_sub(1);
            bytes_over = bytes_over.saturating_sub(state.weight_of(id)?);
            replaced.push(id.to_string());
        }
        Some(replaced)
    }

    /// How much of the number or of the memory is used up that clients of one origin may have, in percent: the most of all.
    /// There may be `most` of each origin.
    pub fn percent_used(&self, most: usize) -> u64 {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let percent = |used: usize, of: usize| used.saturating_mul(100) / of.max(1);
        let of_tally = |tally: &Tally| percent(tally.count, most).max(percent(tally.bytes, self.room));
        let percent = of_tally(&state.registered).max(of_tally(&state.documented));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// The number of clients of this origin.
    pub fn count(&self, origin: ClientOrigin) -> usize {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.tally(origin).count
    }

    /// The identifiers of the clients that `is_match` selects. Decodes every one.
    pub(super) fn ids_where(&self, is_match: impl Fn(&Client) -> bool) -> Vec<String> {
        let rows: Vec<_> = {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            state.rows.values().cloned().collect()
        };
        let clients = rows.iter().filter_map(|row| Client::decode(row).ok());
        clients.filter(is_match).map(|client| client.client_id).collect()
    }
}

#[cfg(test)]
mod tests;
