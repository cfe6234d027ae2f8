//! The clock is a year ahead for a while. What was begun meanwhile does not last a year longer.

use std::sync::atomic::Ordering;

use idsvc::clock::Clock;
use idsvc::pages::text::EN;

use crate::account_links::{ask_for_reset, enter_code, scene_with};
use crate::harness::{Screen, Server};

const YEAR: u64 = 365 * 24 * 60 * 60;

fn set_back(server: &Server, seconds: u64) {
    let Clock::Manual(millis) = &server.clock else {
        panic!("the clock of the tests is moved by hand")
    };
    millis.fetch_sub(seconds * 1000, Ordering::SeqCst);
}

fn may_choose_a_password(page: &Screen) -> bool {
    page.status == 200 && page.heading() == EN.new_password_title
}

#[tokio::test]
async fn the_link_and_the_code_of_a_mail_from_a_time_ahead_are_void_until_that_time() {
    let (server, acme, alice) = scene_with(|_| {}).await;
    server.advance(YEAR);
    let (sent, mail) = ask_for_reset(&server, &acme, &alice.browser(), "alice@example.com").await;
    set_back(&server, YEAR);
    for hours in [0, 24, 24 * 300] {
        server.advance(hours * 60 * 60);
        let opened = server.browser().visit(&mail.link()).await;
        assert!(!may_choose_a_password(&opened), "{hours}");
        assert_eq!(opened.heading(), EN.error_link, "{hours}");
        set_back(&server, hours * 60 * 60);
    }
    let typed = enter_code(&sent, &mail.code()).await;
    assert!(!may_choose_a_password(&typed), "{}", typed.text());
    // A clock that was behind has been put right.
    server.advance(YEAR);
    assert!(may_choose_a_password(&server.browser().visit(&mail.link()).await));
}

/// A correction by minutes ends nothing.
#[tokio::test]
async fn a_mail_outlives_a_small_correction_of_the_clock() {
    let (server, acme, alice) = scene_with(|_| {}).await;
    server.advance(20 * 60);
    let (sent, mail) = ask_for_reset(&server, &acme, &alice.browser(), "alice@example.com").await;
    set_back(&server, 20 * 60);
    assert!(may_choose_a_password(&server.browser().visit(&mail.link()).await));
    assert!(may_choose_a_password(&enter_code(&sent, &mail.code()).await));
}
