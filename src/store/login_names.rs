//! The index of the names that users sign in with.
//!
//! Its keys are [`LoginName`]s. An upgrade gave names their one form. If the names of two users became equal, each user
//! keeps the old key, and signs in with it.

use std::collections::HashMap;
use std::ops::Bound;

use uuid::Uuid;

use super::StoreError;
use super::engine::{Snapshot, Tx};
use super::tables::{USERS, USERS_BY_LOGIN_NAME};
use crate::identity::{LoginName, User};
use crate::text;

/// Says that [`owner`] and the record of the user will be read.
pub fn will_find_user(snapshot: &dyn Snapshot, name: &LoginName) {
    for key in keys(name) {
        USERS_BY_LOGIN_NAME.will_get(snapshot, key);
        USERS_BY_LOGIN_NAME.will_get_of_user(snapshot, key, USERS.id(), "");
    }
}

/// The user with this name.
pub fn owner(snapshot: &dyn Snapshot, name: &LoginName) -> Result<Option<Uuid>, StoreError> {
    if let Some(earlier) = name.earlier()
        && let Some(owner) = USERS_BY_LOGIN_NAME.get(snapshot, earlier)?
    {
        return Ok(Some(owner));
    }
    USERS_BY_LOGIN_NAME.get(snapshot, name.as_str())
}

/// Whether another user than `user` has the name, in either form, and `user` has it in neither.
pub fn is_of_another(snapshot: &dyn Snapshot, name: &LoginName, user: Uuid) -> Result<bool, StoreError> {
    let mut owners = Vec::new();
    for key in keys(name) {
        owners.extend(USERS_BY_LOGIN_NAME.get(snapshot, key)?);
    }
    Ok(!owners.is_empty() && !owners.contains(&user))
}

/// Gives the user their names. A name that another user has stays as it is.
pub fn give(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    for name in user.login_names() {
        let owner = USERS_BY_LOGIN_NAME.get(&*tx, name.as_str())?;
        if owner.is_some_and(|owner| owner != user.uuid) {
            continue;
        }
        take_back(tx, &name, user.uuid)?;
        USERS_BY_LOGIN_NAME.put(tx, name.as_str(), &user.uuid)?;
    }
    Ok(())
}

/// Replaces the names of a user.
pub fn replace(tx: &mut dyn Tx, before: &User, after: &User) -> Result<(), StoreError> {
    release(tx, before, after)?;
    give(tx, after)
}

/// Removes the names that the user no longer has.
pub fn release(tx: &mut dyn Tx, before: &User, after: &User) -> Result<(), StoreError> {
    let kept = after.login_names();
    let mut names = before
        .login_names()
        .into_iter()
        .filter(|name| !kept.contains(name));
    names.try_for_each(|name| take_back(tx, &name, before.uuid))
}

/// Removes all names of a user.
pub fn remove(tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
    let mut names = user.login_names().into_iter();
    names.try_for_each(|name| take_back(tx, &name, user.uuid))
}

/// Removes a name of a user. If it is another user's, it stays.
fn take_back(tx: &mut dyn Tx, name: &LoginName, user: Uuid) -> Result<(), StoreError> {
    for key in keys(name) {
        if USERS_BY_LOGIN_NAME.get(&*tx, key)? == Some(user) {
            USERS_BY_LOGIN_NAME.remove(tx, key)?;
        }
    }
    Ok(())
}

/// The users with a name that another user has in another form.
pub fn in_conflict(snapshot: &dyn Snapshot) -> Result<Vec<Uuid>, StoreError> {
    let mut users = Vec::new();
    let mut visit = |key: &String, user: &Uuid| {
        if text::caseless_address(key) != *key {
            users.push(*user);
        }
    };
    visit_international(snapshot, &mut visit)?;
    Ok(users)
}

/// Brings the names and addresses of users to their one form. Names of two users that become equal stay as they are.
pub(super) fn bring_to_one_form(tx: &mut dyn Tx) -> Result<(), StoreError> {
    let mut named: Vec<(String, Uuid)> = Vec::new();
    visit_international(&*tx, &mut |key, user| named.push((key.clone(), *user)))?;
    let mut owners: HashMap<String, Vec<Uuid>> = HashMap::new();
    for (key, user) in &named {
        let of_form = owners.entry(text::caseless_address(key)).or_default();
        if !of_form.contains(user) {
            of_form.push(*user);
        }
    }
    for (key, user) in named {
        let form = text::caseless_address(&key);
        let stored = USERS_BY_LOGIN_NAME.get(&*tx, &*form)?;
        let is_free = stored.is_none_or(|owner| owner == user);
        if form != key && is_free && owners.get(&form).is_some_and(|owners| owners.len() == 1) {
            USERS_BY_LOGIN_NAME.remove(tx, &*key)?;
            USERS_BY_LOGIN_NAME.put(tx, &*form, &user)?;
        }
        let Some(mut record) = USERS.get(&*tx, &user)? else {
            continue;
        };
        let email = record.email.as_deref().map(text::map_width);
        if email != record.email {
            let in_nfc = record.email.as_deref().map(text::nfc);
            // The address was verified with letters of another width, and may be another mailbox.
            record.email_verified &= in_nfc.as_deref() == email.as_deref();
            record.email = email;
            USERS.put(tx, &user, &record)?;
        }
    }
    Ok(())
}

/// Visits the names that are not ASCII: the others have only one form.
fn visit_international(
    snapshot: &dyn Snapshot,
    visit: &mut dyn FnMut(&String, &Uuid),
) -> Result<(), StoreError> {
    const AT_ONCE: usize = 1000;
    let mut from = Bound::Unbounded;
    loop {
        let rows = USERS_BY_LOGIN_NAME.scan(snapshot, (from, Bound::Unbounded), AT_ONCE)?;
        let Some((last, _)) = rows.last() else {
            return Ok(());
        };
        from = Bound::Excluded(last.clone());
        for (key, user) in rows.iter().filter(|(key, _)| !key.is_ascii()) {
            visit(key, user);
        }
    }
}

fn keys(name: &LoginName) -> impl Iterator<Item = &str> {
    name.earlier().into_iter().chain([name.as_str()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::store::engine::tests::Folder;
    use crate::store::schema::{Schema, stored};
    use crate::store::{Options, Store};

    const COMPOSED: &str = "j\u{fc}rgen@example.com";
    const DECOMPOSED: &str = "ju\u{308}rgen@example.com";

    /// A user as an earlier release stored one.
    fn put_as_before(tx: &mut dyn Tx, number: u128, email: &str) -> Result<(), StoreError> {
        let mut user = User::local(Uuid::from_u128(number), email, "org", Timestamp::from_seconds(0));
        email.clone_into(&mut user.account_id);
        user.email = Some(email.to_owned());
        USERS_BY_LOGIN_NAME.put(tx, &email.to_lowercase(), &user.uuid)?;
        USERS.put(tx, &user.uuid, &user)
    }

    fn upgraded(emails: &'static [&'static str]) -> (Folder, Store) {
        let folder = Folder::new();
        let before = Store::open_with(&folder.file(), Options::default(), &Schema::new(&[])).unwrap();
        before
            .write_blocking("test", move |tx| {
                let mut numbered = (1..).zip(emails);
                numbered.try_for_each(|(number, email)| put_as_before(tx, number, email))
            })
            .unwrap();
        before.close();
        let store = Store::open(&folder.file(), Options::default()).unwrap();
        assert_eq!(
            store.read_blocking(stored).unwrap(),
            Some(Schema::CURRENT.version())
        );
        (folder, store)
    }

    fn owner_of(store: &Store, typed: &str) -> Option<u128> {
        let found = store.read_blocking(|snapshot| owner(snapshot, &LoginName::new(typed)));
        found.unwrap().map(|user| user.as_u128())
    }

    fn conflicts(store: &Store) -> Vec<u128> {
        let found = store.read_blocking(in_conflict).unwrap();
        found.into_iter().map(|user| user.as_u128()).collect()
    }

    fn change(store: &Store, work: impl Fn(&mut dyn Tx) -> Result<(), StoreError> + Send + 'static) {
        store.write_blocking("test", work).unwrap();
    }

    #[test]
    fn an_upgrade_brings_names_and_addresses_to_their_one_form() {
        let (_folder, store) = upgraded(&[
            DECOMPOSED,
            "anna@b\u{fc}cher.example",
            "Bob@example.com",
            "\u{ff45}va@example.com",
        ]);
        for (typed, user) in [
            (COMPOSED, 1),
            (DECOMPOSED, 1),
            ("J\u{dc}RGEN@example.com", 1),
            ("anna@xn--bcher-kva.example", 2),
            ("anna@B\u{dc}CHER.example", 2),
            ("bob@example.com", 3),
            ("eva@example.com", 4),
        ] {
            assert_eq!(owner_of(&store, typed), Some(user), "{typed:?}");
        }
        assert_eq!(conflicts(&store), []);
        let user = store
            .read_blocking(|snapshot| USERS.get(snapshot, &Uuid::from_u128(1)))
            .unwrap();
        assert_eq!(user.unwrap().email.as_deref(), Some(COMPOSED));
    }

    #[test]
    fn two_users_whose_names_become_equal_keep_what_they_had() {
        let (_folder, store) = upgraded(&[
            COMPOSED,
            DECOMPOSED,
            "a@b\u{fc}cher.example",
            "a@xn--bcher-kva.example",
        ]);
        let as_before = |store: &Store| {
            [
                COMPOSED,
                DECOMPOSED,
                "a@b\u{fc}cher.example",
                "a@xn--bcher-kva.example",
            ]
            .map(|typed| owner_of(store, typed))
        };
        assert_eq!(as_before(&store), [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(conflicts(&store), [3, 2]);
        // A change of something else takes no name away.
        change(&store, |tx| {
            for number in 1..=4 {
                let user = USERS.get(&*tx, &Uuid::from_u128(number))?.unwrap();
                replace(tx, &user, &user)?;
            }
            Ok(())
        });
        assert_eq!(as_before(&store), [Some(1), Some(2), Some(3), Some(4)]);
    }

    #[test]
    fn the_user_who_stays_gets_the_name() {
        let (_folder, store) = upgraded(&[COMPOSED, DECOMPOSED]);
        change(&store, |tx| {
            let user = |tx: &dyn Tx, number| USERS.get(tx, &Uuid::from_u128(number)).map(Option::unwrap);
            let (gone, stays) = (user(&*tx, 1)?, user(&*tx, 2)?);
            remove(tx, &gone)?;
            replace(tx, &stays, &stays)
        });
        assert_eq!(
            [COMPOSED, DECOMPOSED].map(|typed| owner_of(&store, typed)),
            [Some(2); 2]
        );
        assert_eq!(conflicts(&store), []);
    }
}
