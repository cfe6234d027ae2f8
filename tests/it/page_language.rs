//! The language that a reader chooses below a page: the page stays what it is, and the form below it is sent without script.

use idsvc::oauth::client::ConsentRequirement;
use idsvc::pages::text::{DE, EN};

use crate::account_links::{begin, request_mail};
use crate::harness::html::{self, Form};
use crate::harness::{ISSUER, Screen, Server, write_form};
use crate::second_factor::{enrol, half, is_signed_in, scene, type_code};

/// The form with the languages.
fn languages(page: &Screen) -> Option<Form> {
    let german = ("lang".to_owned(), "de".to_owned());
    let mut forms = html::forms(page.text(), ISSUER).into_iter();
    forms.find(|form| form.method == "get" && form.buttons.contains(&german))
}

/// Presses the button for German.
async fn in_german(page: &Screen) -> Screen {
    let form = languages(page).unwrap_or_else(|| panic!("no languages on {}", page.text()));
    let query = write_form(&form.with("lang", "de").fields);
    let german = page.browser().visit(&format!("{}?{query}", page.page())).await;
    assert!(german.text().contains("<html lang=\"de\""), "{}", german.text());
    german
}

#[tokio::test]
async fn the_page_of_the_second_step_goes_on_in_another_language() {
    let (server, acme, alice) = scene().await;
    let (app, codes) = enrol(&server, &alice.browser()).await;
    server.advance(30);
    let page = in_german(&half(&alice, &acme).await).await;
    assert_eq!(page.heading(), DE.second_factor_title);
    let wrong = type_code(&page, "000").await;
    assert!(wrong.text().contains(DE.problem_second_factor));
    assert!(is_signed_in(&type_code(&page, &app.code(&server, 0)).await));

    let page = half(&alice, &acme).await;
    let recovery = page.browser().visit(&format!("{}&recovery=1", page.path)).await;
    let german = in_german(&recovery).await;
    assert!(german.text().contains(DE.second_factor_recovery_lead));
    assert!(is_signed_in(&type_code(&german, &codes[0]).await));
}

#[tokio::test]
async fn the_page_for_the_code_of_a_mail_goes_on_in_another_language() {
    let (server, acme, alice) = scene().await;
    let sent = request_mail(
        &begin(&acme, &alice.browser()).await,
        EN.forgot_password,
        &alice.user.account_id,
    )
    .await;
    let german = in_german(&sent).await;
    assert_eq!(german.heading(), DE.check_mail_title);
    let mail = server.mail().await;
    let mut forms = german.forms().into_iter();
    let form = forms.find(|form| form.value("code").is_some()).unwrap();
    let next = german.browser().submit(&form.with("code", &mail.code())).await;
    assert_eq!(
        (next.page(), next.heading().as_str()),
        ("/link", DE.new_password_title)
    );
}

#[tokio::test]
async fn an_error_page_says_the_same_in_another_language() {
    let server = Server::start().await;
    let browser = server.browser();
    for path in [
        "/error",
        "/login?transaction=old",
        "/second-factor?transaction=%22%3E&proof=x",
    ] {
        let page = browser.visit(path).await;
        let german = in_german(&page).await;
        assert_eq!(german.status, page.status);
        assert_eq!(
            languages(&german).unwrap().fields,
            languages(&page).unwrap().fields
        );
    }
    // A request of an application is not repeated, and neither is a long address.
    let long = format!("/login?transaction={}", "x".repeat(5_000));
    for path in ["/oauth2/authorize?client_id=nobody&transaction=x", &long] {
        assert!(languages(&browser.visit(path).await).is_none(), "{path}");
    }
}

#[tokio::test]
async fn the_consent_page_groups_what_is_asked_for() {
    let (server, acme, alice) = crate::harness::scene().await;
    server
        .change_client(&acme, |client| client.consent = ConsentRequirement::Require)
        .await;
    let consent_to = async |scope: &str| {
        let request = acme.request().with("scope", scope);
        alice.browser().authorize(&request).await.sign_in().await
    };
    let page = consent_to("openid offline_access").await;
    let place = |text: &str| page.text().find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(place(EN.scopes_identity) < place(EN.scope_openid));
    assert!(place(EN.scope_openid) < place(EN.scopes_offline));
    assert!(place(EN.scopes_offline) < place(EN.scope_offline_access));
    let page = consent_to("openid").await;
    assert!(!page.text().contains("scope-group"), "one group needs no heading");
}
