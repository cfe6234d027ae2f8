//! Open invitations: listed, replaced, revoked. What the page of each link says afterwards.

use idsvc::admin::stream::StreamLine;
use idsvc::admin::user::{
    InvitationView, InviteUser, ListInvitations, RemoveUser, ResetUser, RevokeInvitations, ShowUser,
    UpdateUser, UserFields,
};
use idsvc::clock::Clock;
use idsvc::identity::{LinkPurpose, OneTimeLink, SignUp};
use idsvc::oauth::Policy;
use idsvc::pages::text::{BUILT_IN, EN, Text};
use idsvc::store::StoreError;
use idsvc::store::schema::{META, meta_put};
use idsvc::store::tables::{INVITATIONS, ONE_TIME_LINKS};
use serde_json::{Value, json};

use crate::account_links::{choose, only_form, scene_with};
use crate::harness::process::{Service, said, shown};
use crate::harness::{Audit, Screen, Server, sweep_all};

const NEW: &str = "a password that is new";
const HOUR: u64 = 60 * 60;
const WEEK: u64 = 7 * 24 * HOUR;
const YEAR: u64 = 365 * 24 * HOUR;

/// A text of a page, in the language of the argument.
type Advice = for<'a> fn(&Text<'a>) -> &'a str;

fn by_invitation(policy: &mut Policy) {
    policy.accounts.sign_up = SignUp::Invitation;
}

async fn scene() -> Server {
    scene_with(by_invitation).await.0
}

fn request(email: &str) -> InviteUser {
    InviteUser {
        email: email.to_owned(),
        groups: Vec::new(),
        client_id: None,
    }
}

/// Invites a person. Returns the path of the link in the mail.
async fn invite(server: &Server, email: &str) -> String {
    server.admin().call(request(email)).await.unwrap();
    server.mail().await.link()
}

async fn revoke(server: &Server, email: &str) -> Result<usize, String> {
    let email = email.to_owned();
    let revoked = server.admin().call(RevokeInvitations { email }).await;
    revoked
        .map(|revoked| revoked.revoked.len())
        .map_err(|error| error.to_string())
}

fn open(server: &Server) -> Vec<InvitationView> {
    let mut lines = Vec::new();
    server.admin().stream(ListInvitations, &mut lines).unwrap();
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let records = lines.filter_map(|line| match serde_json::from_slice(line).unwrap() {
        StreamLine::Record(invitation) => Some(invitation),
        StreamLine::End => None,
    });
    records.collect()
}

fn addresses(server: &Server) -> Vec<String> {
    open(server)
        .into_iter()
        .map(|invitation| invitation.email)
        .collect()
}

async fn may_be_used(server: &Server, link: &str) -> bool {
    let page = server.browser().visit(link).await;
    page.status == 200 && page.heading() == EN.create_account
}

fn assert_says(page: &Screen, advice: &str) {
    assert_eq!(
        (page.status, page.heading().as_str()),
        (400, EN.error_link),
        "{}",
        page.text()
    );
    assert!(page.text().contains(advice), "{advice}: {}", page.text());
}

async fn exists(server: &Server, email: &str) -> bool {
    let who = email.to_owned();
    server.admin().call(ShowUser { who }).await.is_ok()
}

#[tokio::test]
async fn each_link_that_has_ended_says_how_in_every_language_and_names_nobody() {
    let server = scene().await;
    let used = invite(&server, "used@example.com").await;
    choose(&server.browser().visit(&used).await, NEW).await;
    server.mails().await;
    let revoked = invite(&server, "revoked@example.com").await;
    assert_eq!(revoke(&server, "revoked@example.com").await, Ok(1));
    let replaced = invite(&server, "replaced@example.com").await;
    invite(&server, "replaced@example.com").await;
    let ended: [(&str, Advice); 3] = [
        (&used, |text| text.error_link_used),
        (&revoked, |text| text.error_invitation_revoked),
        (&replaced, |text| text.error_invitation_replaced),
    ];
    assert_eq!(BUILT_IN.len(), 6);
    for language in &BUILT_IN {
        for (link, advice) in ended {
            let page = server.get(link).header("accept-language", language.tag).await;
            let text = page.text();
            assert_eq!(page.status, 400);
            assert!(text.contains(advice(language.text)), "{}: {text}", language.tag);
            assert!(!text.contains("@example.com"), "{text}");
        }
    }
    server.advance(WEEK);
    for language in &BUILT_IN {
        let page = server.get(&revoked).header("accept-language", language.tag).await;
        assert!(page.text().contains(language.text.error_invitation_revoked));
    }
    sweep_all(&server).await;
    server.advance(HOUR);
    sweep_all(&server).await;
    for language in &BUILT_IN {
        for (link, _) in ended {
            let page = server.get(link).header("accept-language", language.tag).await;
            assert!(page.text().contains(language.text.error_link_expired));
        }
    }
}

/// A stranger learns no more than that the link does not work.
#[tokio::test]
async fn a_guess_beside_a_real_invitation_learns_nothing() {
    let server = scene().await;
    let link = invite(&server, "bob@example.com").await;
    assert_eq!(revoke(&server, "bob@example.com").await, Ok(1));
    let (rest, last) = link.split_at(link.len() - 1);
    let other = if last == "A" { "B" } else { "A" };
    for guess in [
        format!("{rest}{other}"),
        "/link?token=idsvc_li_AAAA".to_owned(),
        "/link".to_owned(),
    ] {
        let page = server.browser().visit(&guess).await;
        assert_says(&page, EN.error_link_advice);
    }
}

#[tokio::test]
async fn an_invitation_lasts_a_week_and_then_says_that_it_has_expired() {
    let server = scene().await;
    let link = invite(&server, "bob@example.com").await;
    server.advance(WEEK - 1);
    assert!(may_be_used(&server, &link).await);
    assert_eq!(addresses(&server), ["bob@example.com"]);
    let page = server.browser().visit(&link).await;
    server.advance(1);
    assert_says(&choose(&page, NEW).await, EN.error_link_expired);
    assert_says(&server.browser().visit(&link).await, EN.error_link_expired);
    assert_eq!(addresses(&server), <[&str; 0]>::default());
    assert!(revoke(&server, "bob@example.com").await.is_err());
    server.advance(HOUR);
    sweep_all(&server).await;
    assert_says(&server.browser().visit(&link).await, EN.error_link_expired);
    let store = &server.app.core.store;
    let left = store.read_blocking(|snapshot| {
        Ok::<_, idsvc::store::StoreError>(INVITATIONS.count(snapshot)? + ONE_TIME_LINKS.count(snapshot)?)
    });
    assert_eq!(left.unwrap(), 0, "neither the link nor its index is left");
    assert!(!exists(&server, "bob@example.com").await);
}

#[tokio::test]
async fn what_ends_while_the_form_is_open_creates_no_account() {
    let server = scene().await;
    let link = invite(&server, "bob@example.com").await;
    let page = server.browser().visit(&link).await;
    assert_eq!(revoke(&server, "bob@example.com").await, Ok(1));
    assert_says(&choose(&page, NEW).await, EN.error_invitation_revoked);
    assert!(!exists(&server, "bob@example.com").await);

    let link = invite(&server, "bob@example.com").await;
    let page = server.browser().visit(&link).await;
    let newer = invite(&server, "bob@example.com").await;
    assert_says(&choose(&page, NEW).await, EN.error_invitation_replaced);
    assert!(!exists(&server, "bob@example.com").await);

    let (one, two) = (
        server.browser().visit(&newer).await,
        server.browser().visit(&newer).await,
    );
    assert_eq!(choose(&one, NEW).await.page(), "/account");
    assert_says(&choose(&two, NEW).await, EN.error_link_used);
    assert_eq!(addresses(&server), <[&str; 0]>::default());
}

#[tokio::test]
async fn of_two_invitations_at_once_one_is_open() {
    let server = scene().await;
    let admin = server.admin();
    let (one, two) = tokio::join!(
        admin.call(request("bob@example.com")),
        admin.call(request("BOB@example.com"))
    );
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(open(&server).len(), 1);
    let mut usable = 0;
    for mail in server.mails().await {
        usable += usize::from(may_be_used(&server, &mail.link()).await);
    }
    assert_eq!(usable, 1);
    assert_eq!(revoke(&server, "bob@example.com").await, Ok(1));
}

#[tokio::test]
async fn an_address_is_the_same_in_another_case_and_another_form() {
    let server = scene().await;
    let first = invite(&server, "J\u{fc}rgen@b\u{fc}cher.example").await;
    let second = invite(&server, "ju\u{308}rgen@XN--BCHER-KVA.example").await;
    assert_says(
        &server.browser().visit(&first).await,
        EN.error_invitation_replaced,
    );
    assert_eq!(open(&server).len(), 1);
    for stranger in ["jurgen@b\u{fc}cher.example", "bob@example.com", "", "no address"] {
        let refused = revoke(&server, stranger).await.unwrap_err();
        assert!(refused.contains("there is no open invitation"), "{refused}");
    }
    assert!(may_be_used(&server, &second).await);
    assert_eq!(revoke(&server, " J\u{dc}RGEN@B\u{dc}CHER.example").await, Ok(1));
    assert_says(
        &server.browser().visit(&second).await,
        EN.error_invitation_revoked,
    );
}

/// The clock was ahead when the invitation was made. It is void until that time, and can be revoked before.
#[tokio::test]
async fn an_invitation_from_a_time_ahead_is_taken_back_for_good() {
    let server = scene().await;
    let Clock::Manual(millis) = &server.clock else {
        panic!("the clock of the tests is moved by hand")
    };
    server.advance(YEAR);
    let link = invite(&server, "bob@example.com").await;
    millis.fetch_sub(YEAR * 1000, std::sync::atomic::Ordering::SeqCst);
    assert!(!may_be_used(&server, &link).await);
    assert_eq!(addresses(&server), ["bob@example.com"]);
    assert_eq!(revoke(&server, "bob@example.com").await, Ok(1));
    server.advance(YEAR);
    assert_says(&server.browser().visit(&link).await, EN.error_invitation_revoked);
}

/// Makes the stored invitations those of a release without the index, which let an address have several. If the index is said
/// to be complete, the next one replaces none.
fn make_older(server: &Server, is_complete: bool) {
    let made = server.app.core.store.write_blocking("test", move |tx| {
        for (row, ()) in INVITATIONS.scan(&*tx, .., usize::MAX)? {
            INVITATIONS.remove(tx, &row)?;
        }
        for (key, link) in ONE_TIME_LINKS.scan(&*tx, .., usize::MAX)? {
            let purpose = match link.purpose {
                LinkPurpose::CreateAccount(mut new) => {
                    new.invited_by = None;
                    LinkPurpose::CreateAccount(new)
                }
                other => other,
            };
            ONE_TIME_LINKS.put(tx, &key, &OneTimeLink { purpose, ..link })?;
        }
        if is_complete {
            return meta_put(tx, "invitations_index", "1");
        }
        META.remove(tx, "invitations_index").map(drop)
    });
    made.unwrap();
}

#[tokio::test]
async fn invitations_of_an_earlier_release_are_listed_work_and_can_be_taken_back() {
    let server = scene().await;
    let mut links = Vec::new();
    for email in [
        "bob@example.com",
        "bob@example.com",
        "Carol@example.com",
        "dan@example.com",
    ] {
        links.push(invite(&server, email).await);
        make_older(&server, true);
        server.advance(1);
    }
    make_older(&server, false);
    let listed = open(&server);
    assert_eq!(
        addresses(&server),
        [
            "bob@example.com",
            "bob@example.com",
            "Carol@example.com",
            "dan@example.com"
        ]
    );
    assert!(
        listed
            .iter()
            .all(|invitation| invitation.invited_by.is_none() && invitation.sent)
    );
    make_older(&server, false);
    assert_eq!(revoke(&server, "carol@example.com").await, Ok(1));
    make_older(&server, false);
    let newer = invite(&server, "dan@example.com").await;
    assert_says(
        &server.browser().visit(&links[3]).await,
        EN.error_invitation_replaced,
    );
    assert!(may_be_used(&server, &newer).await);
    make_older(&server, false);
    sweep_all(&server).await;
    let page = server.browser().visit(&links[0]).await;
    assert_eq!(choose(&page, NEW).await.page(), "/account");
    // The other one of the address has ended with it.
    assert_says(&server.browser().visit(&links[1]).await, EN.error_link_used);
    assert_eq!(addresses(&server), ["dan@example.com"]);
}

#[tokio::test]
async fn an_address_that_has_an_account_by_now_is_not_invited_any_more() {
    let server = scene().await;
    let link = invite(&server, "carol@example.com").await;
    let page = server.browser().visit(&link).await;
    server.user("carol").await;
    assert_eq!(addresses(&server), <[&str; 0]>::default());
    // The page does not say that there is an account.
    assert_says(&choose(&page, NEW).await, EN.error_link_advice);
    let again = server.admin().call(request("carol@example.com")).await;
    assert!(again.unwrap_err().to_string().contains("already"));
}

/// Until the account was removed or got another address, nobody could use the invitation. Nobody expects it to come back.
#[tokio::test]
async fn an_invitation_does_not_come_back_when_the_account_of_its_address_loses_it() {
    let server = scene().await;
    let mut links = Vec::new();
    for name in ["removed", "moved", "kept"] {
        links.push(invite(&server, &format!("{name}@example.com")).await);
        server.user(name).await;
    }
    let who = "removed@example.com".to_owned();
    server.admin().call(RemoveUser { who }).await.unwrap();
    let update = |who: &str, email: Option<&str>| UpdateUser {
        who: who.to_owned(),
        email: email.map(str::to_owned),
        account_id: email.map(str::to_owned),
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields::default(),
    };
    let moved = update("moved@example.com", Some("new@example.com"));
    server.admin().call(moved).await.unwrap();
    server
        .admin()
        .call(update("kept@example.com", None))
        .await
        .unwrap();
    for link in &links[..2] {
        assert_says(&server.browser().visit(link).await, EN.error_invitation_revoked);
    }
    assert_eq!(addresses(&server), <[&str; 0]>::default());
    // The person can be invited again.
    let link = invite(&server, "removed@example.com").await;
    assert!(may_be_used(&server, &link).await);
}

/// A node of an earlier release uses a link up and leaves the index as it is.
#[tokio::test]
async fn a_row_of_the_index_goes_when_its_link_is_gone() {
    let server = scene().await;
    let link = invite(&server, "bob@example.com").await;
    let core = &server.app.core;
    let forget = core.store.write("test", |tx| -> Result<_, StoreError> {
        for (key, _) in ONE_TIME_LINKS.scan(&*tx, .., usize::MAX)? {
            ONE_TIME_LINKS.remove(tx, &key)?;
        }
        Ok(())
    });
    forget.await.unwrap();
    assert!(!may_be_used(&server, &link).await);
    let count = || core.store.read_blocking(|snapshot| INVITATIONS.count(snapshot));
    assert_eq!(count().unwrap(), 1);
    let newer = invite(&server, "bob@example.com").await;
    assert!(may_be_used(&server, &newer).await);
    assert_eq!(count().unwrap(), 1, "that of the newer one");
}

#[tokio::test]
async fn events_say_who_was_invited_by_whom_and_what_became_of_it() {
    let server = scene().await;
    let audit = Audit::listen();
    let names = [
        "person_invited",
        "invitation_revoked",
        "invitation_accepted",
        "account_created",
    ];
    let actor = server.admin().actor.to_string();
    invite(&server, "bob@example.com").await;
    let [invited] = &audit.take(&names)[..] else {
        panic!("one event")
    };
    let first = open(&server).remove(0);
    assert_eq!(first.invited_by.as_ref(), Some(&actor));
    assert_eq!(invited["invitation"], first.id.to_string());
    assert_eq!(invited["actor"], actor);

    let link = invite(&server, "bob@example.com").await;
    let second = open(&server).remove(0);
    let events = audit.take(&names);
    let told: Vec<_> = events
        .iter()
        .map(|event| (&event["event"], &event["invitation"], &event["reason"]))
        .collect();
    assert_eq!(
        told,
        [
            (
                &json!("invitation_revoked"),
                &json!(first.id.to_string()),
                &json!("replaced")
            ),
            (
                &json!("person_invited"),
                &json!(second.id.to_string()),
                &Value::Null
            ),
        ]
    );

    choose(&server.browser().visit(&link).await, NEW).await;
    let events = audit.take(&names);
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(events[1]["event"], "invitation_accepted");
    assert_eq!(events[1]["invitation"], second.id.to_string());
    assert_eq!(events[0]["user"], events[1]["user"]);

    invite(&server, "carol@example.com").await;
    audit.take(&names);
    assert_eq!(revoke(&server, "carol@example.com").await, Ok(1));
    let revoked = audit.take(&["invitation_revoked", "administered"]);
    assert_eq!(revoked[0]["reason"], "command");
    assert_eq!(revoked[1]["command"], "user invitations");
    assert_eq!(revoked[1]["subject"], "carol@example.com");
}

/// An invitation is one kind of link. Here it is one to choose a new password.
#[tokio::test]
async fn every_link_says_that_it_was_used_or_has_expired() {
    let (server, _, alice) = scene_with(by_invitation).await;
    let reset = || ResetUser {
        who: alice.sub(),
        mail: true,
    };
    server.admin().call(reset()).await.unwrap();
    let link = server.mail().await.link();
    choose(&server.browser().visit(&link).await, NEW).await;
    assert_says(&server.browser().visit(&link).await, EN.error_link_used);
    server.mails().await;
    server.admin().call(reset()).await.unwrap();
    let link = server.mail().await.link();
    server.advance(24 * HOUR);
    assert_says(&server.browser().visit(&link).await, EN.error_link_expired);
}

/// The commands, with a service and without one.
#[test]
fn the_commands_list_and_take_back_what_is_open() {
    let service = Service::with_client().with("IDSVC_ACCOUNTS_SIGN_UP", "invitation");
    assert!(service.run(&["group", "add", "staff"]).status.success());
    let empty = service.run(&["user", "invitations"]);
    assert!(said(&empty).contains("no invitation is open"), "{}", said(&empty));
    assert_eq!(service.json(&["user", "invitations", "--json"]), json!([]));
    let all = [
        "user",
        "invite",
        "Bob@example.com",
        "--group",
        "staff",
        "--client",
        "web",
        "--json",
    ];
    let printed = service.json(&all);
    let link = printed["link"]
        .as_str()
        .unwrap()
        .strip_prefix(&service.issuer())
        .unwrap()
        .to_owned();

    let check = || {
        let listed = service.json(&["user", "invitations", "--json"]);
        let [invitation] = &listed.as_array().unwrap()[..] else {
            panic!("{listed}")
        };
        let members: Vec<_> = invitation
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let expected = [
            "client_id",
            "created_at",
            "email",
            "expires_at",
            "groups",
            "id",
            "invited_by",
            "sent",
        ];
        let mut sorted = members.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!(invitation["email"], "Bob@example.com");
        assert_eq!(invitation["groups"], json!(["staff"]));
        assert_eq!(
            (&invitation["client_id"], &invitation["sent"]),
            (&json!("web"), &json!(false))
        );
        assert!(invitation["invited_by"].as_str().unwrap().starts_with("uid "));
        assert_eq!(invitation["expires_at"], printed["expires_at"]);
        let created = invitation["created_at"].as_u64().unwrap();
        let expires = invitation["expires_at"].as_u64().unwrap();
        assert!((WEEK - 1..=WEEK).contains(&(expires - created)));
        let table = shown(&service.run(&["user", "invitations"]));
        assert!(
            table.contains("Bob@example.com") && table.contains("as a printed link"),
            "{table}"
        );
        let refused = service.run(&["user", "invitations", "--revoke", "carol@example.com"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains("there is no open invitation for carol@example.com"));
    };
    check();
    let running = service.serve();
    check();
    let opened = running.request("GET", &link, &[], "").unwrap();
    assert_eq!(opened.status, 303);
    let revoked = service.json(&["user", "invitations", "--revoke", "BOB@example.com", "--json"]);
    assert_eq!(revoked["email"], "bob@example.com");
    assert_eq!(revoked["revoked"].as_array().unwrap().len(), 1);
    let opened = running.request("GET", &link, &[], "").unwrap();
    assert_eq!(opened.status, 400);
    let again = service.run(&["user", "invitations", "--revoke", "bob@example.com"]);
    assert_eq!(again.status.code(), Some(1));
}

/// An address with another local part is another person.
#[tokio::test]
async fn taking_one_back_leaves_the_others() {
    let server = scene().await;
    let bob = invite(&server, "bob@example.com").await;
    invite(&server, "bob+home@example.com").await;
    let page = server.browser().visit(&bob).await;
    assert_eq!(revoke(&server, "bob+home@example.com").await, Ok(1));
    let form = only_form(&page).with("new-password", NEW).with("name", "Bob");
    let done = page.browser().submit(&form).await;
    assert_eq!((done.status, done.page()), (200, "/account"));
    assert!(exists(&server, "bob@example.com").await);
}
