//! `idsvc mail`, the development server's page of mails, and mails of the real executable.

use std::fs;
use std::path::PathBuf;

use idsvc::clock::{Clock, Timestamp};
use idsvc::config::Sources;
use idsvc::config::resolve::resolve_settings;
use idsvc::data_dir::{DataDir, IfMissing};
use idsvc::flow::Core;
use idsvc::flow::outbox::DrawnMail;
use idsvc::mail::{Content, Message};
use idsvc::password::{PasswordParams, PasswordPool, PoolSize};
use idsvc::random::Random;

use crate::harness::metrics::Collector;
use crate::harness::process::{Service, said, shown};
use crate::harness::smtp::{MailCatcher, Manner, authority, own_certificate};

fn service(url: &str) -> Service {
    Service::with_client()
        .with("IDSVC_MAIL_URL", url)
        .with("IDSVC_MAIL_FROM", "Acme <no-reply@acme.example>")
}

fn data_dir(service: &Service) -> PathBuf {
    service.data()
}

/// Puts a mail into the outbox of a service that does not run.
fn cause(service: &Service, at: Timestamp) {
    let random = Random::system();
    let data = DataDir::open_caching(&data_dir(service), None, IfMissing::Refuse, 1 << 20, &random).unwrap();
    let size = PoolSize {
        threads: 1,
        waiting: 1,
    };
    let passwords = PasswordPool::start(PasswordParams::new(64, 1, 1).unwrap(), size).unwrap();
    let policy = resolve_settings(&Sources::default())
        .unwrap()
        .policy(&service.issuer());
    let store = data.store.clone();
    let core = Core::open(data.store, Clock::System, random, data.sealer, policy, passwords).unwrap();
    let message = Message {
        to: "bob@example.com".to_owned(),
        languages: None,
        zone: None,
        client_id: None,
        content: Content::ResetPassword {
            link: "https://id.example.com/reset?t=1".to_owned(),
            code: None,
            expires_at: at,
        },
    };
    let drawn = DrawnMail::draw(&core, &message, at).unwrap();
    core.store
        .write_blocking("test", move |tx| drawn.put(tx))
        .unwrap();
    drop(core);
    store.close();
}

#[test]
fn a_mail_whose_process_is_killed_before_it_is_sent_is_sent_once_after_the_next_start() {
    let catcher = MailCatcher::start(Manner {
        is_silent: true,
        ..Manner::default()
    });
    let service = service(&catcher.url());
    cause(&service, Clock::System.now());
    let mut running = service.serve();
    running.until(|_| catcher.connections() > 0);
    running.kill();
    assert!(catcher.taken().is_empty());
    catcher.behave(Manner::default());
    let mut running = service.serve();
    running.until(|_| catcher.taken().len() == 1);
    running.until(|_| service.json(&["mail", "list", "--json"]) == serde_json::json!([]));
    running.terminate();
    let mut running = service.serve();
    running.terminate();
    assert_eq!(catcher.taken().len(), 1);
    assert!(catcher.taken()[0].to == "bob@example.com");
}

#[test]
fn mails_that_wait_are_listed_with_the_reason_beside_a_service_and_without_one() {
    let (service, collector) = Collector::of(service("smtp://127.0.0.1:1"));
    cause(&service, Clock::System.now());
    let mut running = service.serve();
    running.until(|_| service.json(&["mail", "list", "--json"])[0]["failed_attempts"] == 1);
    let check = || {
        let [mail] = <[_; 1]>::try_from(
            service
                .json(&["mail", "list", "--json"])
                .as_array()
                .unwrap()
                .clone(),
        )
        .unwrap();
        assert_eq!(
            (&mail["to"], &mail["kind"]),
            (&"bob@example.com".into(), &"reset-password".into())
        );
        assert!(
            mail["last_error"]
                .as_str()
                .unwrap()
                .contains("does not accept connections"),
            "{mail}"
        );
        let pause = mail["next_attempt_at"].as_u64().unwrap() - mail["created_at"].as_u64().unwrap();
        assert!(pause <= 35, "{pause}");
        let table = shown(&service.run(&["mail", "list"]));
        assert!(
            table.contains("bob@example.com") && table.contains("NEXT ATTEMPT"),
            "{table}"
        );
    };
    check();
    assert_eq!(collector.value("idsvc_mail_queue"), Some(1));
    assert!(collector.value("idsvc_mail_oldest_age_seconds").is_some());
    assert_eq!(collector.value("idsvc_logout_queue"), Some(0));
    assert_eq!(collector.value("idsvc_logout_oldest_age_seconds"), Some(0));
    let log = service.logged("mails wait: 127.0.0.1:1 does not accept connections");
    assert!(!log.contains("bob@"), "{log}");
    running.terminate();
    check();
}

#[test]
fn a_test_mail_prints_the_answer_of_the_server_beside_a_service_and_without_one() {
    let catcher = MailCatcher::start(Manner::default());
    let service = service(&catcher.url());
    let test = || service.run(&["mail", "test", "bob@example.com"]);
    let sent = test();
    assert!(
        shown(&sent).contains("250 2.0.0 queued as 4711"),
        "{}",
        said(&sent)
    );
    let mut running = service.serve();
    assert!(shown(&test()).contains("250 2.0.0 queued as 4711"));
    catcher.reply(&["451 4.7.1 come back later"]);
    let refused = test();
    assert!(!refused.status.success());
    assert!(
        said(&refused).contains("was not sent: 451 4.7.1 come back later"),
        "{}",
        said(&refused)
    );
    // The answer comes before the row is removed.
    running.until(|_| service.json(&["mail", "list", "--json"]) == serde_json::json!([]));
    running.terminate();
    assert_eq!(catcher.taken().len(), 2);
}

#[test]
fn without_a_server_a_test_says_what_to_set() {
    let service = Service::with_client();
    let refused = service.run(&["mail", "test", "bob@example.com"]);
    assert!(!refused.status.success());
    assert!(
        said(&refused).contains("mail.url is not set"),
        "{}",
        said(&refused)
    );
}

#[test]
fn doctor_signs_in_at_the_mail_server_and_sends_nothing() {
    let catcher = MailCatcher::start(Manner {
        sign_in: Some(("me", "open sesame")),
        ..Manner::default()
    });
    let service = service(&catcher.url().replace("//", "//me@"));
    let file = service.folder.path().join("password");
    let service = service.with("IDSVC_MAIL_PASSWORD_FILE", file.to_str().unwrap());
    for (password, found) in [
        ("open sesame", "good  mail 127.0.0.1:"),
        ("wrong", "MEND  mail 127.0.0.1:"),
    ] {
        fs::write(&file, password).unwrap();
        let told = shown(&service.run(&["doctor", "--all"]));
        assert!(told.contains(found), "{told}");
    }
    assert!(catcher.taken().is_empty());
}

#[test]
fn a_relay_on_this_machine_with_a_certificate_of_its_own_has_settings_that_work() {
    let catcher = MailCatcher::start(Manner {
        starttls: true,
        own_certificate: true,
        ..Manner::default()
    });
    let test = |service: &Service| service.run(&["mail", "test", "bob@example.com"]);
    let refused = test(&service(&catcher.url()));
    assert!(said(&refused).contains("set mail.ca_file"), "{}", said(&refused));
    assert!(said(&refused).contains("mail.tls to off"), "{}", said(&refused));
    assert_eq!(
        said(&refused).matches("mail.ca_file").count(),
        1,
        "{}",
        said(&refused)
    );
    assert!(!said(&refused).contains("signed by that"), "{}", said(&refused));
    let plain = service(&catcher.url()).with("IDSVC_MAIL_TLS", "off");
    assert!(test(&plain).status.success());
    let doctor = shown(&plain.run(&["doctor", "--all"]));
    assert!(doctor.contains("without TLS, on this machine"), "{doctor}");
    let trusting = service(&catcher.url());
    let file = trusting.folder.path().join("relay.pem");
    fs::write(&file, own_certificate()).unwrap();
    let trusting = trusting
        .with("IDSVC_MAIL_TLS", "required")
        .with("IDSVC_MAIL_CA_FILE", file.to_str().unwrap());
    assert!(test(&trusting).status.success());
    let doctor = shown(&trusting.run(&["doctor", "--all"]));
    assert!(doctor.contains("the sign-in, by TLS"), "{doctor}");
    let ways: Vec<_> = catcher.taken().iter().map(|mail| mail.was_encrypted).collect();
    assert_eq!(ways, [false, true]);
    catcher.behave(Manner::default());
    let refused = test(&trusting);
    assert!(
        said(&refused).contains("offers no STARTTLS"),
        "{}",
        said(&refused)
    );
}

#[test]
fn a_certificate_that_has_expired_has_to_be_renewed_at_the_mail_server() {
    let catcher = MailCatcher::start(Manner {
        starttls: true,
        expired_certificate: true,
        ..Manner::default()
    });
    let service = service(&catcher.url());
    let file = service.folder.path().join("authority.pem");
    fs::write(&file, authority()).unwrap();
    let service = service.with("IDSVC_MAIL_CA_FILE", file.to_str().unwrap());
    let refused = service.run(&["mail", "test", "bob@example.com"]);
    let named = "its certificate has expired (2001-01-01T00:00:00Z): renew it at the mail server";
    assert!(said(&refused).contains(named), "{}", said(&refused));
}

#[test]
fn a_certificate_for_another_name_is_accepted_by_that_name() {
    let catcher = MailCatcher::start(Manner {
        starttls: true,
        ..Manner::default()
    });
    // The certificate is for 127.0.0.1, and not for localhost.
    let url = catcher.url().replace("127.0.0.1", "localhost");
    let service = service(&url);
    let file = service.folder.path().join("authority.pem");
    fs::write(&file, authority()).unwrap();
    let service = service.with("IDSVC_MAIL_CA_FILE", file.to_str().unwrap());
    let refused = service.run(&["mail", "test", "bob@example.com"]);
    assert!(
        said(&refused).contains("set mail.server_name"),
        "{}",
        said(&refused)
    );
    let service = service.with("IDSVC_MAIL_SERVER_NAME", "127.0.0.1");
    assert!(service.run(&["mail", "test", "bob@example.com"]).status.success());
}

#[test]
fn a_scheme_that_does_not_fit_the_port_is_answered_with_the_other_one() {
    for (implicit_tls, scheme) in [(true, "smtp"), (false, "smtps")] {
        let catcher = MailCatcher::start(Manner {
            implicit_tls,
            starttls: !implicit_tls,
            own_certificate: true,
            ..Manner::default()
        });
        let other = if implicit_tls { "smtps" } else { "smtp" };
        let service = service(&format!("{scheme}://127.0.0.1:{}", catcher.port));
        let named = format!("write {other}:// in mail.url");
        let refused = service.run(&["mail", "test", "bob@example.com"]);
        assert!(said(&refused).contains(&named), "{}", said(&refused));
        let doctor = shown(&service.run(&["doctor"]));
        assert!(doctor.contains(&named), "{doctor}");
    }
}

#[test]
fn the_development_server_shows_its_mails() {
    let service = Service::empty();
    let mut running = service.start(&["serve", "--dev"]).answering();
    let page = |target: &str| running.request("GET", target, &[], "").unwrap();
    assert!(page("/").body.contains("href=\"/dev/mail\""));
    assert_eq!(page("/dev/mail").status, 200);
    let sent = service.run(&["mail", "test", "<b>bob</b>@example.com"]);
    assert!(!sent.status.success(), "{}", shown(&sent));
    let sent = service.run(&["mail", "test", "bob@example.com"]);
    assert!(shown(&sent).contains("/dev/mail"), "{}", said(&sent));
    let list = page("/dev/mail").body;
    let id = list
        .split("/dev/mail?id=")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    let mail = page(&format!("/dev/mail?id={id}"));
    assert!(
        mail.body.contains("bob@example.com") && mail.body.contains("part=html"),
        "{}",
        mail.body
    );
    let html = page(&format!("/dev/mail?id={id}&part=html"));
    assert!(html.body.contains("This is a test"), "{}", html.body);
    let policy = html.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("sandbox"),
        "{policy}"
    );
    assert_eq!(page("/dev/mail?id=nothing").status, 404);
    running.terminate();
}

#[test]
fn no_other_server_has_the_page_of_mails() {
    let service = Service::with_client();
    let running = service.serve();
    assert_eq!(running.request("GET", "/dev/mail", &[], "").unwrap().status, 404);
}
