//! Mails on their way from the outbox to a mail server that plays a role.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idsvc::config::mail::Mail as MailSettings;
use idsvc::flow::deliver::{OutboxKey, entries_after, queue};
use idsvc::flow::outbox::DrawnMail;
use idsvc::mail::connection::{MailConnector, Timeouts};
use idsvc::mail::{Content, Letter, MailParts, Message, SendFault};
use idsvc::net::outbound::{OutboundPolicy, tls_config};
use idsvc::server::mail_sender::{self, RunningSender};
use idsvc::store::records::OutboxEntry;
use idsvc::store::table::KeyBytes;
use idsvc::store::tables::OUTBOX;
use tempfile::TempDir;
use tokio::sync::watch;
use uuid::Uuid;

use crate::harness::smtp::{MailCatcher, Manner, authority};
use crate::harness::{Audit, Server, until};

const LINK: &str = "https://id.example.test/sign-up?t=kX3mVq0pS8yT2nB7aWc5dE9fG1hJ4lZ6rU0iO_vNQxY";

/// The service with a sender of mails.
pub(crate) struct Mailing {
    pub(crate) server: Server,
    stop: watch::Sender<u32>,
    sender: RunningSender,
    _authority: TempDir,
}

impl Mailing {
    /// One that sends to this address, with the files that the settings name.
    pub(crate) async fn to(url: &str) -> Self {
        Self::with_server(Server::start().await, url)
    }

    /// Sends the mails of this server.
    pub(crate) fn with_server(server: Server, url: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("password"), "open sesame\n").unwrap();
        let settings = MailSettings {
            server: Some(url.parse().unwrap()),
            password_file: Some(folder.path().join("password")),
            tls: None,
            ca_file: None,
            server_name: None,
            from: "Acme <no-reply@acme.example>".parse().unwrap(),
            reply_to: Some("help@acme.example".parse().unwrap()),
        };
        let (stop, stops) = watch::channel(0);
        let sender = mail_sender::start(&server.app, Some(settings), &trust(&folder), stops).unwrap();
        Self {
            server,
            stop,
            sender,
            _authority: folder,
        }
    }

    /// Puts a mail into the outbox, as the transaction that causes it does.
    pub(crate) async fn cause(&self, to: &str) {
        let core = &self.server.app.core;
        let message = Message {
            to: to.to_owned(),
            languages: Some("en".to_owned()),
            zone: None,
            client_id: None,
            content: Content::SignUp {
                link: LINK.to_owned(),
                code: "402817".to_owned(),
                expires_at: None,
            },
        };
        let drawn = DrawnMail::draw(core, &message, core.clock.now()).unwrap();
        core.store.write("test", move |tx| drawn.put(tx)).await.unwrap();
        core.outbox_filled.notify_one();
    }

    /// How many mails wait.
    fn waiting(&self) -> u64 {
        queue(&self.server.app.core, OUTBOX).unwrap().0
    }

    /// Lets time pass, and wakes the sender.
    fn advance(&self, seconds: u64) {
        self.server.advance(seconds);
        self.server.app.core.outbox_filled.notify_one();
    }

    async fn problem(&self) -> String {
        until(async || self.server.app.mail_problem.load().is_some()).await;
        self.server.app.mail_problem.load_full().unwrap().to_string()
    }

    pub(crate) async fn end(self) {
        self.stop.send(1).unwrap();
        self.sender.finish().await;
    }
}

/// Trusts the certificates of mail servers.
fn trust(folder: &TempDir) -> OutboundPolicy {
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, authority()).unwrap();
    OutboundPolicy {
        ca_file: Some(file),
        allow: Vec::new(),
    }
}

#[tokio::test]
async fn a_mail_that_the_server_defers_is_delivered_once() {
    let audit = Audit::listen();
    let catcher = MailCatcher::start(Manner::default());
    catcher.reply(&["451 4.7.1 come back later"]);
    let mailing = Mailing::to(&catcher.url()).await;
    mailing.cause("bob@example.com").await;
    until(async || catcher.connections() > 0).await;
    // The clock stands still, so nothing is due again.
    mailing.cause("carol@example.com").await;
    until(async || catcher.taken().len() == 1 && mailing.waiting() == 1).await;
    assert_eq!(catcher.taken()[0].to, "carol@example.com");
    mailing.advance(30);
    until(async || mailing.waiting() == 0).await;
    let taken = catcher.taken();
    assert_eq!(
        taken.iter().map(|mail| mail.to.as_str()).collect::<Vec<_>>(),
        ["carol@example.com", "bob@example.com"]
    );
    let events = audit.take(&["mail_sent", "mail_failed"]);
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(
        events
            .iter()
            .all(|event| event["event"] == "mail_sent" && event["domain"] == "example.com")
    );
    assert!(!format!("{events:?}").contains("bob"), "{events:?}");
    mailing.end().await;
}

#[tokio::test]
async fn a_mail_that_the_server_refuses_is_given_up_with_an_event() {
    let audit = Audit::listen();
    let catcher = MailCatcher::start(Manner::default());
    catcher.reply(&["550 5.1.1 <bob@example.com>: no such user"]);
    let mailing = Mailing::to(&catcher.url()).await;
    mailing.cause("bob@example.com").await;
    until(async || catcher.connections() > 0 && mailing.waiting() == 0).await;
    mailing.advance(86_400);
    mailing.cause("carol@example.com").await;
    until(async || catcher.taken().len() == 1).await;
    let events = audit.take(&["mail_failed"]);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["reason"], &events[0]["kind"]),
        (&"550 5.1.1".into(), &"sign-up".into())
    );
    assert!(!format!("{events:?}").contains("bob"), "{events:?}");
    mailing.end().await;
}

#[tokio::test]
async fn a_mail_is_given_up_after_a_day_and_not_before() {
    let audit = Audit::listen();
    let catcher = MailCatcher::start(Manner::default());
    catcher.reply(&["451 4.3.0 full"; 200]);
    let mailing = Mailing::to(&catcher.url()).await;
    mailing.cause("bob@example.com").await;
    let attempts = || {
        let rows = entries_after::<OutboxEntry>(&mailing.server.app.core, None, 1).unwrap();
        rows.first()
            .and_then(|row| Some(row.entry.as_ref()?.failed_attempts))
    };
    let mut hours = 0;
    for made in 1.. {
        until(async || attempts().is_none_or(|attempts| attempts == made)).await;
        if attempts().is_none() {
            break;
        }
        mailing.advance(3600);
        hours += 1;
    }
    assert!((22..=26).contains(&hours), "{hours}");
    assert_eq!(audit.take(&["mail_failed"])[0]["reason"], "451 4.3.0");
    mailing.end().await;
}

#[tokio::test]
async fn a_mail_that_nobody_is_to_get_leaves_the_outbox_and_is_not_sent() {
    let audit = Audit::listen();
    let catcher = MailCatcher::start(Manner::default());
    let mailing = Mailing::to(&catcher.url()).await;
    let core = &mailing.server.app.core;
    let message = Message {
        to: "nobody@example.com".to_owned(),
        languages: None,
        zone: None,
        client_id: None,
        content: Content::Test,
    };
    let decoy = DrawnMail::decoy(core, &message, core.clock.now()).unwrap();
    core.store.write("test", move |tx| decoy.put(tx)).await.unwrap();
    mailing.cause("bob@example.com").await;
    until(async || mailing.waiting() == 0).await;
    assert_eq!(catcher.taken().len(), 1);
    assert_eq!(audit.take(&["mail_sent", "mail_failed"]).len(), 1);
    mailing.end().await;
}

#[tokio::test]
async fn a_service_that_stops_waits_for_the_mail_on_its_way() {
    let catcher = MailCatcher::start(Manner {
        pause: Duration::from_millis(300),
        ..Manner::default()
    });
    let mailing = Mailing::to(&catcher.url()).await;
    for to in ["bob@example.com", "carol@example.com"] {
        mailing.cause(to).await;
    }
    until(async || catcher.connections() > 0).await;
    mailing.stop.send(1).unwrap();
    mailing.sender.finish().await;
    let waiting = queue(&mailing.server.app.core, OUTBOX).unwrap().0;
    let sent = catcher.taken().len();
    assert_eq!((sent as u64 + waiting, sent <= 1), (2, true), "{sent} sent");
}

#[tokio::test]
async fn a_mail_arrives_with_both_parts_and_its_header() {
    let catcher = MailCatcher::start(Manner {
        implicit_tls: true,
        sign_in: Some(("me", "open sesame")),
        ..Manner::default()
    });
    let mailing = Mailing::to(&catcher.url().replace("//", "//me@")).await;
    mailing.cause("bob@example.com").await;
    until(async || mailing.waiting() == 0).await;
    let [mail] = catcher.taken().try_into().unwrap();
    assert_eq!(
        (mail.from.as_str(), mail.to.as_str()),
        ("no-reply@acme.example", "bob@example.com")
    );
    assert!(mail.was_encrypted);
    for line in [
        "From: Acme <no-reply@acme.example>",
        "Reply-To: help@acme.example",
        "To: bob@example.com",
        "Auto-Submitted: auto-generated",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Type: text/html; charset=utf-8",
    ] {
        assert!(mail.data.contains(line), "{line}\n{}", mail.data);
    }
    let id = mail
        .data
        .lines()
        .find(|line| line.starts_with("Message-ID: <"))
        .unwrap();
    assert!(id.ends_with("@id.example.test>"), "{id}");
    assert!(mail.data.contains("402817"), "{}", mail.data);
    assert!(mailing.server.app.mail_problem.load().is_none());
    mailing.end().await;
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_that_offers_no_tls() {
    let catcher = MailCatcher::start(Manner {
        sign_in: Some(("me", "open sesame")),
        ..Manner::default()
    });
    let mailing = Mailing::to(&catcher.far_url().replace("//", "//me@")).await;
    mailing.cause("bob@example.com").await;
    let problem = mailing.problem().await;
    assert!(problem.contains("offers no STARTTLS"), "{problem}");
    let ready = mailing.server.get("/readyz").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("mails wait"), "{}", ready.text());
    // Once the offer is back, the mail goes out.
    catcher.behave(Manner {
        starttls: true,
        sign_in: Some(("me", "open sesame")),
        ..Manner::default()
    });
    mailing.advance(30);
    until(async || mailing.waiting() == 0).await;
    assert!(catcher.taken()[0].was_encrypted);
    assert_eq!(mailing.server.get("/readyz").await.text(), "ready\n");
    mailing.end().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_or_used_gets_no_mail_and_loses_none() {
    for (manner, named) in [
        (
            Manner {
                starttls: true,
                injected: "\r\n250 injected",
                ..Manner::default()
            },
            "sent more than its reply to STARTTLS",
        ),
        (
            Manner {
                starttls: true,
                sign_in: Some(("me", "another password")),
                ..Manner::default()
            },
            "refuses the sign-in of me: 535 5.7.8 bad credentials",
        ),
        (
            Manner {
                starttls: true,
                ..Manner::default()
            },
            "offers no sign-in by PLAIN or LOGIN",
        ),
    ] {
        let catcher = MailCatcher::start(manner);
        let mailing = Mailing::to(&catcher.far_url().replace("//", "//me@")).await;
        mailing.cause("bob@example.com").await;
        let problem = mailing.problem().await;
        assert!(problem.contains(named), "{problem}");
        assert!(!problem.contains("sesame"), "{problem}");
        assert_eq!((mailing.waiting(), catcher.taken().len()), (1, 0));
        mailing.end().await;
    }
}

#[tokio::test]
async fn a_wrong_certificate_is_refused_and_named() {
    for implicit_tls in [true, false] {
        let catcher = MailCatcher::start(Manner {
            implicit_tls,
            starttls: !implicit_tls,
            ..Manner::default()
        });
        let connector = MailConnector {
            server: catcher.url().replace("127.0.0.1", "localhost").parse().unwrap(),
            password_file: None,
            tls: Arc::new(tls_config(&OutboundPolicy::default()).unwrap()).into(),
            tls_use: None,
            server_name: None,
            host: "id.example.test".to_owned(),
            timeouts: Timeouts::default(),
        };
        let Err(SendFault::Server(problem)) = connector.connect().await else {
            panic!("connected")
        };
        assert!(
            problem.contains("TLS failed") && problem.contains("certificate"),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn a_silent_server_is_given_up_in_time_at_each_step() {
    let folder = TempDir::new().unwrap();
    let short = Duration::from_millis(200);
    let connector = |url: &str| MailConnector {
        server: url.parse().unwrap(),
        password_file: None,
        tls: Arc::new(tls_config(&trust(&folder)).unwrap()).into(),
        tls_use: None,
        server_name: None,
        host: "id.example.test".to_owned(),
        timeouts: Timeouts {
            connect: short,
            tls: short,
            reply: short,
            delivery: short,
        },
    };
    let begun = Instant::now();
    for implicit_tls in [true, false] {
        let silent = MailCatcher::start(Manner {
            is_silent: true,
            implicit_tls,
            ..Manner::default()
        });
        let fault = connector(&silent.url()).connect().await.err().unwrap();
        assert!(fault.to_string().contains("does not answer in time"), "{fault}");
    }
    let slow = MailCatcher::start(Manner {
        pause: Duration::from_secs(5),
        ..Manner::default()
    });
    let letter = letter("bob@example.com");
    let mut connection = connector(&slow.url()).connect().await.unwrap();
    let fault = connection.send(&letter).await.unwrap_err();
    assert!(
        matches!(&fault, SendFault::Deferred(text) if text.contains("does not answer in time")),
        "{fault}"
    );
    assert!(!connection.is_usable() && begun.elapsed() < Duration::from_secs(4));
}

fn letter(to: &str) -> Letter {
    Letter::compose(MailParts {
        id: Uuid::nil(),
        host: "id.example.test",
        at: idsvc::clock::Timestamp::from_seconds(1_800_000_000),
        from: &"no-reply@acme.example".parse().unwrap(),
        reply_to: None,
        to,
        subject: "Grüße",
        text: "Grüße\n.\n..\nEnde".to_owned(),
        html: "<p>Grüße</p>".to_owned(),
    })
    .unwrap()
}

#[tokio::test]
async fn an_international_address_is_sent_where_the_server_takes_it_and_given_up_elsewhere() {
    let audit = Audit::listen();
    for utf8 in [true, false] {
        let catcher = MailCatcher::start(Manner {
            utf8,
            ..Manner::default()
        });
        let mailing = Mailing::to(&catcher.url()).await;
        mailing.cause("jürgen@example.com").await;
        until(async || mailing.waiting() == 0).await;
        let taken: Vec<_> = catcher.taken().into_iter().map(|mail| mail.to).collect();
        assert_eq!(
            taken,
            if utf8 {
                vec!["jürgen@example.com"]
            } else {
                Vec::new()
            }
        );
        mailing.end().await;
    }
    let failed = audit.take(&["mail_failed"]);
    assert_eq!((failed.len(), &failed[0]["reason"]), (1, &"address".into()));
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_given_up_and_holds_no_other_up() {
    let audit = Audit::listen();
    let catcher = MailCatcher::start(Manner::default());
    let mailing = Mailing::to(&catcher.url()).await;
    let key: OutboxKey = (1, Uuid::nil());
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    let store = &mailing.server.app.core.store;
    let put = store.write("test", move |tx| tx.put(OUTBOX.id(), &bytes, b"\x01junk"));
    put.await.unwrap();
    mailing.cause("bob@example.com").await;
    until(async || mailing.waiting() == 0).await;
    assert_eq!(catcher.taken().len(), 1);
    assert_eq!(audit.take(&["mail_failed"])[0]["reason"], "unreadable");
    mailing.end().await;
}

#[tokio::test]
async fn a_server_that_ends_its_connections_gets_all_mails() {
    let catcher = MailCatcher::start(Manner {
        most_mails: 3,
        ..Manner::default()
    });
    let mailing = Mailing::to(&catcher.url()).await;
    for number in 0..20 {
        mailing.cause(&format!("user-{number}@example.com")).await;
    }
    until(async || mailing.waiting() == 0).await;
    let mut to: Vec<_> = catcher.taken().into_iter().map(|mail| mail.to).collect();
    to.sort();
    to.dedup();
    assert_eq!((to.len(), catcher.taken().len()), (20, 20));
    mailing.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_mails_go_out_while_people_sign_in() {
    let catcher = MailCatcher::start(Manner::default());
    let mailing = Mailing::to(&catcher.url()).await;
    let acme = mailing.server.client("acme").await;
    let alice = mailing.server.user("alice").await;
    let core = &mailing.server.app.core;
    let mails: Vec<_> = (0..1000)
        .map(|number| {
            let message = Message {
                to: format!("user-{number}@example.com"),
                languages: None,
                zone: None,
                client_id: None,
                content: Content::Test,
            };
            DrawnMail::draw(core, &message, core.clock.now()).unwrap()
        })
        .collect();
    let queued = core
        .store
        .write("test", move |tx| mails.iter().try_for_each(|mail| mail.put(tx)));
    queued.await.unwrap();
    core.outbox_filled.notify_one();
    let browser = alice.browser();
    let mut sign_ins = 0;
    while mailing.waiting() > 0 {
        acme.code(&browser).await;
        sign_ins += 1;
    }
    until(async || catcher.taken().len() == 1000).await;
    assert!(sign_ins > 0);
    assert!(
        catcher.connections() < 200,
        "{} connections",
        catcher.connections()
    );
    mailing.end().await;
}

/// The notice of a new browser, as a person in Brussels who reads German gets it.
#[tokio::test]
async fn a_notice_says_when_in_the_time_zone_of_the_reader() {
    let catcher = MailCatcher::start(Manner::default());
    let server = Server::start_with(|policy| policy.sends_mail = true).await;
    let acme = server.client("acme").await;
    let in_german = |user: &mut idsvc::identity::User| {
        user.claims.insert("locale".to_owned(), "de".into());
    };
    let alice = server.user_with("alice", in_german).await;
    let mailing = Mailing::with_server(server, &catcher.url());
    acme.code(&alice.browser()).await;
    until(async || catcher.taken().len() == 1).await;
    let data = catcher.taken()[0].data.clone();
    let now = mailing.server.clock.now();
    assert!(
        data.contains(&format!("Zeit: {}", now.in_zone(Some("Europe/Brussels")))),
        "{data}"
    );
    mailing.end().await;
}
