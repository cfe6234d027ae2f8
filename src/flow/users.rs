//! The record of a user is written: the one place that does, since it stands in more than one row.

use crate::identity::{Subject, User};
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::{FAMILIES, FAMILIES_BY_OWNER, USERS};

/// Writes the record of a user who was not there before: nothing speaks of them yet.
pub fn create(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    USERS.put(tx, &user.uuid, user)
}

/// Writes the record of a user. Where it changes what tokens say, or whether there are any, every refresh family of the
/// user learns it in the same transaction: a refresh asks nobody else.
pub fn write(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    let before = USERS.get(&*tx, &user.uuid)?;
    USERS.put(tx, &user.uuid, user)?;
    let subject = Subject::from(user);
    if before.is_none_or(|before| Subject::from(&before) == subject) {
        return Ok(());
    }
    for ((_, id), ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &user.uuid, usize::MAX)? {
        if let Some(mut family) = FAMILIES.get(&*tx, &id)? {
            family.subject = Some(subject.clone());
            FAMILIES.put(tx, &id, &family)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::admin::tests::core;
    use crate::clock::Timestamp;
    use crate::identity::Factor;
    use crate::oauth::code::Authorization;
    use crate::oauth::openid::claims::ClaimsRequest;
    use crate::oauth::refresh::{Entropy, RefreshFamily};
    use crate::oauth::scope::Scope;

    fn family(id: u128, user: Uuid, subject: Option<Subject>, now: Timestamp) -> (Uuid, RefreshFamily) {
        let id = Uuid::from_u128(id);
        let authorization = Authorization {
            client_id: "web".to_owned(),
            user,
            session: None,
            auth_time: Some(now),
            factor: Factor::Password,
            upstream_token: None,
            scope: Scope::empty(),
            claims: ClaimsRequest::default(),
        };
        let entropy = Entropy {
            token: [1; 32],
            lineage: [2; 16],
        };
        let (mut family, _) = RefreshFamily::start(
            id,
            authorization,
            &crate::config::Settings::default().policy("").lifetimes,
            &entropy,
            now,
        );
        family.subject = subject;
        (id, family)
    }

    #[tokio::test]
    async fn every_family_of_a_user_says_what_the_user_has_become_and_no_other() {
        let core = core();
        let now = core.clock.now();
        let alice = User::local(Uuid::from_u128(1), "alice@example.com", "org", now);
        let bob = User::local(Uuid::from_u128(2), "bob@example.com", "org", now);
        let families = [
            family(11, alice.uuid, Some(Subject::from(&alice)), now),
            family(12, alice.uuid, None, now),
            family(13, bob.uuid, Some(Subject::from(&bob)), now),
        ];
        let rows = (alice.clone(), bob.clone());
        let written = core.store.write("test_families", move |tx| {
            create(tx, &rows.0)?;
            create(tx, &rows.1)?;
            families.iter().try_for_each(|(id, family)| {
                FAMILIES_BY_OWNER.put(tx, &(family.authorization.user, *id), &())?;
                FAMILIES.put(tx, id, family)
            })
        });
        written.await.unwrap();
        let known = || {
            let rows = core
                .store
                .read(|snapshot| FAMILIES.scan(snapshot, .., usize::MAX));
            let subjects = rows.unwrap().into_iter().map(|(_, family)| family.subject);
            subjects.collect::<Vec<_>>()
        };
        let becomes = async |user: &User| {
            let user = user.clone();
            let written = core.store.write("test_change", move |tx| write(tx, &user));
            written.await.unwrap();
        };
        let (as_alice, as_bob) = (Subject::from(&alice), Subject::from(&bob));
        let mut user = alice;
        user.claims.insert("name".to_owned(), "Alice".into());
        becomes(&user).await;
        assert_eq!(known(), [Some(as_alice), None, Some(as_bob.clone())]);
        let changes: [fn(&mut User); 9] = [
            |user| user.account_id = "alice".to_owned(),
            |user| user.email = None,
            |user| user.phone_number = Some("+41".to_owned()),
            |user| user.user_type = "robot".to_owned(),
            |user| user.venue_id = Some("venue".to_owned()),
            |user| user.organization = "other".to_owned(),
            |user| user.source = "IMPORT".to_owned(),
            |user| user.enabled = false,
            |user| user.enabled = true,
        ];
        for change in changes {
            let before = Subject::from(&user);
            change(&mut user);
            let subject = Subject::from(&user);
            assert_ne!(subject, before);
            becomes(&user).await;
            let now = Some(subject);
            assert_eq!(known(), [now.clone(), now, Some(as_bob.clone())]);
        }
    }
}
