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
        registrants.put(client);
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
    registrants.remove("client-1");
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

#[test]
fn clients_that_several_users_use_go_after_all_others_and_each_user_keeps_one() {
    let shared = |number, first, created| {
        let mut client = client(number, 0, created);
        client.held_by = Some(Holder::FirstUser(Uuid::from_u128(first)));
        client
    };
    let registrants = held(&[
        shared(1, 7, 10),
        shared(2, 7, 20),
        shared(3, 8, 5),
        client(4, 9, 30),
    ]);
    let newcomer = client(5, 8, 70);
    let replaced = |most| registrants.replaced_by(&newcomer, most);
    assert_eq!(replaced(4).unwrap(), ["client-4"]);
    assert_eq!(replaced(3).unwrap(), ["client-4", "client-1"]);
    assert_eq!(replaced(2), None);
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
    let registrants = Registrants::new(16 << 10);
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
        assert!(replaced.iter().all(|id| registrants.remove(id)));
        registrants.put(&newcomer);
        left = registrants.count(ClientOrigin::MetadataDocument);
    }
    assert_eq!(left, 10);
}

#[test]
fn a_client_that_grows_needs_room() {
    let small = client(1, 1, 1);
    let registrants = Registrants::new(4096);
    registrants.put(&small);
    let mut large = small.clone();
    large.redirect_uris = vec!["https://app.example/".to_owned() + &"a".repeat(2000)];
    assert!(!registrants.has_room_to_change(&small, &large));
    assert!(registrants.has_room_to_change(&large, &small));
    assert!(held(std::slice::from_ref(&small)).has_room_to_change(&small, &large));
}

#[test]
fn what_is_put_and_removed_leaves_nothing() {
    let registrants = held(&[client(1, 1, 1), client(1, 2, 1), client(2, 2, 1)]);
    assert_eq!(registrants.count(ClientOrigin::MetadataDocument), 2);
    assert!(registrants.remove("client-1") && registrants.remove("client-2"));
    assert!(!registrants.remove("client-1"));
    let state = registrants.state.read().unwrap();
    let tally = &state.documented;
    assert_eq!((tally.count, tally.bytes, state.origins.len()), (0, 0, 0));
    assert!(tally.of_one_user.sizes.is_empty() && tally.of_one_user.by_holder.is_empty());
    drop(state);
    assert_eq!(registrants.percent_used(MANY), 0);
}
