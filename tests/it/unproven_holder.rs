//! An account that was created without a proof of its address, and the person who proves the address later.

use idsvc::admin::user::{InviteUser, UpdateUser, UserFields};
use idsvc::identity::{LinkedIdentity, SignUp, User};
use idsvc::oauth::client::ConsentRequirement;
use idsvc::pages::text::EN;
use idsvc::store::StoreError;
use idsvc::store::tables::{CONSENTS, USERS, USERS_BY_IDENTITY};

use crate::account_links::{ask_for_reset, begin, choose, request_mail};
use crate::account_self_service::request_email;
use crate::harness::authenticator::Passkey;
use crate::harness::{Audit, Browser, Person, RelyingParty, Screen, Server, Tokens};
use crate::passkeys::{sign_in, store};
use crate::second_factor::{enrol, type_code};

const ADDRESS: &str = "victim@example.com";
const THEIRS: &str = "violet tractor umbrella";
const NEW: &str = "a password that is new";

/// A service where people create accounts without a proof of the address.
async fn scene() -> (Server, RelyingParty) {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.sign_up = SignUp::Open;
        policy.accounts.verify_email = false;
        policy.accounts.self_service.email = true;
    })
    .await;
    let consents = |client: &mut idsvc::oauth::client::Client| client.consent = ConsentRequirement::Require;
    let acme = server.client_with("acme", consents).await;
    (server, acme)
}

/// A person signs up with an address in this browser, and allows the application.
async fn sign_up(server: &Server, acme: &RelyingParty, browser: &Browser) -> (Person, Tokens) {
    let page = request_mail(&begin(acme, browser).await, EN.create_account, ADDRESS).await;
    let consent = choose(&page, THEIRS).await;
    let tokens = acme.redeem(&consent.through().await.code()).await.tokens();
    let mut person = server.user("somebody").await;
    THEIRS.clone_into(&mut person.password);
    person.user = stored(server, |user| user.email.as_deref() == Some(ADDRESS));
    (person, tokens)
}

fn stored(server: &Server, matches: impl Fn(&User) -> bool) -> User {
    let users = server
        .app
        .core
        .store
        .read_blocking(|snapshot| USERS.scan(snapshot, .., 10));
    let mut users = users.unwrap().into_iter().map(|(_, user)| user);
    users.find(|user| matches(user)).unwrap()
}

async fn link_identity(server: &Server, person: &Person) {
    let uuid = person.user.uuid;
    let linked_at = server.app.core.clock.now();
    let link = move |tx: &mut dyn idsvc::store::engine::Tx| -> Result<(), StoreError> {
        let mut user = USERS.get(&*tx, &uuid)?.unwrap();
        user.identities.push(LinkedIdentity {
            issuer: "https://corp.example".to_owned(),
            subject: "u-1".to_owned(),
            provider: "corp".to_owned(),
            linked_at,
        });
        let key = ("https://corp.example".to_owned(), "u-1".to_owned());
        USERS_BY_IDENTITY.put(tx, &key, &uuid)?;
        USERS.put(tx, &uuid, &user)
    };
    server.app.core.store.write("test_link", link).await.unwrap();
}

/// The person who reads the mails of this address chooses a new password.
async fn reset(server: &Server, acme: &RelyingParty, address: &str) -> Screen {
    let browser = server.browser();
    let (_, mail) = ask_for_reset(server, acme, &browser, address).await;
    choose(&browser.visit(&mail.link()).await, NEW).await
}

#[tokio::test]
async fn the_first_proof_of_an_address_ends_what_an_unproven_holder_set_up() {
    let (server, acme) = scene().await;
    let theirs = server.browser().knowing(THEIRS);
    let (person, tokens) = sign_up(&server, &acme, &theirs).await;
    enrol(&server, &theirs).await;
    let passkey = Passkey::new(person.user.uuid.as_bytes());
    store(&server, &person, &passkey).await;
    link_identity(&server, &person).await;
    let audit = Audit::listen();
    // Neither a second step nor a remembered consent.
    let consent = reset(&server, &acme, ADDRESS).await;
    assert_eq!(consent.page(), "/consent", "{}", consent.text());
    assert_eq!(audit.take(&["factor_removed"]).len(), 3);
    let owned = acme.redeem(&consent.through().await.code()).await.tokens();
    let claims = acme.userinfo(owned.access_token()).await.json();
    assert_eq!(
        (&claims["sub"], &claims["email_verified"]),
        (&person.sub().into(), &true.into())
    );
    assert_eq!(server.factors_of(&person).len(), 0);
    let user = stored(&server, |user| user.uuid == person.user.uuid);
    let store = &server.app.core.store;
    let links = store.read_blocking(|snapshot| USERS_BY_IDENTITY.count(snapshot));
    assert!(user.identities.is_empty() && links.unwrap() == 0);
    assert_eq!(theirs.fetch("/account").await.status, 303);
    let refused = acme.refresh(tokens.refresh_token()).await;
    assert_eq!(refused.error(), "invalid_grant");
    let refused = sign_in(&begin(&acme, &server.browser()).await, &passkey).await;
    assert_eq!(refused.page(), "/login");
    let refused = begin(&acme, &server.browser()).await;
    assert_eq!(refused.type_in(ADDRESS, THEIRS).await.page(), "/login");
}

/// It is the first proof only.
#[tokio::test]
async fn the_person_who_proved_the_address_keeps_the_factors_at_the_next_reset() {
    let (server, acme) = scene().await;
    sign_up(&server, &acme, &server.browser()).await;
    let consent = reset(&server, &acme, ADDRESS).await;
    let browser = consent.browser().knowing(NEW);
    consent.through().await.code();
    let (app, _) = enrol(&server, &browser).await;
    server.advance(60);
    let asked = reset(&server, &acme, ADDRESS).await;
    let done = type_code(&asked, &app.code(&server, 0)).await;
    done.callback().code();
}

#[tokio::test]
async fn a_reset_ends_nothing_more_of_accounts_that_the_operator_vouches_for() {
    let (server, acme) = scene().await;
    let local = server
        .user_with("alice", |user| user.email_verified = false)
        .await;
    enrol(&server, &local.browser()).await;
    let asked = reset(&server, &acme, "alice@example.com").await;
    assert_eq!(
        (asked.page(), server.factors_of(&local).len()),
        ("/second-factor", 2)
    );

    let (person, _) = sign_up(&server, &acme, &server.browser()).await;
    enrol(&server, &person.browser()).await;
    let verified = UpdateUser {
        who: ADDRESS.to_owned(),
        account_id: None,
        email: None,
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields {
            email_verified: Some(true),
            ..UserFields::default()
        },
    };
    server.admin().call(verified).await.unwrap();
    let asked = reset(&server, &acme, ADDRESS).await;
    assert_eq!(
        (asked.page(), server.factors_of(&person).len()),
        ("/second-factor", 2)
    );

    let invitation = InviteUser {
        email: "frank@example.com".to_owned(),
        groups: Vec::new(),
        client_id: None,
    };
    server.mails().await;
    server.admin().call(invitation).await.unwrap();
    let link = server.mail().await.link();
    let browser = server.browser().knowing(THEIRS);
    choose(&browser.visit(&link).await, THEIRS).await;
    let (app, _) = enrol(&server, &browser).await;
    server.advance(60);
    let asked = reset(&server, &acme, "frank@example.com").await;
    type_code(&asked, &app.code(&server, 0)).await;
    let consents = server
        .app
        .core
        .store
        .read_blocking(|snapshot| CONSENTS.count(snapshot));
    assert_eq!(consents.unwrap(), 1, "that of the person who signed up");
}

/// A person who is sent the link of another person's account proves the address, not the account.
#[tokio::test]
async fn a_new_address_that_is_proven_in_another_browser_ends_it_too() {
    let (server, acme) = scene().await;
    let theirs = server.browser().knowing(THEIRS);
    let (person, tokens) = sign_up(&server, &acme, &theirs).await;
    enrol(&server, &theirs).await;
    server.mails().await;
    request_email(&theirs, &person, "other@example.com").await;
    let page = server.browser().visit(&server.mail().await.link()).await;
    page.browser().submit(&page.forms()[0]).await;
    assert_eq!(server.factors_of(&person).len(), 0);
    assert_eq!(theirs.fetch("/account").await.status, 303);
    let refused = acme.refresh(tokens.refresh_token()).await;
    assert_eq!(refused.error(), "invalid_grant");
    let refused = begin(&acme, &server.browser()).await;
    assert_eq!(refused.type_in(ADDRESS, THEIRS).await.page(), "/login");
    let consent = reset(&server, &acme, "other@example.com").await;
    consent.through().await.code();
}

#[tokio::test]
async fn a_holder_who_proves_a_new_address_in_the_session_keeps_everything() {
    let (server, acme) = scene().await;
    let browser = server.browser().knowing(THEIRS);
    let (person, tokens) = sign_up(&server, &acme, &browser).await;
    let (app, _) = enrol(&server, &browser).await;
    server.mails().await;
    request_email(&browser, &person, "other@example.com").await;
    let page = browser.visit(&server.mail().await.link()).await;
    browser.submit(&page.forms()[0]).await;
    assert_eq!(browser.fetch("/account").await.status, 200);
    acme.refresh(tokens.refresh_token()).await.tokens();
    server.advance(60);
    let asked = reset(&server, &acme, "other@example.com").await;
    type_code(&asked, &app.code(&server, 0)).await.callback().code();
}
