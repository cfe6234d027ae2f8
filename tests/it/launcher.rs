//! The account page lists the applications that a person may open. A person who was invited to one arrives there.

use std::fs;

use idsvc::admin::user::InviteUser;
use idsvc::identity::{SecondFactorRule, SignUp};
use idsvc::oauth::Logo;
use idsvc::oauth::client::ClientOrigin;
use serde_json::json;

use crate::account_links::{choose, scene_with};
use crate::harness::process::{Service, said, shown};
use crate::harness::{ISSUER, Screen, Server};
use crate::second_factor::{App, type_code};

const NEW: &str = "a password that is new";

/// Addresses that no page may link to.
const HOSTILE: [&str; 10] = [
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "http://apps.example/",
    "https://alice@apps.example/",
    "https://@apps.example/",
    "https:/apps.example",
    "//apps.example/",
    "/account",
    "https://apps.example\\@evil.example/",
    "com.example.app:/home",
];

/// The addresses of the links of the list, with the names of the applications.
fn entries(page: &Screen) -> Vec<(String, String)> {
    let Some((_, list)) = page.text().split_once("aria-labelledby=\"launcher\"") else {
        return Vec::new();
    };
    let list = list.split("</section>").next().unwrap();
    let between = |row: &str, from: &str, to: &str| {
        let after = row.split_once(from).unwrap().1;
        after.split(to).next().unwrap().replace("&amp;", "&")
    };
    let rows = list.split("<li>").skip(1);
    rows.map(|row| (between(row, "<bdi>", "</bdi>"), between(row, "href=\"", "\"")))
        .collect()
}

fn with_issuer(address: &str) -> String {
    let iss = url::form_urlencoded::byte_serialize(ISSUER.as_bytes()).collect::<String>();
    format!("{address}iss={iss}")
}

async fn invite_to(server: &Server, email: &str, client_id: Option<&str>) -> String {
    let invite = InviteUser {
        email: email.to_owned(),
        groups: Vec::new(),
        client_id: client_id.map(ToOwned::to_owned),
    };
    server.admin().call(invite).await.unwrap();
    server.mail().await.link()
}

async fn by_invitation() -> Server {
    scene_with(|policy| policy.accounts.sign_up = SignUp::Invitation)
        .await
        .0
}

#[tokio::test]
async fn the_account_page_lists_the_applications_of_the_operator_with_name_logo_and_link() {
    let server = Server::start().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let before = browser.visit("/account/applications").await;
    assert_eq!(entries(&before), []);
    let logo = Logo {
        media_type: "image/png".to_owned(),
        data: "iVBORw0KGgo=".to_owned(),
    };
    server
        .client_with("pay", |client| {
            client.client_name = Some("Payroll <&>".to_owned());
            client.home_uri = Some("https://pay.example/home?a=1&b=2".to_owned());
            client.logo = Some(logo);
        })
        .await;
    let notes = server
        .client_with("notes", |client| {
            client.client_name = Some("Notes".to_owned());
            client.home_uri = Some("https://notes.example/".to_owned());
            client.initiate_login_uri = Some("https://notes.example/login?from=op".to_owned());
        })
        .await;
    for (id, origin) in [
        ("registered", ClientOrigin::DynamicRegistration),
        ("https://doc.example/app", ClientOrigin::MetadataDocument),
    ] {
        server
            .client_with(id, |client| {
                client.redirect_uris = vec!["https://stranger.example/cb".to_owned()];
                client.initiate_login_uri = Some("https://stranger.example/login".to_owned());
                client.origin = origin;
            })
            .await;
    }
    let page = browser.visit("/account/applications").await;
    let notes_login = with_issuer("https://notes.example/login?from=op&");
    assert_eq!(
        entries(&page),
        [
            ("Notes".to_owned(), notes_login.clone()),
            (
                "Payroll &lt;&>".to_owned().replace("&>", "&&gt;"),
                "https://pay.example/home?a=1&b=2".to_owned()
            ),
        ]
    );
    assert!(page.text().contains("<bdi>pay.example</bdi>"));
    assert!(
        page.text().contains("<img class=\"mark\" src=\"/logos/"),
        "{}",
        page.text()
    );
    let policy = "content-security-policy";
    assert_eq!(page.header(policy), before.header(policy));
    server
        .change_client(&notes, |client| client.enabled = false)
        .await;
    let page = browser.visit("/account/applications").await;
    assert_eq!(entries(&page).len(), 1, "{}", page.text());
}

#[tokio::test]
async fn an_address_sends_a_signed_in_person_to_the_application() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let notes = server
        .client_with("notes", |client| {
            client.initiate_login_uri = Some("https://notes.example/login".to_owned());
        })
        .await;
    let shop = server
        .client_with("shop", |client| {
            client.home_uri = Some("https://b\u{fc}cher.example/".to_owned());
        })
        .await;
    let catalog = server.app.core.catalog();
    let address = |id: &str| format!("/account/open/{}", catalog.client(id).unwrap().client_uuid);
    let login = alice.browser().visit(&address(notes.client_id())).await;
    assert_eq!(login.page(), "/login");
    let done = login.sign_in().await;
    assert_eq!(done.location(), with_issuer("https://notes.example/login?"));
    let browser = done.browser();
    let elsewhere = browser.visit(&address(shop.client_id())).await;
    assert_eq!(elsewhere.location(), "https://xn--bcher-kva.example/");
    server.change_client(&shop, |client| client.enabled = false).await;
    for nothing in [
        address(shop.client_id()),
        format!("/account/open/{}", alice.sub()),
    ] {
        assert_eq!(browser.visit(&nothing).await.page(), "/account/applications");
    }
    for unknown in [
        "/account/open/",
        "/account/open/notes",
        "/account/open/https://evil.example",
    ] {
        assert_eq!(browser.visit(unknown).await.status, 404);
    }
}

#[tokio::test]
async fn an_invited_person_arrives_at_the_application_that_invites_or_at_the_list() {
    let server = by_invitation().await;
    let notes = server
        .client_with("notes", |client| {
            client.initiate_login_uri = Some("https://notes.example/login".to_owned());
            client.home_uri = Some("https://notes.example/".to_owned());
        })
        .await;
    server
        .client_with("pay", |client| {
            client.home_uri = Some("https://pay.example/home".to_owned());
        })
        .await;
    let arrive = async |email: &str, client_id: Option<&str>| {
        let link = invite_to(&server, email, client_id).await;
        choose(&server.browser().visit(&link).await, NEW).await
    };
    let done = arrive("bob@example.com", Some("notes")).await;
    assert_eq!(done.location(), with_issuer("https://notes.example/login?"));
    let done = arrive("carol@example.com", Some("pay")).await;
    assert_eq!(done.location(), "https://pay.example/home");
    // The client of the scene has neither, but a website.
    let done = arrive("dan@example.com", Some("acme")).await;
    assert_eq!(done.location(), "https://acme.example");
    let done = arrive("eve@example.com", None).await;
    assert_eq!(done.page(), "/account/applications");
    assert_eq!(entries(&done).len(), 2);
    let link = invite_to(&server, "frank@example.com", Some("notes")).await;
    server
        .change_client(&notes, |client| client.enabled = false)
        .await;
    let done = choose(&server.browser().visit(&link).await, NEW).await;
    assert_eq!((done.status, done.page()), (200, "/account/applications"));
}

#[tokio::test]
async fn an_invited_person_who_sets_up_a_second_factor_first_arrives_there_too() {
    let (server, ..) = scene_with(|policy| {
        policy.accounts.sign_up = SignUp::Invitation;
        policy.accounts.second_factor = SecondFactorRule::PasswordUsers;
    })
    .await;
    server
        .client_with("notes", |client| {
            client.home_uri = Some("https://notes.example/".to_owned());
        })
        .await;
    let link = invite_to(&server, "bob@example.com", Some("notes")).await;
    let step = choose(&server.browser().visit(&link).await, NEW).await;
    assert_eq!(step.page(), "/second-factor");
    let done = type_code(&step, &App::of(&step).code(&server, 0)).await;
    assert_eq!(done.location(), "https://notes.example/");
}

#[test]
fn the_home_page_of_an_application_is_set_shown_exported_applied_and_removed() {
    let service = Service::with_client();
    let home = "https://app.example/start";
    let updated = service.json(&["client", "update", "web", "--home-uri", home, "--json"]);
    assert_eq!(updated["home_uri"], home);
    let added = service.json(&[
        "client",
        "add",
        "tool",
        "--redirect-uri",
        "http://127.0.0.1:8000/cb",
        "--home-uri",
        "http://localhost:8000/",
        "--initiate-login-uri",
        "http://[::1]:8000/login",
        "--json",
    ]);
    assert_eq!(added["home_uri"], "http://localhost:8000/");
    assert_eq!(added["initiate_login_uri"], "http://[::1]:8000/login");
    assert!(shown(&service.run(&["client", "show", "web"])).contains(home));
    let exported = shown(&service.run(&["export"]));
    assert!(exported.contains(&format!("home_uri = \"{home}\"")), "{exported}");
    let state = service.folder.path().join("state.toml");
    let entry = "[[client]]\nclient_id = \"web\"\nredirect_uris = [\"https://app.example/cb\"]";
    let changed = format!("{entry}\nhome_uri = \"https://app.example/other\"\n");
    fs::write(&state, changed).unwrap();
    let apply = || service.run(&["apply", "-f", "state.toml"]);
    let applied = apply();
    assert!(applied.status.success(), "{}", said(&applied));
    let shown_now = service.json(&["client", "show", "web", "--json"]);
    assert_eq!(shown_now["home_uri"], "https://app.example/other");
    let removed = service.json(&["client", "update", "web", "--home-uri", "", "--json"]);
    assert_eq!(removed.get("home_uri"), None);

    for hostile in HOSTILE {
        for flag in ["--home-uri", "--initiate-login-uri"] {
            let refused = service.run(&["client", "update", "web", flag, hostile]);
            assert_eq!(refused.status.code(), Some(1), "{flag} {hostile}");
        }
        let refused = service.run(&["client", "add", "new", "--no-grants", "--home-uri", hostile]);
        assert_eq!(refused.status.code(), Some(1), "{hostile}");
        let quoted = json!(hostile);
        let state_of_it = format!("{entry}\nhome_uri = {quoted}\n");
        fs::write(&state, state_of_it).unwrap();
        let refused = apply();
        assert_eq!(refused.status.code(), Some(1), "{hostile}");
        assert!(said(&refused).contains("home_uri"), "{}", said(&refused));
    }
    assert_eq!(
        service.json(&["client", "show", "web", "--json"]).get("home_uri"),
        None
    );
}

/// Nobody vouches for the name that such a client has chosen.
#[tokio::test]
async fn a_client_that_registered_itself_gets_no_home_page() {
    let server = Server::start().await;
    let party = server
        .client_with("registered", |client| {
            client.origin = ClientOrigin::DynamicRegistration;
            client.consent = idsvc::oauth::client::ConsentRequirement::Require;
        })
        .await;
    let update = idsvc::admin::client::UpdateClient {
        client_id: party.client_id().to_owned(),
        no_secret: false,
        fields: idsvc::oauth::ClientFields {
            home_uri: Some("https://registered.example/".to_owned()),
            ..Default::default()
        },
    };
    let refused = server.admin().call(update).await.unwrap_err().to_string();
    assert!(refused.contains("registered itself"), "{refused}");
}
