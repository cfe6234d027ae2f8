//! What strangers can do with the mails that pages send: whom they reach, what their codes tell.

use std::net::Ipv6Addr;

use idsvc::mail::Content;
use idsvc::pages::text::EN;

use crate::account_links::{begin, by_mail, choose, enter_code, open, request_mail, scene_with};
use crate::harness::{Browser, RelyingParty, Screen, Server};

const HOUR: u64 = 60 * 60;

/// A page without the values of its attributes, some of which are drawn anew each time, and without this name.
fn visible(page: &Screen, name: &str) -> String {
    let outside: String = page.text().split('"').step_by(2).collect();
    outside.replace(name, "")
}

/// Another code than this one.
fn wrong(code: &str) -> &'static str {
    if code == "123456" { "654321" } else { "123456" }
}

/// The page of the code, and the code, of a mail to a new person.
async fn sign_up(server: &Server, acme: &RelyingParty, browser: &Browser, who: &str) -> (Screen, String) {
    let login = begin(acme, browser).await;
    server.mails().await;
    let sent = request_mail(&login, EN.create_account, who).await;
    assert_eq!(sent.page(), "/check-mail");
    let code = server.mail().await.code();
    (sent, code)
}

/// The limit of a user is reached by the hundredth wrong code. What happens then must not be seen.
#[tokio::test]
async fn after_a_hundred_wrong_codes_known_and_unknown_names_look_alike() {
    let (server, acme, _alice) = scene_with(|_| {}).await;
    let names = ["alice@example.com".to_owned(), "nobody@example.com".to_owned()];
    for round in 0..22 {
        let mut seen = [Vec::new(), Vec::new()];
        for (name, seen) in names.iter().zip(&mut seen) {
            let login = begin(&acme, &server.browser()).await;
            let sent = request_mail(&login, EN.forgot_password, name).await;
            let code = server.mails().await.pop().map(|mail| mail.code());
            let wrong = code.as_deref().map_or("123456", wrong);
            for number in 0..6 {
                // At the limit, the right code is no different.
                let is_right = round >= 20 && number == 0;
                let typed = code.as_deref().filter(|_| is_right).unwrap_or(wrong);
                let page = enter_code(&sent, typed).await;
                seen.push((page.status, visible(&page, name)));
            }
        }
        let [known, unknown] = seen;
        assert_eq!(known, unknown, "round {round}");
        server.advance(5 * HOUR);
    }
}

/// What follows `+` is chosen by whoever types it, and the mailbox is the same.
#[tokio::test]
async fn plus_addresses_count_as_one_mailbox() {
    let (server, acme, _alice) = scene_with(open).await;
    let login = begin(&acme, &server.browser()).await;
    for number in 0..6 {
        let page = request_mail(&login, EN.create_account, &format!("Bob+{number}@example.com")).await;
        assert_eq!(page.status, if number < 4 { 200 } else { 429 }, "{number}");
    }
    assert_eq!(server.mails().await.len(), 4);
    let other = request_mail(&login, EN.create_account, "bobby@example.com").await;
    assert_eq!(other.page(), "/check-mail");
    let elsewhere = request_mail(&login, EN.create_account, "bob@elsewhere.example").await;
    assert_eq!(elsewhere.page(), "/check-mail");
}

/// Nobody has the address yet, so no user has a count of wrong codes.
#[tokio::test]
async fn codes_of_an_address_are_guessed_a_limited_number_of_times_whatever_mail_they_are_of() {
    let (server, acme, _alice) = scene_with(open).await;
    for number in 0..4 {
        let who = format!("victim+{number}@example.com");
        let (sent, code) = sign_up(&server, &acme, &server.browser(), &who).await;
        for _ in 0..5 {
            assert_eq!(enter_code(&sent, wrong(&code)).await.status, 200);
        }
    }
    server.advance(15 * 60);
    let login = begin(&acme, &server.browser()).await;
    let sent = request_mail(&login, EN.create_account, "victim@example.com").await;
    let mail = server.mail().await;
    for typed in [wrong(&mail.code()).to_owned(), mail.code()] {
        let refused = enter_code(&sent, &typed).await;
        assert_eq!(refused.status, 429);
        assert!(refused.header("retry-after").is_some());
    }
    let page = server.browser().visit(&mail.link()).await;
    assert_eq!(choose(&page, "a password that is new").await.page(), "/account");
}

#[tokio::test]
async fn right_codes_are_not_counted() {
    let (server, acme, _alice) = scene_with(by_mail).await;
    for _ in 0..25 {
        let login = begin(&acme, &server.browser()).await;
        server.mails().await;
        let sent = request_mail(&login, EN.sign_in_by_mail, "alice@example.com").await;
        let mails = server.mails().await;
        let code = mails
            .iter()
            .find(|mail| matches!(mail.message.content, Content::SignIn { .. }));
        enter_code(&sent, &code.unwrap().code()).await.callback().code();
        server.advance(15 * 60);
    }
}

/// Otherwise strangers could have the service send mails to any number of people. The limit does not tell who has an
/// account.
#[tokio::test]
async fn mails_of_the_page_for_a_new_account_are_limited_for_all_people_together() {
    let (server, acme, _alice) = scene_with(open).await;
    let login = begin(&acme, &server.browser()).await;
    let now = server.clock.now();
    for number in 0..998_u32 {
        let from = Ipv6Addr::from_bits((0x2001 << 112) | (u128::from(number) << 80) | 1);
        let limits = &server.app.limits;
        limits
            .request_account(&number.to_string(), from.into(), now)
            .unwrap();
    }
    for name in ["alice@example.com", "bob@example.com"] {
        let sent = request_mail(&login, EN.create_account, name).await;
        assert_eq!(sent.page(), "/check-mail");
    }
    for name in ["alice@example.com", "carol@example.com"] {
        let refused = request_mail(&login, EN.create_account, name).await;
        assert_eq!(refused.status, 429, "{name}");
        assert!(refused.header("retry-after").is_some());
    }
    let sent = request_mail(&login, EN.forgot_password, "alice@example.com").await;
    assert_eq!(sent.page(), "/check-mail");
    server.advance(2);
    let later = request_mail(&login, EN.create_account, "carol@example.com").await;
    assert_eq!(later.page(), "/check-mail");
}
