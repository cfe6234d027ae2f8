//! Which clients make room for a newcomer.

use super::*;
use crate::oauth::client::Registration;
use crate::secret::Digest;

const MANY: usize = 10_000;

fn client(number: u128, holder: u128, created: u64) -> Client {
    let mut client = Client::new(
        &format!("client-{number}"),
        Uuid::from_u128(number),
        Uuid::from_u128(number),
        false,
        Timestamp::from_seconds(created),
    );
    client.origin = ClientOrigin::MetadataDocument;
    client.held_by = Some(Holder::User(Uuid::from_u128(holder)));
    client
}

fn held(clients: &[Client]) -> Registrants {
    let registrants = Registrants::new(1 << 20);
    for client in clients {
        registrants.follow_store(&client.client_id, Some(client));
    }
    registrants
}

#[test]
fn the_oldest_client_of_the_largest_holder_goes_first() {
    let mut clients = [
        client(1, 7, 50),
        client(2, 8, 10),
        client(3, 7, 60),
        client(4, 9, 5),
    ];
    let registrants = held(&clients);
    let newcomer = client(5, 8, 70);
    assert_eq!(
        registrants.replaced_by(&newcomer, 4),
        Some(vec!["client-1".to_owned()])
    );
    assert_eq!(registrants.replaced_by(&newcomer, 5), Some(Vec::new()));
    registrants.follow_store("client-1", None);
    let by_age = registrants.replaced_by(&newcomer, 1);
    assert_eq!(
        by_age.unwrap(),
        ["client-4", "client-2", "client-3"],
        "each holds one"
    );
    for client in &mut clients {
        client.held_by = Some(Holder::Users);
    }
    assert_eq!(held(&clients).replaced_by(&newcomer, 4), None);
}

fn of_two(number: u128, first: u128, second: u128, created: u64) -> Client {
    let mut client = client(number, first, created);
    client.held_by = Some(Holder::with_user(client.held_by, Uuid::from_u128(second)));
    client
}

#[test]
fn a_client_of_two_users_counts_for_the_first_one_and_is_not_taken_from_whom_it_is_the_last() {
    let registrants = held(&[
        of_two(1, 7, 1, 10),
        of_two(2, 7, 1, 20),
        of_two(3, 8, 1, 5),
        client(4, 9, 30),
    ]);
    let newcomer = client(5, 8, 70);
    let replaced = |most| registrants.replaced_by(&newcomer, most);
    assert_eq!(replaced(4).unwrap(), ["client-1"]);
    assert_eq!(replaced(3).unwrap(), ["client-1", "client-4"]);
    assert_eq!(replaced(2), None);
}

#[test]
fn two_users_who_allow_many_clients_together_push_out_no_others() {
    let (a, b, carol) = (1, 2, 3);
    let mut clients: Vec<_> = (0..5)
        .map(|number| of_two(number, a, b, 100 + u64::try_from(number).unwrap()))
        .collect();
    clients.push(client(50, carol, 10));
    // One that only its holder uses goes before those.
    clients.push(client(60, a, 200));
    let registrants = held(&clients);
    let replaced = registrants.replaced_by(&client(70, b, 300), 3).unwrap();
    assert_eq!(
        replaced,
        ["client-60", "client-0", "client-1", "client-2", "client-3"]
    );
}

#[test]
fn a_client_of_three_users_stays_though_its_first_user_holds_most() {
    let mut popular = of_two(1, 7, 8, 10);
    popular.held_by = Some(Holder::with_user(popular.held_by, Uuid::from_u128(9)));
    assert_eq!(popular.held_by, Some(Holder::Users));
    let registrants = held(&[popular, client(2, 7, 20), client(3, 7, 30), client(4, 9, 5)]);
    let replaced = registrants.replaced_by(&client(5, 8, 70), 2).unwrap();
    assert_eq!(replaced, ["client-2", "client-3", "client-4"]);
    assert_eq!(registrants.replaced_by(&client(5, 8, 70), 1), None);
}

#[test]
fn users_who_return_are_not_counted_twice() {
    let [alice, bob, carol] = [1, 2, 3].map(Uuid::from_u128);
    let mut held_by = None;
    for user in [alice, alice, bob, alice, bob] {
        held_by = Some(Holder::with_user(held_by, user));
    }
    let two = Holder::TwoUsers {
        first: alice,
        second: bob,
    };
    assert_eq!(held_by, Some(two));
    // A record of an earlier release does not say who the second user was.
    let first = Holder::with_user(Some(Holder::FirstUser(alice)), alice);
    assert_eq!(first, Holder::FirstUser(alice));
    assert_eq!(Holder::with_user(Some(first), bob), two);
    assert_eq!(Holder::with_user(held_by, carol), Holder::Users);
}

#[test]
fn what_has_no_room_at_the_start_is_of_the_sender_with_most() {
    let unused = |number, sender| {
        let mut client = client(number, 0, 1);
        client.held_by = Some(Holder::Sender(Uuid::from_u128(sender)));
        client.registration = Some(Registration {
            access_token: Digest::of(b"token"),
            is_used: false,
            is_removed: false,
        });
        client
    };
    // The honest one has the last identifier.
    let clients: Vec<_> = (100..130)
        .map(|number| unused(number, 1))
        .chain([unused(999, 2)])
        .collect();
    let registrants = Arc::new(Registrants::new(16 << 10));
    for client in &clients {
        registrants.put_stored(client);
    }
    let left_out = registrants.take_left_out(100);
    let count = registrants.count(ClientOrigin::MetadataDocument);
    assert_eq!((left_out.len() + count, left_out.is_empty()), (31, false));
    assert!(!left_out.contains(&"client-999".to_owned()));
    assert_eq!(left_out[0], "client-100", "the oldest one");
}

/// Registrations at the same moment choose the same clients, so more may be there than there is room for.
#[test]
fn far_too_many_clients_become_fewer_with_each_newcomer() {
    let clients: Vec<_> = (0..500).map(|number| client(number, number, 1)).collect();
    let registrants = held(&clients);
    let mut left = 500;
    for number in 1000..1030 {
        let newcomer = client(number, number, 2);
        let replaced = registrants.replaced_by(&newcomer, 10).unwrap();
        assert!(replaced.len() <= MOST_REPLACED);
        for id in &replaced {
            registrants.follow_store(id, None);
        }
        registrants.follow_store(&newcomer.client_id, Some(&newcomer));
        left = registrants.count(ClientOrigin::MetadataDocument);
    }
    assert_eq!(left, 10);
}

fn grown(client: &Client, bytes: usize) -> Client {
    let mut grown = client.clone();
    grown.client_name = Some("a".repeat(bytes));
    grown
}

/// These clients, and no room for more.
fn full(clients: &[Client]) -> Registrants {
    let bytes: usize = clients
        .iter()
        .map(|client| weight(client, encoded(client).len()))
        .sum();
    let registrants = Registrants::new(2 * bytes);
    for client in clients {
        registrants.follow_store(&client.client_id, Some(client));
    }
    registrants
}

#[test]
fn a_client_that_grows_makes_room_like_a_newcomer_and_does_not_take_its_own_place() {
    let clients = [client(1, 7, 1), client(2, 7, 2), client(3, 7, 3), client(4, 8, 1)];
    let registrants = Arc::new(full(&clients));
    let large = grown(&clients[0], 200);
    let ahead = registrants.put_in_place(&large, 3).unwrap();
    assert_eq!(ahead.replaced, ["client-2"], "their number is not looked at");
    assert_eq!(registrants.count(ClientOrigin::MetadataDocument), 3);
    assert_eq!(
        registrants.replaced_by(&clients[0], 1),
        Some(Vec::new()),
        "it shrinks"
    );
}

#[test]
fn a_client_does_not_grow_if_the_others_keep_their_places() {
    let mut clients = [client(1, 7, 1), client(2, 8, 1), client(3, 8, 2)];
    for other in &mut clients[1..] {
        other.held_by = Some(Holder::Users);
    }
    let small = &clients[0];
    let registrants = Arc::new(full(&clients));
    assert!(registrants.put_in_place(&grown(small, 200), MANY).is_none());
    let kept = registrants.get("client-1", |client| client).unwrap();
    assert_eq!(*kept, *small);
    let roomy = Arc::new(held(&clients));
    let ahead = roomy.put_in_place(&grown(small, 200), MANY);
    assert!(ahead.is_some_and(|ahead| ahead.replaced.is_empty()));
}

#[test]
fn a_client_that_changes_is_not_read_from_the_store_before_all_its_transactions_are_over() {
    let clients = [client(1, 7, 1), client(2, 7, 2)];
    let registrants = Arc::new(full(&clients));
    let has = |client_id| registrants.get(client_id, |client| client).is_some();
    let newcomer = client(3, 8, 3);
    let first = registrants.put_in_place(&newcomer, 2).unwrap();
    let second = registrants.put_in_place(&client(4, 7, 4), 2).unwrap();
    assert_eq!(
        (&first.replaced[..], &second.replaced[..]),
        (&["client-1".to_owned()][..], &["client-2".to_owned()][..])
    );
    registrants.follow_store("client-1", Some(&clients[0]));
    registrants.follow_store("client-3", None);
    assert!(!has("client-1") && has("client-3"));
    drop(first);
    registrants.follow_store("client-1", Some(&clients[0]));
    registrants.follow_store("client-2", Some(&clients[1]));
    registrants.follow_store("client-3", None);
    assert!(has("client-1") && !has("client-2") && !has("client-3"));
}

/// Each of them has room, but not all.
#[test]
fn clients_that_grow_at_once_count_each_other() {
    let clients: Vec<_> = (0..4).map(|number| client(number, number, 1)).collect();
    let registrants = Arc::new(Registrants::new(16 << 10));
    for client in &clients {
        registrants.follow_store(&client.client_id, Some(client));
    }
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| drop(registrants.put_in_place(&grown(client, 2000), MANY)));
        }
    });
    assert!(registrants.percent_used(MANY) <= 100);
}

#[test]
fn what_is_put_and_removed_leaves_nothing() {
    let registrants = held(&[client(1, 1, 1), client(1, 2, 1), client(2, 2, 1)]);
    assert_eq!(registrants.count(ClientOrigin::MetadataDocument), 2);
    for client_id in ["client-1", "client-2", "client-1"] {
        registrants.follow_store(client_id, None);
    }
    let state = registrants.state.read().unwrap();
    let tally = &state.documented;
    assert_eq!((tally.count, tally.bytes, state.origins.len()), (0, 0, 0));
    assert!(tally.allowed.sizes.is_empty() && tally.allowed.by_holder.is_empty());
    drop(state);
    assert_eq!(registrants.percent_used(MANY), 0);
}
