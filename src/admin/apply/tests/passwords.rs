//! Passwords of users, by their hashes and in the clear.

use crate::admin::apply::tests::*;
use crate::admin::user::SetPassword;

const HASH: &str = "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e";

fn with_hash(hash: &str) -> DeclaredUser {
    let mut alice = person("alice@example.com");
    alice.line.password_hash = Some(Value::from(hash));
    alice
}

/// Which passwords change.
async fn applied(core: &Core, alice: DeclaredUser) -> Vec<String> {
    let applied = admin(core).call(request(None, Some(vec![alice]), false)).await;
    let changes = applied.unwrap().changes;
    let fields = changes.into_iter().flat_map(|change| change.fields);
    let secrets = fields.filter(|field| field.secret.is_some());
    secrets.map(|field| field.name).collect()
}

fn stored(core: &Core) -> User {
    let users = core
        .store
        .read_blocking(|snapshot| USERS.scan(snapshot, .., 2))
        .unwrap();
    let [(_, alice)] = users.try_into().unwrap();
    alice
}

/// Renews the hash, as the first sign-in after an import does.
async fn rehash(core: &Core) {
    let mut alice = stored(core);
    let salt = core.random.bytes();
    alice.password = Some(
        core.passwords
            .hash("right".to_owned().into(), salt)
            .await
            .unwrap(),
    );
    let written = core
        .store
        .write("test_rehash", move |tx| USERS.put(tx, &alice.uuid, &alice));
    written.await.unwrap();
}

async fn choose(core: &Core, password: NewPassword) {
    let chosen = SetPassword {
        who: "alice@example.com".to_owned(),
        password,
        keep_sessions: true,
    };
    admin(core).call(chosen).await.unwrap();
}

#[tokio::test]
async fn a_hash_in_a_file_gives_its_password_once() {
    let core = core();
    assert_eq!(applied(&core, with_hash(HASH)).await, ["password"]);
    rehash(&core).await;
    let rehashed = stored(&core);
    assert!(applied(&core, with_hash(HASH)).await.is_empty());
    assert_eq!(stored(&core), rehashed);
    for password in [NewPassword::Generated, NewPassword::None] {
        choose(&core, password).await;
        let chosen = stored(&core);
        assert!(applied(&core, with_hash(HASH)).await.is_empty());
        assert_eq!(stored(&core), chosen);
    }
    let another = HASH.replace("abcdef", "zyxwvu");
    assert_eq!(applied(&core, with_hash(&another)).await, ["password"]);
    assert!(applied(&core, with_hash(&another)).await.is_empty());
}

/// Otherwise the first file with the hash of an existing user would later restore that password once.
#[tokio::test]
async fn a_hash_that_a_file_only_confirms_is_one_that_it_gave() {
    let core = core();
    applied(&core, person("alice@example.com")).await;
    choose(&core, NewPassword::Generated).await;
    let before = stored(&core);
    let hash = before.password.clone().unwrap().as_str().to_owned();
    let confirmed = admin(&core).call(request(None, Some(vec![with_hash(&hash)]), false));
    let confirmed = confirmed.await.unwrap();
    assert_eq!((confirmed.changes.len(), confirmed.unchanged), (0, 1));
    assert_eq!(stored(&core).updated_at, before.updated_at);
    choose(&core, NewPassword::Generated).await;
    assert!(applied(&core, with_hash(&hash)).await.is_empty());
}

/// A password in the clear in the file is set on each apply.
#[tokio::test]
async fn a_password_in_a_file_comes_back_and_makes_way_for_a_hash() {
    let core = core();
    applied(&core, with_hash(HASH)).await;
    let typed = DeclaredUser {
        password: Some(SecretString::new("correct horse battery")),
        ..person("alice@example.com")
    };
    for _ in 0..2 {
        assert_eq!(applied(&core, typed.clone()).await, ["password"]);
        assert!(applied(&core, typed.clone()).await.is_empty());
        choose(&core, NewPassword::Generated).await;
    }
    assert_eq!(
        applied(&core, with_hash(HASH)).await,
        ["password"],
        "again, after another"
    );
}

/// A file that was applied before passwords were checked can still be applied.
#[tokio::test]
async fn a_password_that_is_soon_guessed_is_refused_unless_it_is_there_already() {
    let core = core();
    let with = |password: &str| DeclaredUser {
        password: Some(SecretString::new(password)),
        ..person("alice@example.com")
    };
    let wanted = |password| request(None, Some(vec![with(password)]), false);
    let refused = refusal(admin(&core).call(wanted("password1")).await);
    assert_faults(&refused, &[(FaultCode::Invalid, &["password"])]);
    admin(&core).call(wanted("correct horse battery")).await.unwrap();
    let hash = core
        .passwords
        .hash(SecretString::new("password1").to_zeroizing(), [7; 16])
        .await
        .unwrap();
    core.store
        .write("test", move |tx| {
            let (uuid, mut user) = USERS.scan(&*tx, .., 1)?.remove(0);
            user.password = Some(hash.clone());
            USERS.put(tx, &uuid, &user)
        })
        .await
        .unwrap();
    let applied = admin(&core).call(wanted("password1")).await.unwrap();
    assert_eq!((applied.changes.len(), applied.unchanged), (0, 1));
    let refused = refusal(admin(&core).call(wanted("Alice@Example.com")).await);
    assert_faults(&refused, &[(FaultCode::Invalid, &["password"])]);
}

/// Changes the record of the one user. Returns the user as a file declares it, with a new telephone number.
async fn changed_meanwhile(core: &Core, change: impl FnOnce(&mut User)) -> DeclaredUser {
    let mut alice = stored(core);
    change(&mut alice);
    let written = core
        .store
        .write("test_user", move |tx| USERS.put(tx, &alice.uuid, &alice));
    written.await.unwrap();
    let mut named = with_hash(HASH);
    named.line.phone_number = Some("+32 2 555 01 23".to_owned());
    named
}

#[tokio::test]
async fn a_user_who_must_choose_another_password_must_do_so_after_an_apply_too() {
    let core = core();
    applied(&core, with_hash(HASH)).await;
    let named = changed_meanwhile(&core, |user| user.must_change_password = true).await;
    applied(&core, named).await;
    assert!(stored(&core).must_change_password);
}

/// The file may be an export, so it says nothing of who proved the address.
#[tokio::test]
async fn an_account_with_an_unproven_holder_stays_one_until_a_file_says_that_the_address_is_verified() {
    let core = core();
    applied(&core, with_hash(HASH)).await;
    let mut named = changed_meanwhile(&core, |user| user.unproven_holder = true).await;
    applied(&core, named.clone()).await;
    assert!(stored(&core).is_unproven());
    named.line.email_verified = Some(true);
    applied(&core, named).await;
    assert!(!stored(&core).is_unproven());
}
