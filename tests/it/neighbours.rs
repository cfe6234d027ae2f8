//! Several services on one host: cookies know neither port nor path (RFC 6265 section 8.5).

use std::time::Duration;

use crate::harness::{Browser, Person, Screen, Server};

/// A service with a user.
struct Neighbour {
    server: Server,
    alice: Person,
    path: &'static str,
}

impl Neighbour {
    async fn start(issuer: &str, path: &'static str) -> Self {
        let server = Server::start_with(|policy| policy.issuer = format!("{issuer}{path}")).await;
        let alice = server.user("alice").await;
        Self { server, alice, path }
    }

    /// A browser that begins at this service and visits others later.
    fn browser(&self) -> Browser {
        self.server.browser()
    }

    async fn account(&self, browser: &Browser) -> Screen {
        let browser = browser.visiting(&self.server.browser());
        browser.visit(&format!("{}/account", self.path)).await
    }

    async fn is_signed_in(&self, browser: &Browser) -> bool {
        self.account(browser).await.page() == format!("{}/account", self.path)
    }

    async fn sign_in(&self, browser: &Browser) {
        let login = self.account(browser).await;
        let form = login
            .login_form()
            .with("username", "alice@example.com")
            .with("password", &self.alice.password);
        let own = [("sec-fetch-site", "same-origin")];
        let done = login.browser().submit_with(&form, &own).await.follow().await;
        assert_eq!(done.page(), format!("{}/account", self.path));
    }

    async fn sign_out(&self, browser: &Browser) {
        let browser = browser.visiting(&self.server.browser());
        let page = browser.visit(&format!("{}/logout/confirm", self.path)).await;
        let own = [("sec-fetch-site", "same-origin")];
        browser.submit_with(&page.decision_form("logout"), &own).await;
    }
}

const HOST: &str = "https://id.example.test";

fn ports_and_paths() -> [(String, &'static str); 4] {
    [
        (HOST.to_owned(), ""),
        (format!("{HOST}:8443"), ""),
        (format!("{HOST}:8444"), ""),
        (HOST.to_owned(), "/staging"),
    ]
}

#[tokio::test]
async fn services_on_one_host_do_not_sign_each_others_people_out() {
    let mut services = Vec::new();
    for (issuer, path) in ports_and_paths() {
        services.push(Neighbour::start(&issuer, path).await);
    }
    let browser = services[0].browser();
    for service in &services {
        assert!(!service.is_signed_in(&browser).await);
        service.sign_in(&browser).await;
    }
    for (leaving, service) in services.iter().enumerate() {
        service.sign_out(&browser).await;
        for (index, other) in services.iter().enumerate() {
            assert_eq!(
                other.is_signed_in(&browser).await,
                index > leaving,
                "{index} after {leaving} was left"
            );
        }
    }
}

#[tokio::test]
async fn the_names_of_a_service_with_a_port_or_a_path_end_in_eight_digits() {
    for (issuer, path) in ports_and_paths() {
        let service = Neighbour::start(&issuer, path).await;
        let browser = service.browser();
        service.sign_in(&browser).await;
        let cookies = browser.cookies();
        assert_eq!(cookies.len(), 3, "{cookies:?}");
        for name in cookies.keys() {
            let (_, last) = name.rsplit_once('_').unwrap();
            let is_digest = last.len() == 8 && last.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert_eq!(is_digest, (issuer.as_str(), path) != (HOST, ""), "{name}");
        }
    }
}

/// The name that an earlier release gave the cookie.
fn old_name(name: &str) -> String {
    match name.rsplit_once('_') {
        Some((start, last)) if last.len() == 8 && last.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            start.to_owned()
        }
        _ => name.to_owned(),
    }
}

#[tokio::test]
async fn a_person_who_was_signed_in_before_an_upgrade_stays_so_and_can_sign_out() {
    for (issuer, path) in ports_and_paths() {
        let service = Neighbour::start(&issuer, path).await;
        let browser = service.browser();
        service.sign_in(&browser).await;
        let new = browser.cookies();
        browser.rename_cookies(old_name);
        assert!(service.is_signed_in(&browser).await);
        let cookies = browser.cookies();
        assert!(
            new.iter().all(|(name, value)| cookies.get(name) == Some(value)),
            "{cookies:?}"
        );
        service.sign_out(&browser).await;
        assert!(!service.is_signed_in(&browser).await);
        let left = browser.cookies();
        assert!(left.keys().all(|name| !name.contains("session")), "{left:?}");
    }
}

#[tokio::test]
async fn the_old_name_of_a_cookie_is_read_once() {
    let service = Neighbour::start(&format!("{HOST}:8443"), "").await;
    let browser = service.browser();
    service.sign_in(&browser).await;
    browser.rename_cookies(old_name);
    assert!(service.is_signed_in(&browser).await);
    browser.set_cookie("__Host-idsvc_session", "idsvc_se_of_a_neighbour");
    assert!(service.is_signed_in(&browser).await);
    service.sign_out(&browser).await;
    assert_eq!(
        browser.cookie("__Host-idsvc_session").as_deref(),
        Some("idsvc_se_of_a_neighbour")
    );
}

/// The service at the root of the host has the names that earlier releases gave all services.
#[tokio::test]
async fn a_sign_out_at_a_service_without_a_session_leaves_the_session_of_its_neighbour() {
    let root = Neighbour::start(HOST, "").await;
    for port in [8443, 8444] {
        let service = Neighbour::start(&format!("{HOST}:{port}"), "").await;
        let acme = service.server.client("acme").await;
        let elsewhere = service.browser();
        service.sign_in(&elsewhere).await;
        let tokens = acme.tokens(&elsewhere).await;
        let browser = root.browser();
        root.sign_in(&browser).await;
        // An answer to this browser has given the session the name of this service.
        assert!(!service.is_signed_in(&browser).await);
        let logout = format!("/oauth2/logout?id_token_hint={}", tokens.id_token());
        let left = browser.visiting(&service.browser()).fetch(&logout).await;
        assert_eq!(left.status, 303, "{}", left.text());
        assert!(root.is_signed_in(&browser).await, "{port}");
    }
}

#[tokio::test]
async fn a_cookie_with_a_new_name_lasts_as_long_as_one_that_is_set() {
    const DAY: u64 = 24 * 60 * 60;
    let server = Server::start_with(|policy| {
        policy.issuer = format!("{HOST}:8443");
        policy.accounts.remember_device = Some(Duration::from_secs(14 * DAY));
    })
    .await;
    let browser = server.browser();
    let lifetimes = [
        ("__Host-idsvc_session", None),
        ("__Host-idsvc_browser", Some(365 * DAY)),
        ("__Host-idsvc_known", Some(365 * DAY)),
        ("__Host-idsvc_language", Some(365 * DAY)),
        ("__Host-idsvc_remembered", Some(14 * DAY)),
        ("__Host-idsvc_passkey_offer", Some(30 * DAY)),
    ];
    for (name, _) in lifetimes {
        browser.set_cookie(name, "en");
    }
    let answer = browser.fetch("/account").await;
    let set = answer.cookies();
    for (name, lifetime) in lifetimes {
        let line = set.iter().find(|line| line.starts_with(name));
        let age = line
            .unwrap()
            .split_once("; Max-Age=")
            .map(|(_, age)| age.parse().unwrap());
        assert_eq!(age, lifetime, "{name}");
    }
}
