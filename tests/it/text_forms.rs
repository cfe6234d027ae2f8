//! Names, addresses, passwords and codes, typed in another form of Unicode than they were stored in.

use std::fs;

use idsvc::admin::group::AddGroup;
use idsvc::identity::SignUp;
use idsvc::oauth::group::GroupFields;

use crate::account_links::{begin, request_mail};
use crate::harness::process::{Service, run_with_input, said};
use crate::harness::smtp::{MailCatcher, Manner};
use crate::harness::{Server, until};
use crate::mail::Mailing;
use crate::second_factor::{enrol, half, is_signed_in, scene, type_code};

const TARGET: &str = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
const COMPOSED: &str = "j\u{fc}rgen@b\u{fc}cher.example";
const OTHERS: [&str; 4] = [
    "ju\u{308}rgen@bu\u{308}cher.example",
    "J\u{dc}RGEN@B\u{dc}CHER.EXAMPLE",
    "j\u{fc}rgen@xn--bcher-kva.example",
    "\u{ff4a}\u{fc}rgen@b\u{fc}cher.example",
];

fn add(service: &Service, email: &str, password: &str) -> std::process::Output {
    run_with_input(
        &mut service.command(&["user", "add", email, "--password-stdin"]),
        password.as_bytes(),
    )
}

#[test]
fn a_person_signs_in_with_every_form_of_the_address_and_the_password() {
    let service = Service::with_client();
    let added = add(&service, OTHERS[0], "\u{feff}Gr\u{fc}n-K\u{e4}se-\u{d6}l-42!\r\n");
    assert!(added.status.success(), "{}", said(&added));
    let shown = service.json(&["user", "show", COMPOSED, "--json"]);
    assert_eq!(shown["email"], COMPOSED);
    let running = service.serve();
    for name in [COMPOSED, OTHERS[0], OTHERS[1], OTHERS[2], OTHERS[3]] {
        for password in [
            "Gr\u{fc}n-K\u{e4}se-\u{d6}l-42!",
            "Gru\u{308}n-Ka\u{308}se-O\u{308}l-42!",
        ] {
            let (reply, _) = running.type_in(TARGET, name, password);
            assert_eq!(reply.status, 303, "{name:?} {password:?}: {reply:?}");
        }
    }
    let (other_width, _) = running.type_in(TARGET, COMPOSED, "\u{ff27}r\u{fc}n-K\u{e4}se-\u{d6}l-42!");
    assert_eq!(other_width.status, 200, "the width of a password counts");
}

#[test]
fn every_command_refuses_a_second_user_of_a_name_in_another_form() {
    let service = Service::with_client();
    let added = service.run(&["user", "add", COMPOSED, "--no-password"]);
    assert!(added.status.success(), "{}", said(&added));
    let folder = service.folder.path();
    for other in OTHERS {
        let refused = service.run(&["user", "add", other, "--no-password"]);
        assert!(
            said(&refused).contains("already"),
            "{other:?}: {}",
            said(&refused)
        );
        fs::write(
            folder.join("users.jsonl"),
            format!("{{\"account_id\":\"x\",\"email\":\"{other}\"}}\n"),
        )
        .unwrap();
        let imported = service.run(&["user", "import", "users.jsonl"]);
        assert_eq!(imported.status.code(), Some(1), "{other:?}: {}", said(&imported));
        let state = format!("[[user]]\naccount_id = \"{other}\"\n[[user]]\naccount_id = \"{COMPOSED}\"\n");
        fs::write(folder.join("state.toml"), state).unwrap();
        let applied = service.run(&["apply", "-f", "state.toml"]);
        assert!(said(&applied).contains("twice"), "{other:?}: {}", said(&applied));
    }
    let users = service.json(&["user", "list", "--json"]);
    assert_eq!(users.as_array().unwrap().len(), 1);
}

#[test]
fn an_address_that_looks_like_another_is_refused_and_nothing_is_stored() {
    let service = Service::with_client();
    for email in [
        "a\u{ad}nna@example.com",
        "anna\u{200b}@example.com",
        "anna@exam\u{200d}ple.com",
    ] {
        let refused = service.run(&["user", "add", email, "--no-password"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains("cannot be seen"), "{}", said(&refused));
    }
    assert_eq!(service.json(&["user", "list", "--json"]), serde_json::json!([]));
}

#[tokio::test]
async fn a_code_is_right_in_the_digits_of_every_script() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let (app, recovery) = enrol(&server, &browser).await;
    let from_zero = |zero: u32| {
        move |code: &str| -> String {
            let digit = |c: char| char::from_u32(zero + c.to_digit(10).unwrap()).unwrap();
            code.chars().map(digit).collect()
        }
    };
    for zero in ['\u{ff10}', '\u{660}', '\u{6f0}', '\u{966}'] {
        server.advance(60);
        let page = half(&alice, &acme).await;
        let done = type_code(&page, &from_zero(zero.into())(&app.code(&server, 0))).await;
        assert!(is_signed_in(&done), "{zero}: {}", done.text());
    }
    server.advance(60);
    let page = half(&alice, &acme).await;
    let wrong = type_code(&page, &from_zero('\u{660}'.into())(&app.wrong(&server))).await;
    assert!(!is_signed_in(&wrong));
    let wide: String = recovery[0]
        .chars()
        .map(|c| char::from_u32(u32::from(c) - 0x20 + 0xff00).unwrap())
        .collect();
    assert!(is_signed_in(&type_code(&wrong, &wide).await), "{wide}");
}

#[tokio::test]
async fn an_international_domain_may_sign_up_in_both_spellings() {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.sign_up = SignUp::Open;
        policy.accounts.verify_email = true;
        policy.accounts.allowed_domains = vec!["xn--bcher-kva.example".to_owned()];
    })
    .await;
    let acme = server.client("acme").await;
    for address in [
        "eva@xn--bcher-kva.example",
        "eva@b\u{fc}cher.example",
        "eva@BU\u{308}CHER.example",
    ] {
        let login = begin(&acme, &server.browser()).await;
        let sent = request_mail(&login, "Create an account", address).await;
        assert_eq!(sent.page(), "/check-mail", "{address}");
        let digits = server.mail().await.code();
        assert_eq!(digits.len(), 6);
    }
    let login = begin(&acme, &server.browser()).await;
    let refused = request_mail(&login, "Create an account", "eva@b\u{fc}cher.example.com").await;
    assert_eq!(refused.page(), "/sign-up");
    assert!(server.mails().await.is_empty());
}

#[tokio::test]
async fn a_mail_to_an_international_domain_needs_no_extension() {
    let catcher = MailCatcher::start(Manner::default());
    let mailing = Mailing::to(&catcher.url()).await;
    mailing.cause("bob@b\u{fc}cher.example").await;
    until(async || catcher.taken().len() == 1).await;
    assert_eq!(catcher.taken()[0].to, "bob@xn--bcher-kva.example");
    mailing.end().await;
}

#[tokio::test]
async fn a_group_is_found_by_every_form_of_its_name() {
    let server = Server::start().await;
    let group = |name: &str| AddGroup {
        name: name.to_owned(),
        fields: GroupFields::default(),
    };
    server.admin().call(group("K\u{fc}che")).await.unwrap();
    for other in ["Ku\u{308}che", "K\u{dc}CHE", "\u{ff2b}\u{fc}che"] {
        let refused = server.admin().call(group(other)).await;
        assert!(refused.is_err(), "{other:?}");
    }
    server.admin().call(group("Kuche")).await.unwrap();
}
