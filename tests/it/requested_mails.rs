//! What strangers can do with the mails that pages send: whom they reach, what their codes tell, what waits in the store.

use std::net::Ipv6Addr;

use idsvc::mail::Content;
use idsvc::pages::text::EN;
use idsvc::store::StoreError;
use idsvc::store::record::Record;
use idsvc::store::tables::{ONE_TIME_LINKS, OUTBOX};

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

/// The sender chooses what follows `+`, and the mailbox is the same.
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

/// The bytes of each stored link, and how many mails wait.
fn waiting(server: &Server) -> (Vec<usize>, u64) {
    let store = &server.app.core.store;
    let read = store.read_blocking(|snapshot| {
        let links = ONE_TIME_LINKS.scan(snapshot, .., usize::MAX)?;
        Ok((links, OUTBOX.count(snapshot)?))
    });
    let (links, mails) = read.unwrap();
    let bytes = |(_, link): &(_, idsvc::identity::OneTimeLink)| {
        let mut row = Vec::new();
        link.encode(&mut row).unwrap();
        row.len()
    };
    (links.iter().map(bytes).collect(), mails)
}

/// An authorization request with much in it, which its sign-in carries along.
async fn begin_long(acme: &RelyingParty, browser: &Browser, length: usize) -> Screen {
    let request = acme.request().with("state", &"s".repeat(length));
    browser.authorize(&request).await
}

#[tokio::test]
async fn a_made_up_name_leaves_one_short_row() {
    let (server, acme, _alice) = scene_with(by_mail).await;
    let longest = format!("{}@example.com", "n".repeat(200));
    for (number, name) in ["nobody@example.com", &longest].into_iter().enumerate() {
        for (turn, link) in [EN.forgot_password, EN.sign_in_by_mail].into_iter().enumerate() {
            let login = begin_long(&acme, &server.browser(), 4_000).await;
            let sent = request_mail(&login, link, name).await;
            assert_eq!(sent.heading(), EN.check_mail_title);
            let (links, mails) = waiting(&server);
            assert_eq!((links.len(), mails), (2 * number + turn + 1, 0));
            assert!(links.iter().all(|bytes| *bytes < 200), "{links:?}");
        }
    }
}

#[tokio::test]
async fn of_a_mail_that_was_sent_a_short_row_is_left() {
    let (server, acme, _alice) = scene_with(open).await;
    for (link, name) in [
        (EN.create_account, "nobody@example.com"),
        (EN.forgot_password, "alice@example.com"),
    ] {
        let login = begin_long(&acme, &server.browser(), 4_000).await;
        request_mail(&login, link, name).await;
        server.mail().await;
    }
    let (links, mails) = waiting(&server);
    assert_eq!((links.len(), mails), (2, 0));
    assert!(links.iter().all(|bytes| *bytes < 400), "{links:?}");
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

/// The cookie is of no use to another browser, and the newest sign-ins are kept.
#[tokio::test]
async fn the_browser_keeps_the_sign_in_of_a_mail_in_a_cookie() {
    let (server, acme, _alice) = scene_with(by_mail).await;
    let browser = server.browser();
    let login = begin_long(&acme, &browser, 1_500).await;
    request_mail(&login, EN.sign_in_by_mail, "alice@example.com").await;
    let mail = server.mail().await;
    let names: Vec<_> = browser.cookies().into_keys().collect();
    let kept = names.iter().find(|name| name.starts_with("__Host-idsvc_mail_"));
    let kept = kept.unwrap_or_else(|| panic!("{names:?}"));
    let thief = server.browser();
    thief.set_cookie(kept, &browser.cookie(kept).unwrap());
    assert_eq!(thief.visit(&mail.link()).await.heading(), EN.error_other_browser);
    let page = browser.visit(&mail.link()).await;
    assert_eq!(page.heading(), EN.sign_in);
    for _ in 0..6 {
        let login = begin_long(&acme, &browser, 1_500).await;
        request_mail(&login, EN.sign_in_by_mail, "nobody@example.com").await;
        server.advance(15 * 60);
    }
    let cookies = browser.cookies();
    let values = cookies
        .iter()
        .filter(|(name, _)| name.starts_with("__Host-idsvc_mail_"));
    let bytes: usize = values.map(|(_, value)| value.len()).sum();
    assert!((1..=6 * 1024).contains(&bytes), "{bytes}");
}

/// As releases before this one stored it.
#[tokio::test]
async fn a_link_whose_row_has_the_sign_in_continues_it_without_a_cookie() {
    let (server, acme, _alice) = scene_with(by_mail).await;
    let browser = server.browser();
    let login = begin(&acme, &browser).await;
    let sealed = login.login_form().value("transaction").unwrap().to_owned();
    request_mail(&login, EN.sign_in_by_mail, "alice@example.com").await;
    let mail = server.mail().await;
    let store = &server.app.core.store;
    let write = store.write("keep_in_row", move |tx| -> Result<_, StoreError> {
        let links = ONE_TIME_LINKS.scan(&*tx, .., usize::MAX)?;
        for (key, mut link) in links {
            link.requested_in.as_mut().unwrap().sealed = Some(sealed.clone());
            ONE_TIME_LINKS.put(tx, &key, &link)?;
        }
        Ok(())
    });
    write.await.unwrap();
    browser.rename_cookies(|name| name.replace("_mail_", "_gone_"));
    let page = browser.visit(&mail.link()).await;
    assert_eq!(page.heading(), EN.sign_in);
}
