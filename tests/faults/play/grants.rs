//! A relying party: codes, refresh families and access tokens, of a signed-in user and of strangers.

use std::time::Instant;

use super::Actor;
use super::stage::{Stage, granted, is_older, refused, text};

/// All parties together stay far from the most families that one user may have at a client.
const MOST_ALIVE: usize = 5;
/// Seconds after which a code, which is good for 60, is not held to its promise any more.
const CODE_IS_GOOD: u64 = 40;
const MOST_REMEMBERED: usize = 10;

/// A refresh family that is alive.
struct Family {
    refresh: String,
    access: String,
    /// Whether the access token may have been revoked: nobody answered.
    is_in_doubt: bool,
    /// The token that `refresh` was made of, which is good for a retry.
    before: Option<String>,
    /// The one before that, which is good for nothing.
    replaced: Option<String>,
    /// The code that it began with, and when that was made.
    code: Option<(String, Instant)>,
}

/// The answers that one party received so far.
pub(super) struct Party {
    session: String,
    codes: Vec<(String, Instant)>,
    alive: Vec<Family>,
    /// Newest tokens of families that were revoked: refresh and access token.
    dead: Vec<(String, String)>,
    /// Access tokens that were revoked by themselves.
    withdrawn: Vec<String>,
}

impl Party {
    pub(super) fn new(session: String) -> Self {
        Self {
            session,
            codes: Vec::new(),
            alive: Vec::new(),
            dead: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    fn begin(&mut self, stage: &Stage<'_>) -> Option<()> {
        if stage.below(3) == 0 {
            let body = granted(stage.anonymous()?, "the anonymous grant");
            self.alive.push(Family::from(&body, None));
            stage.did("anonymous grants");
            return Some(());
        }
        let code = stage.authorize(&self.session)?;
        self.codes.push((code.unwrap(), Instant::now()));
        if stage.is_heads() {
            self.redeem(stage)?;
        }
        Some(())
    }

    /// Redeems the newest code: whether there was one that is still held to its promise.
    fn redeem(&mut self, stage: &Stage<'_>) -> Option<bool> {
        let Some((code, made)) = self.codes.pop() else {
            return Some(false);
        };
        if is_older(CODE_IS_GOOD, made) {
            return Some(false);
        }
        let body = granted(stage.redeem(&code)?, "an answered code");
        self.alive.push(Family::from(&body, Some((code, made))));
        stage.did("codes redeemed");
        Some(true)
    }

    /// Presents the code of a family again, which ends it.
    fn spend_again(&mut self, at: usize, stage: &Stage<'_>) -> Option<()> {
        let mut family = self.alive.swap_remove(at);
        let (code, _) = family.code.take().unwrap();
        refused(&stage.redeem(&code)?, "a spent code");
        self.bury(family);
        Some(())
    }

    /// A code that was answered and not spent is good once, and one that was spent before is not.
    fn check_codes(&mut self, stage: &Stage<'_>) -> Option<()> {
        // A code that is too old would be refused anyway.
        let spent = self.alive.iter().position(|family| {
            let code = family.code.as_ref();
            code.is_some_and(|(_, made)| !is_older(CODE_IS_GOOD, *made))
        });
        if let Some(at) = spent.filter(|_| stage.is_heads()) {
            self.spend_again(at, stage)?;
            stage.found("spent codes");
        }
        if stage.below(3) > 0 && self.redeem(stage)? {
            stage.found("unspent codes");
            if stage.is_heads() {
                self.spend_again(self.alive.len() - 1, stage)?;
            }
        }
        Some(())
    }

    fn bury(&mut self, family: Family) {
        self.dead.push((family.refresh, family.access));
    }

    /// Takes a family out of the model, and ends it.
    fn end(&mut self, stage: &Stage<'_>) -> Option<()> {
        let at = stage.below(self.alive.len());
        if self.alive[at].code.is_some() && stage.below(3) == 0 {
            self.spend_again(at, stage)?;
            stage.did("spent codes refused");
            return Some(());
        }
        let mut family = self.alive.swap_remove(at);
        match stage.below(2) {
            0 if family.replaced.is_some() => {
                let replaced = family.replaced.take().unwrap();
                refused(&stage.refresh(&replaced)?, "a replaced token");
                stage.did("replays refused");
            }
            _ => {
                stage.revoke(&family.refresh)?;
                stage.did("families revoked");
            }
        }
        self.bury(family);
        Some(())
    }
}

impl Family {
    fn from(body: &serde_json::Value, code: Option<(String, Instant)>) -> Self {
        Self {
            refresh: text(&body["refresh_token"]),
            access: text(&body["access_token"]),
            is_in_doubt: false,
            before: None,
            replaced: None,
            code,
        }
    }

    /// An answer that does not come leaves the family as it is: the token stays good for a retry. The one before it may
    /// have become a replay.
    fn refresh(&mut self, stage: &Stage<'_>) -> Option<()> {
        let before = self.before.take();
        let body = granted(stage.refresh(&self.refresh)?, "an answered token");
        self.replaced = before.or(self.replaced.take());
        self.before = Some(std::mem::replace(&mut self.refresh, text(&body["refresh_token"])));
        self.take_access(&body);
        stage.did("refreshes");
        Some(())
    }

    /// Asks for the newest answer again, as if it had been lost.
    fn retry(&mut self, stage: &Stage<'_>) -> Option<()> {
        let Some(before) = &self.before else {
            return self.refresh(stage);
        };
        let body = granted(stage.refresh(before)?, "a token whose answer was lost");
        assert_eq!(text(&body["refresh_token"]), self.refresh, "another successor");
        self.take_access(&body);
        stage.did("retries");
        Some(())
    }

    fn take_access(&mut self, body: &serde_json::Value) {
        self.access = text(&body["access_token"]);
        self.is_in_doubt = false;
    }
}

impl Actor for Party {
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        let alive = self.alive.len();
        match stage.below(12) {
            0..=2 if alive < MOST_ALIVE => self.begin(stage)?,
            3 if alive < MOST_ALIVE && !self.codes.is_empty() => {
                self.redeem(stage)?;
            }
            4 if alive > 1 => self.end(stage)?,
            5 if alive > 0 => {
                let family = &mut self.alive[stage.below(alive)];
                family.is_in_doubt = true;
                stage.revoke(&family.access)?;
                family.is_in_doubt = false;
                self.withdrawn.push(family.access.clone());
                stage.did("access tokens revoked");
            }
            6..=7 if alive > 0 => {
                self.alive[stage.below(alive)].retry(stage)?;
            }
            _ if alive > 0 => {
                self.alive[stage.below(alive)].refresh(stage)?;
            }
            _ => self.begin(stage)?,
        }
        Some(())
    }

    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        for at in (0..self.alive.len()).rev() {
            let family = &mut self.alive[at];
            if !family.is_in_doubt {
                let is_withdrawn = self.withdrawn.contains(&family.access);
                let is_active = stage.is_active(&family.access)?;
                assert_eq!(is_active, !is_withdrawn, "an answered access token");
            }
            if stage.is_heads() {
                family.retry(stage)?;
            }
            family.refresh(stage)?;
            stage.found("live families");
        }
        for (refresh, access) in &self.dead {
            refused(&stage.refresh(refresh)?, "a revoked family");
            assert!(
                !stage.is_active(access)?,
                "an access token of a revoked family is active"
            );
            stage.found("ended families");
        }
        for access in &self.withdrawn {
            assert!(!stage.is_active(access)?, "a revoked access token is active");
            stage.found("revoked access tokens");
        }
        self.check_codes(stage)?;
        let surplus = self.dead.len().saturating_sub(MOST_REMEMBERED);
        self.dead.drain(..surplus);
        let surplus = self.withdrawn.len().saturating_sub(MOST_REMEMBERED);
        self.withdrawn.drain(..surplus);
        while self.alive.len() > MOST_ALIVE {
            self.end(stage)?;
        }
        Some(())
    }
}
