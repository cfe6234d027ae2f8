//! A person who signs in, a client that authenticates by a key, and an administrator.

use std::collections::BTreeSet;
use std::time::Instant;

use super::Actor;
use super::stage::{Stage, granted, is_older, text};

/// An assertion is valid for 290 seconds; after that it would be refused anyway.
const ASSERTION_IS_VALID: u64 = 240;
const MOST_REMEMBERED: usize = 20;
const MOST_CLIENTS: usize = 8;

/// A user with a password. An administrator ends the user's sessions from time to time.
pub(super) struct Person {
    name: String,
    live: Vec<String>,
    ended: Vec<String>,
}

impl Person {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            live: Vec::new(),
            ended: Vec::new(),
        }
    }
}

impl Actor for Person {
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        if self.live.len() > 2 {
            // When the answer does not come nothing is known of these sessions.
            let going = std::mem::take(&mut self.live);
            stage.command(&format!("session revoke --user {} --yes --json", self.name))?;
            self.ended.extend(going);
            stage.did("sign-outs by command");
            return Some(());
        }
        self.live.push(stage.sign_in(&self.name)?);
        stage.did("sign-ins");
        Some(())
    }

    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        for session in &self.live {
            let led_to = stage.authorize(session)?;
            assert!(led_to.is_ok(), "an answered session does not work: {led_to:?}");
            stage.found("live sessions");
        }
        for session in &self.ended {
            let led_to = stage.authorize(session)?;
            assert!(led_to.is_err(), "an ended session came back to life");
            stage.found("ended sessions");
        }
        let surplus = self.ended.len().saturating_sub(MOST_REMEMBERED);
        self.ended.drain(..surplus);
        Some(())
    }
}

/// The client whose assertions are good for one use each.
#[derive(Default)]
pub(super) struct Robot {
    used: Vec<(String, Instant)>,
    /// Tokens that live for a day. Any signing key may have signed them.
    tokens: Vec<String>,
}

impl Robot {
    fn again(stage: &Stage<'_>, assertion: &str) -> Option<()> {
        assert!(!stage.is_unused(assertion)?, "a used assertion");
        Some(())
    }
}

impl Actor for Robot {
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        if let Some((assertion, _)) = self.used.last()
            && stage.below(4) == 0
        {
            Self::again(stage, assertion)?;
            stage.did("used assertions refused");
            return Some(());
        }
        let assertion = stage.assertion();
        let made = Instant::now();
        let body = granted(stage.present(&assertion)?, "a fresh assertion");
        self.used.push((assertion, made));
        self.tokens.push(text(&body["access_token"]));
        stage.did("assertions");
        Some(())
    }

    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        let surplus = self.used.len().saturating_sub(MOST_REMEMBERED);
        self.used.drain(..surplus);
        self.used.retain(|(_, made)| !is_older(ASSERTION_IS_VALID, *made));
        for (assertion, _) in &self.used {
            Self::again(stage, assertion)?;
            stage.found("used assertions");
        }
        while self.tokens.len() > 4 {
            self.tokens.remove(stage.below(self.tokens.len()));
        }
        for token in &self.tokens {
            assert!(
                stage.is_active(token)?,
                "a token does not outlive its key's service"
            );
            stage.found("live machine tokens");
        }
        Some(())
    }
}

/// An administrator at the command line.
#[derive(Default)]
pub(super) struct Administrator {
    added: Vec<String>,
    removed: Vec<String>,
    keys: BTreeSet<String>,
    count: usize,
}

impl Administrator {
    /// Whether a client is there. One that is not is missed in so many words.
    fn is_there(stage: &Stage<'_>, client: &str) -> bool {
        match stage.run(&format!("client show {client} --json")) {
            Ok(shown) => {
                assert_eq!(shown["client_id"], client);
                true
            }
            Err(said) => {
                assert!(said.contains(&format!("there is no client {client}\n")), "{said}");
                false
            }
        }
    }
}

impl Actor for Administrator {
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        self.count += 1;
        match stage.below(6) {
            0 => {
                let key = stage.command("key rotate --now --json")?;
                self.keys.insert(text(&key["kid"]));
                stage.did("keys rotated");
            }
            1..=2 if self.added.len() > 1 => {
                let name = self.added.swap_remove(stage.below(self.added.len()));
                stage.command(&format!("client remove {name} --yes --json"))?;
                self.removed.push(name);
                stage.did("clients removed");
            }
            _ => {
                let name = format!("client-{}", self.count);
                let words =
                    format!("client add {name} --redirect-uri https://app.example/cb --pkce optional --json");
                stage.command(&words)?;
                self.added.push(name);
                stage.did("clients added");
            }
        }
        Some(())
    }

    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        for name in &self.added {
            assert!(Self::is_there(stage, name), "{name} was added and is not there");
            stage.found("clients there");
        }
        for name in &self.removed {
            assert!(!Self::is_there(stage, name), "{name} was removed and is there");
            stage.found("clients gone");
        }
        self.removed.clear();
        while self.added.len() > MOST_CLIENTS {
            let name = self.added.remove(0);
            stage.command(&format!("client remove {name} --yes --json"))?;
        }
        let published = stage.key_names()?;
        for key in &self.keys {
            assert!(published.contains(key), "key {key} is not published any more");
            stage.found("published keys");
        }
        Some(())
    }
}
