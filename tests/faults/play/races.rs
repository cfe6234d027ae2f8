//! One-time values (codes, pushed requests, assertions) are used twice at once: at two nodes, if there are several.

use std::thread;

use super::Actor;
use super::stage::{Stage, refused};

const MOST_REMEMBERED: usize = 10;

/// Uses codes, pushed requests and assertions twice at once.
pub(super) struct ConcurrentUser {
    session: String,
    codes: Vec<String>,
    pushed: Vec<String>,
}

/// Asks twice at once. One answer is a success at most, and one is if both came.
fn race(stage: &Stage<'_>, ask: impl Fn() -> Option<bool> + Sync) -> Option<()> {
    let answers = thread::scope(|scope| {
        [(); 2]
            .map(|()| scope.spawn(&ask))
            .map(|asked| asked.join().unwrap())
    });
    let won = answers.iter().filter(|answer| **answer == Some(true)).count();
    assert!(won < 2, "good for two uses");
    let [one, other] = answers;
    one.and(other)?;
    assert_eq!(won, 1, "good for no use");
    stage.did("races");
    Some(())
}

impl ConcurrentUser {
    pub(super) fn new(session: String) -> Self {
        Self {
            session,
            codes: Vec::new(),
            pushed: Vec::new(),
        }
    }
}

impl Actor for ConcurrentUser {
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        match stage.below(3) {
            0 => {
                let code = stage.authorize(&self.session)?.unwrap();
                race(stage, || Some(stage.redeem(&code)?.0 == 200))?;
                self.codes.push(code);
            }
            1 => {
                let request = stage.push()?;
                race(stage, || stage.gets_code(&self.session, &request))?;
                self.pushed.push(request);
            }
            _ => {
                let assertion = stage.assertion();
                race(stage, || stage.is_unused(&assertion))?;
            }
        }
        Some(())
    }

    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        for code in &self.codes {
            refused(&stage.redeem(code)?, "a code that was won");
            stage.found("codes won once");
        }
        for request in &self.pushed {
            assert!(!stage.gets_code(&self.session, request)?, "a used request_uri");
            stage.found("pushed requests won once");
        }
        for used in [&mut self.codes, &mut self.pushed] {
            used.drain(..used.len().saturating_sub(MOST_REMEMBERED));
        }
        Some(())
    }
}
