//! An actor that sends the same refresh token several times at once.
//!
//! Until the successor is used, every use of the token is a first use or the retry of one, so all that are answered
//! are granted, with the same successor. After a lost answer nobody knows whether there is one.

use std::thread;

use super::Actor;
use super::stage::{Stage, StatusAndBody, granted, refused, text};

const MOST_ALIVE: usize = 4;
const MOST_REMEMBERED: usize = 10;
const MOST_ANSWERS: usize = 8;

/// A refresh family of which `token` is good: it is the newest, or its successor was not used.
struct Family {
    token: String,
    successor: Option<String>,
    /// The access tokens of the answers.
    access: Vec<String>,
    /// Whether there may be a successor that was not received.
    is_lost: bool,
}

/// Sends a token two or three times in parallel, and goes on with the successor later.
#[derive(Default)]
pub(super) struct ParallelRefresher {
    alive: Vec<Family>,
    /// Tokens that were the newest of families that ended.
    dead: Vec<String>,
}

impl Family {
    fn of(token: String) -> Self {
        Self {
            token,
            successor: None,
            access: Vec::new(),
            is_lost: false,
        }
    }

    fn take(&mut self, told: StatusAndBody) {
        let body = granted(told, "a token whose successor was not used");
        let successor = text(&body["refresh_token"]);
        let known = self.successor.get_or_insert_with(|| successor.clone());
        assert_eq!(*known, successor, "a token has two successors");
        self.access.push(text(&body["access_token"]));
    }

    fn send_at_once(&mut self, stage: &Stage<'_>) -> Option<()> {
        let token = self.token.as_str();
        let answers: Vec<_> = thread::scope(|scope| {
            let asked: Vec<_> = (0..2 + stage.below(2))
                .map(|_| scope.spawn(|| stage.refresh(token)))
                .collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        let mut are_answered = true;
        for answer in answers {
            if let Some(told) = answer {
                self.take(told);
            } else {
                are_answered = false;
                self.is_lost = true;
            }
        }
        are_answered.then(|| stage.did("parallel refreshes"))
    }

    /// Everything that was answered is good. Introspection changes nothing.
    fn check(&self, stage: &Stage<'_>) -> Option<()> {
        for token in [&self.token]
            .into_iter()
            .chain(&self.successor)
            .chain(&self.access)
        {
            let is_active = stage.is_active(token)?;
            assert!(is_active, "a token of a live family");
        }
        Some(())
    }

    /// Uses the token once more.
    fn retry(&mut self, stage: &Stage<'_>) -> Option<()> {
        let Some(told) = stage.refresh(&self.token) else {
            self.is_lost = true;
            return None;
        };
        self.take(told);
        Some(())
    }

    /// Uses the successor. The token is a replay from then on.
    fn go_on(&mut self, successor: String, stage: &Stage<'_>) -> Option<String> {
        let replay = std::mem::replace(&mut self.token, successor);
        self.successor = None;
        self.is_lost = true;
        let body = granted(stage.refresh(&self.token)?, "the successor of a token");
        *self = Self::of(text(&body["refresh_token"]));
        Some(replay)
    }
}

impl ParallelRefresher {
    /// Continues with the successor of a token, or ends the family with a replay.
    fn sort_out(&mut self, at: usize, stage: &Stage<'_>) -> Option<()> {
        let family = &mut self.alive[at];
        family.check(stage)?;
        if family.successor.is_some() {
            stage.found("parallel successors");
        }
        if family.is_lost {
            stage.found("parallel answers lost");
        }
        let Some(successor) = family.successor.clone().filter(|_| stage.below(3) > 0) else {
            return family.retry(stage);
        };
        let replay = family.go_on(successor, stage)?;
        if stage.is_heads() {
            let ending = self.alive.swap_remove(at);
            refused(&stage.refresh(&replay)?, "a token whose successor was used");
            self.dead.push(ending.token);
        }
        Some(())
    }
}

impl Actor for ParallelRefresher {
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        let alive = self.alive.len();
        if alive == 0 || alive < MOST_ALIVE && stage.below(4) == 0 {
            let body = granted(stage.anonymous()?, "the anonymous grant");
            self.alive.push(Family::of(text(&body["refresh_token"])));
            return Some(());
        }
        let at = stage.below(alive);
        let family = &mut self.alive[at];
        let is_full = family.access.len() >= MOST_ANSWERS;
        let is_open = family.is_lost || family.successor.is_some();
        if is_full || is_open && stage.is_heads() {
            self.sort_out(at, stage)?;
            stage.did("successors sorted out");
            return Some(());
        }
        family.send_at_once(stage)
    }

    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        for at in (0..self.alive.len()).rev() {
            self.sort_out(at, stage)?;
        }
        for token in &self.dead {
            refused(&stage.refresh(token)?, "a family that a replay ended");
        }
        let surplus = self.dead.len().saturating_sub(MOST_REMEMBERED);
        self.dead.drain(..surplus);
        Some(())
    }
}
