//! An actor that sends the same refresh token several times at once.
//!
//! Until a successor is used, every use of the token is a first use or the retry of one, so all that are answered
//! are granted; the successor made last is good and its siblings are refused without harm. Nobody knows the order in
//! which the answers were made, and after a lost answer not even whether the last of them was seen.

use std::thread;

use super::Actor;
use super::stage::{Stage, granted, refused, text};

const MOST_ALIVE: usize = 4;
const MOST_REMEMBERED: usize = 10;
const MOST_SUCCESSORS: usize = 8;

/// A refresh family of which `token` is good: it is the newest, or its successors were not used.
struct Family {
    token: String,
    /// The successors of the token. At most one of them is good.
    successors: Vec<Successor>,
    /// Whether there may be a successor that was not received.
    is_lost: bool,
}

struct Successor {
    refresh: String,
    access: String,
}

/// Sends a token two or three times in parallel, and finds the good successor later.
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
            successors: Vec::new(),
            is_lost: false,
        }
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
                let body = granted(told, "one of several uses of a token at once");
                self.successors.push(Successor {
                    refresh: text(&body["refresh_token"]),
                    access: text(&body["access_token"]),
                });
            } else {
                are_answered = false;
                self.is_lost = true;
            }
        }
        are_answered.then(|| stage.did("parallel refreshes"))
    }

    /// The indexes of the successors that introspection calls active. Introspection changes nothing.
    fn good(&self, stage: &Stage<'_>) -> Option<Vec<usize>> {
        let is_active = stage.is_active(&self.token)?;
        assert!(is_active, "a token whose successors were not used");
        let mut good = Vec::new();
        for (at, successor) in self.successors.iter().enumerate() {
            let is_active = stage.is_active(&successor.access)?;
            assert!(is_active, "an answered access token of a live family");
            if stage.is_active(&successor.refresh)? {
                good.push(at);
            }
        }
        assert!(good.len() < 2, "{} successors of one token are good", good.len());
        assert!(
            self.is_lost || self.successors.is_empty() || good.len() == 1,
            "all successors are known, and none is good"
        );
        Some(good)
    }

    /// Uses the token once more. Its earlier successors are worthless then.
    fn retry(&mut self, stage: &Stage<'_>) -> Option<()> {
        let Some(told) = stage.refresh(&self.token) else {
            self.is_lost = true;
            return None;
        };
        let body = granted(told, "a token whose successors were not used");
        let before = std::mem::replace(self, Self::of(text(&body["refresh_token"])));
        for successor in before.successors {
            superseded(stage, &successor.refresh)?;
        }
        Some(())
    }

    /// Uses the good successor. The token and its other successors are replays from then on.
    fn go_on(&mut self, at: usize, stage: &Stage<'_>) -> Option<Vec<String>> {
        let successors = self.successors.iter();
        let mut replays: Vec<_> = successors.map(|successor| successor.refresh.clone()).collect();
        let good = replays.swap_remove(at);
        for sibling in &replays {
            superseded(stage, sibling)?;
        }
        replays.push(std::mem::replace(&mut self.token, good));
        self.successors.clear();
        self.is_lost = true;
        let body = granted(stage.refresh(&self.token)?, "the good one of several successors");
        *self = Self::of(text(&body["refresh_token"]));
        Some(replays)
    }
}

/// Fails unless the token is refused because a repeated request replaced it.
fn superseded(stage: &Stage<'_>, token: &str) -> Option<()> {
    let told = stage.refresh(token)?;
    refused(&told, "the sibling of a good token");
    assert_eq!(
        told.1["error_description"],
        "refresh_token has been replaced by that of a repeated request"
    );
    Some(())
}

impl ParallelRefresher {
    /// Finds the good token of a family and continues with it, or ends the family with a replay.
    fn sort_out(&mut self, at: usize, stage: &Stage<'_>) -> Option<()> {
        let family = &mut self.alive[at];
        let good = family.good(stage)?;
        if !family.successors.is_empty() {
            stage.found("parallel successors");
        }
        if family.is_lost {
            stage.found("parallel answers lost");
        }
        let Some(&good) = good.first().filter(|_| stage.below(3) > 0) else {
            return family.retry(stage);
        };
        let replays = family.go_on(good, stage)?;
        if stage.is_heads() {
            let ending = self.alive.swap_remove(at);
            let replay = &replays[stage.below(replays.len())];
            refused(&stage.refresh(replay)?, "a token whose successor was used");
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
        let is_full = family.successors.len() >= MOST_SUCCESSORS;
        let is_open = family.is_lost || !family.successors.is_empty();
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
