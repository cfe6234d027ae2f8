use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::admin::tests::{admin, core, refusal};
use crate::admin::user::{AddUser, NewPassword, UserFields};
use crate::identity::{AuthenticationMethod, Device, Session};
use crate::oauth::Scope;
use crate::oauth::client::Client;
use crate::oauth::code::Authorization;
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::refresh::RefreshFamily;
use crate::oauth::refresh_keys::RefreshKeys;
use crate::oauth::resource::Resources;
use crate::secret::Digest;
use crate::store::StoreError;
use crate::store::tables::{FAMILIES, FAMILIES_BY_OWNER, SESSIONS, SESSIONS_BY_USER};

#[tokio::test]
async fn sessions_of_a_user_are_listed_and_end_together() {
    let core = core();
    let alice = AddUser {
        email: "alice@example.com".to_owned(),
        password: NewPassword::None,
        fields: UserFields::default(),
    };
    let alice = admin(&core).call(alice).await.unwrap().uuid;
    let now = core.clock.now();
    core.store
        .write("test", move |tx| -> Result<_, StoreError> {
            for id in (1..=5).map(Uuid::from_u128) {
                // The last two have expired, and stay for the families bound to them.
                let age = Duration::from_hours(if id > Uuid::from_u128(3) { 48 } else { 0 });
                let session = Session {
                    digest: Digest::of(b"x"),
                    user: alice,
                    auth_time: Some(now),
                    was_asked_anew: false,
                    factor: AuthenticationMethod::Password,
                    second_factor: None,
                    created_at: now - age,
                    last_used_at: now - age,
                    device: Device::default(),
                };
                SESSIONS.put(tx, &id, &session)?;
                SESSIONS_BY_USER.put(tx, &(alice, id), &())?;
            }
            Ok(())
        })
        .await
        .unwrap();
    let live = ListSessions {
        who: alice.to_string(),
        ended: false,
    };
    assert_eq!(admin(&core).call(live.clone()).await.unwrap().len(), 3);
    let one = RevokeSessions::One(Uuid::from_u128(2));
    assert_eq!(admin(&core).call(one.clone()).await.unwrap().revoked_sessions, 1);
    refusal(admin(&core).call(one).await);
    let over = RevokeSessions::One(Uuid::from_u128(4));
    assert_eq!(admin(&core).call(over).await.unwrap().revoked_sessions, 0);
    let all = RevokeSessions::AllOf("alice@example.com".to_owned());
    assert_eq!(admin(&core).call(all).await.unwrap().revoked_sessions, 2);
    assert!(admin(&core).call(live.clone()).await.unwrap().is_empty());
}

#[tokio::test]
async fn families_of_a_removed_session_can_still_be_ended_by_its_id() {
    let core = core();
    let now = core.clock.now();
    let (user, session, id) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    let authorization = Authorization {
        client_id: "web".to_owned(),
        client_incarnation: Uuid::nil(),
        user,
        session: Some(session),
        auth_time: Some(now),
        factor: AuthenticationMethod::Password,
        second_factor: None,
        upstream_token: None,
        scope: Scope::of(["openid"]).unwrap(),
        resources: Resources::new(),
        claims: ClaimsRequest::default(),
        bound_to: None,
        actor: None,
    };
    let keys = RefreshKeys::new([(1, vec![1; 32].into())]);
    let first = keys.first_token(id, [2; 16]).unwrap();
    let client = Client::new("web", Uuid::nil(), Uuid::nil(), false, now);
    let family = RefreshFamily::start(&first, authorization, &client, &core.policy.lifetimes, now);
    core.store
        .write("test", move |tx| {
            FAMILIES.put(tx, &id, &family)?;
            [user, session]
                .into_iter()
                .try_for_each(|owner| FAMILIES_BY_OWNER.put(tx, &(owner, ("web".to_owned(), id)), &()))
        })
        .await
        .unwrap();
    let is_revoked = || {
        let family = core
            .store
            .read_blocking(|snapshot| FAMILIES.get(snapshot, &id))
            .unwrap();
        family.unwrap().revoked_at.is_some()
    };
    refusal(admin(&core).call(RevokeSessions::One(user)).await);
    assert!(!is_revoked());
    let ended = admin(&core).call(RevokeSessions::One(session)).await.unwrap();
    assert_eq!(ended.revoked_sessions, 0);
    assert!(is_revoked());
    refusal(admin(&core).call(RevokeSessions::One(session)).await);
}
