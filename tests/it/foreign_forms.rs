//! Forms whose browser says that they came from elsewhere, or does not say where they came from.

use idsvc::identity::account_policy::SignUp;
use idsvc::oauth::client::{AuthMethod, ConsentRequirement, GrantType};
use idsvc::pages::text::EN;

use crate::harness::html::Form;
use crate::harness::server::Setup;
use crate::harness::{Audit, Browser, ISSUER, Server};

type Headers = &'static [(&'static str, &'static str)];

/// A form of each kind of page, with the browser that may send it.
struct PageForm {
    name: &'static str,
    browser: Browser,
    form: Form,
}

/// The forms of the pages, each of a browser of its own.
async fn forms() -> (Server, Vec<PageForm>) {
    let mut setup = Setup::default();
    setup.policy.accounts.sign_up = SignUp::Open;
    setup.limits.enabled = false;
    let server = setup.start().await;
    let acme = server.client("acme").await;
    let careful = server
        .client_with("careful", |client| client.consent = ConsentRequirement::Require)
        .await;
    let alice = server.user("alice").await;
    let mut forms = Vec::new();
    let mut add = |name, browser: &Browser, form| {
        forms.push(PageForm {
            name,
            browser: browser.clone(),
            form,
        });
    };
    let browser = alice.browser();
    let login = browser.authorize(&acme.request()).await;
    let typed = login
        .login_form()
        .with("username", "alice@example.com")
        .with("password", &alice.password);
    add("login", &browser, typed);

    let browser = alice.browser();
    let consent = browser.authorize(&careful.request()).await.sign_in().await;
    add("consent", &browser, consent.decision_form("allow"));

    let browser = alice.browser();
    browser.visit("/account").await.sign_in().await;
    let logout = browser.visit("/logout/confirm").await;
    add("sign-out", &browser, logout.decision_form("logout"));

    let browser = alice.browser();
    let account = browser.visit("/account/devices").await.sign_in().await;
    let mut on_page = account.forms().into_iter();
    let sessions = on_page
        .find(|form| form.value("decision") == Some("sessions"))
        .unwrap();
    add("account", &browser, sessions.with("session", "others"));

    let browser = server.browser();
    let login = browser.authorize(&acme.request().with("prompt", "create")).await;
    let mut on_page = login.forms().into_iter();
    let register = on_page.find(|form| form.value("address").is_some()).unwrap();
    add("register", &browser, register.with("address", "bob@example.com"));

    let tv = server
        .client_with("tv", |client| {
            client.token_endpoint_auth_methods = [AuthMethod::None].into();
            client.secrets.clear();
            client.redirect_uris.clear();
            client.grant_types = [GrantType::DeviceCode].into();
        })
        .await;
    let codes = tv.post("/oauth2/device_authorization").await;
    let code = codes.json()["user_code"].as_str().unwrap().to_owned();
    let browser = alice.browser();
    browser.visit("/account").await.sign_in().await;
    let mut on_page = browser.visit("/device").await.forms().into_iter();
    let device = on_page.find(|form| form.value("user_code").is_some()).unwrap();
    add("device", &browser, device.with("user_code", &code));
    (server, forms)
}

/// A proxy that sets `Referrer-Policy: no-referrer` makes browsers send it so.
#[tokio::test]
async fn a_form_without_an_origin_is_taken_if_the_browser_says_that_it_is_of_this_site() {
    let (_server, forms) = Box::pin(forms()).await;
    let headers = [("origin", "null"), ("sec-fetch-site", "same-origin")];
    for PageForm { name, browser, form } in forms {
        let taken = browser.submit_with(&form, &headers).await;
        assert_eq!(taken.status, 303, "{name}: {}", taken.text());
    }
}

#[tokio::test]
async fn a_form_from_elsewhere_is_refused_and_the_page_and_the_log_say_why() {
    let (_server, forms) = Box::pin(forms()).await;
    let refused: [(Headers, &str); 5] = [
        (
            &[("origin", "null"), ("sec-fetch-site", "cross-site")],
            "Sec-Fetch-Site says that another site sent the form",
        ),
        (
            &[("origin", "null")],
            "Origin of the form is null and there is no Sec-Fetch-Site; see Referrer-Policy",
        ),
        (
            &[("origin", "null"), ("sec-fetch-site", "none")],
            "Origin of the form is null and Sec-Fetch-Site is not same-origin",
        ),
        (
            &[
                ("origin", "https://evil.example"),
                ("sec-fetch-site", "same-site"),
            ],
            "Sec-Fetch-Site says that another site sent the form",
        ),
        (
            &[
                ("origin", "https://EVIL.example"),
                ("sec-fetch-site", "same-origin"),
            ],
            "Origin of the form is not that of base_url",
        ),
    ];
    let audit = Audit::listen();
    for PageForm { name, browser, form } in &forms {
        for (headers, reason) in refused {
            let page = browser.submit_with(form, headers).await;
            assert_eq!(page.status, 400, "{name}: {headers:?}");
            assert_eq!(page.heading(), EN.error_foreign_form, "{name}");
            assert!(page.text().contains(EN.error_foreign_form_advice), "{name}");
            let [refusal] = &audit.refusals()[..] else {
                panic!("{name}: {headers:?}")
            };
            assert_eq!(refusal["description"], reason, "{name}");
            assert_eq!(refusal["own_origin"], ISSUER, "{name}");
        }
        let elsewhere = &[
            ("origin", "https://evil.example"),
            ("sec-fetch-site", "same-origin"),
        ];
        let page = browser.submit_with(form, elsewhere).await;
        assert_eq!(page.header("location"), None, "{name}");
        assert_eq!(audit.refusals().len(), 1, "{name}");
    }
    for PageForm { name, browser, form } in forms {
        let page = browser.submit(&form.without("csrf")).await;
        assert_ne!(page.heading(), EN.error_foreign_form, "{name}");
        let refusals = audit.refusals();
        assert_eq!(
            refusals[0]["description"], "form has no csrf token of its page in this browser",
            "{name}"
        );
    }
}
