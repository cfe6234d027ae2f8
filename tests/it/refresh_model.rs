//! The life of a refresh family against a model of it: RFC 6749 section 6, RFC 9700 section 4.14.2, RFC 7009.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::harness::{RelyingParty, Server};

const LIFETIME: u64 = 1_000;
const ABSOLUTE: u64 = 3_000;
const WINDOW: u64 = 120;

/// A step of the client or an attacker. Tokens are counted from the newest one.
#[derive(Clone, Debug)]
enum Step {
    Refresh(usize),
    Revoke(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let times = vec![1, WINDOW - 1, WINDOW, WINDOW + 1, LIFETIME - 1, LIFETIME];
    let step = prop_oneof![
        8 => (0_usize..2).prop_map(Step::Refresh),
        2 => (0_usize..6).prop_map(Step::Refresh),
        1 => (0_usize..6).prop_map(Step::Revoke),
        4 => prop::sample::select(times).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..24)
}

/// What the service is expected to know of one family.
struct Model {
    tokens: Vec<String>,
    began: u64,
    expires: u64,
    /// The token before the newest, and when it was first used.
    before: Option<(usize, u64)>,
    revoked: bool,
}

impl Model {
    fn of(first: &str, now: u64) -> Self {
        Self {
            tokens: vec![first.to_owned()],
            began: now,
            expires: now + LIFETIME,
            before: None,
            revoked: false,
        }
    }

    fn newest(&self) -> usize {
        self.tokens.len() - 1
    }

    fn pick(&self, back: usize) -> usize {
        self.newest().saturating_sub(back)
    }

    /// Whether a token is good for a refresh.
    fn is_active(&self, token: usize, now: u64) -> bool {
        let retries = self
            .before
            .is_some_and(|(before, used)| before == token && now <= used + WINDOW);
        !self.revoked && now < self.expires && (token == self.newest() || retries)
    }

    /// What comes of a refresh: nothing to complain of, or this. What it changes is done, but for the new token. A
    /// retry changes nothing.
    fn refresh(&mut self, token: usize, now: u64) -> Option<&'static str> {
        if self.revoked {
            return Some("400 invalid_grant: refresh_token has been revoked");
        }
        if now >= self.expires {
            return Some("400 invalid_grant: refresh_token has expired");
        }
        if self.is_active(token, now) {
            if token == self.newest() {
                self.before = Some((token, now));
                self.expires = (now + LIFETIME).min(self.began + ABSOLUTE);
            }
            return None;
        }
        self.revoked = true;
        Some("400 invalid_grant: refresh_token was used before; its family has been revoked")
    }
}

async fn play(server: &Server, acme: &RelyingParty, first: &str, steps: &[Step]) {
    let mut model = Model::of(first, server.clock.now().seconds());
    for step in steps {
        let now = server.clock.now().seconds();
        match step {
            Step::Refresh(back) => {
                let token = model.pick(*back);
                let reply = acme.refresh(&model.tokens[token]).await;
                let is_retry = token < model.newest();
                match model.refresh(token, now) {
                    None if is_retry => {
                        assert_eq!(reply.tokens().refresh_token(), model.tokens[model.newest()]);
                    }
                    None => model.tokens.push(reply.tokens().refresh_token().to_owned()),
                    Some(refusal) => assert_eq!(reply.refusal(), refusal),
                }
            }
            Step::Revoke(back) => {
                let reply = acme.revoke(&model.tokens[model.pick(*back)]).await;
                assert_eq!(reply.status, 200);
                model.revoked = true;
            }
            Step::Wait(seconds) => server.advance(*seconds),
        }
        let now = server.clock.now().seconds();
        for token in model.pick(3)..=model.newest() {
            let reply = acme.introspect(&model.tokens[token]).await;
            assert_eq!(
                reply.json()["active"],
                model.is_active(token, now),
                "token {token}"
            );
        }
    }
}

#[test]
fn a_family_lives_as_its_model_does() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (server, acme, alice) = runtime.block_on(async {
        let server = Server::start_with(|policy| {
            policy.lifetimes.refresh_token = Duration::from_secs(LIFETIME);
            policy.lifetimes.refresh_absolute = Some(Duration::from_secs(ABSOLUTE));
            policy.refresh_retry_window = Duration::from_secs(WINDOW);
        })
        .await;
        let acme = server.client("acme").await;
        let alice = server.user("alice").await;
        (server, acme, alice)
    });
    let config = Config {
        cases: 48,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(async {
            let request = acme.request().with("scope", "notes.read");
            let first = acme.tokens_for(&alice.browser(), &request).await;
            play(&server, &acme, first.refresh_token(), &steps).await;
        });
        Ok(())
    });
    outcome.unwrap();
}
