//! The service in this process, and the people and programs that talk to it.

pub(crate) mod audit;
pub(crate) mod authenticator;
pub(crate) mod authority;
pub(crate) mod browser;
pub(crate) mod dpop;
#[cfg(feature = "postgres")]
pub(crate) mod fault_proxy;
pub(crate) mod foreign_key;
pub(crate) mod frames;
pub(crate) mod html;
pub(crate) mod kiosk;
pub(crate) mod mailbox;
pub(crate) mod metrics;
pub(crate) mod mtls;
#[cfg(feature = "postgres")]
pub(crate) mod nodes;
#[cfg(feature = "postgres")]
pub(crate) mod pgbouncer;
pub(crate) mod port;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod registration;
pub(crate) mod relying_party;
pub(crate) mod reply;
pub(crate) mod report;
pub(crate) mod server;
#[cfg(feature = "postgres")]
pub(crate) mod shared_store;
pub(crate) mod smtp;
#[cfg(feature = "postgres")]
pub(crate) mod standby;
pub(crate) mod terminal;
pub(crate) mod tls;
pub(crate) mod token;
pub(crate) mod upstream;
pub(crate) mod wire;

use std::time::Duration;

use idsvc::flow::sweep::{Cursor, sweep};

pub(crate) use audit::Audit;
pub(crate) use browser::{Browser, Screen};
pub(crate) use relying_party::{AuthorizationRequest, RelyingParty};
pub(crate) use reply::Reply;
pub(crate) use server::{ISSUER, Person, START, Server};
pub(crate) use token::{Jwt, Tokens};
pub(crate) use upstream::{Say, Upstream};

/// The usual participants: the service, a confidential client, and a user who is not signed in yet.
pub(crate) async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

/// Names and values of `application/x-www-form-urlencoded`, in order.
pub(crate) fn parse_form(form: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(form.as_bytes()).into_owned().collect()
}

/// The other way around.
pub(crate) fn write_form<N: AsRef<str>, V: AsRef<str>>(fields: &[(N, V)]) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields.iter().map(|(name, value)| (name.as_ref(), value.as_ref())))
        .finish()
}

/// Comes back once this is so.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waiting)
        .await
        .unwrap();
}

/// Sweeps until everything has been looked at.
pub(crate) async fn sweep_all(server: &Server) -> usize {
    let core = &server.app.core;
    let mut cursor = Cursor::default();
    let mut removed = 0;
    loop {
        let swept = sweep(core, &mut cursor, core.clock.now()).await.unwrap();
        removed += swept.removed;
        if !swept.more {
            return removed;
        }
    }
}
