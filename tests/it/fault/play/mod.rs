//! Actors who use the service and remember what they were told, and how they are made to act and to check.
//!
//! Each keeps a model. A request without an answer may or may not have happened, so what it was about leaves the
//! model, unless the service promises that it can be repeated.

mod grants;
mod people;
pub(super) mod stage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use idsvc::random::Random;

use self::grants::Party;
use self::people::{Administrator, Person, Robot};
use self::stage::{Cast, Stage};
use crate::harness::process::{Running, Service};

const PARTIES: usize = 3;

/// Somebody who uses the service.
trait Actor: Send {
    /// Does one thing. Nothing when no whole answer came.
    fn act(&mut self, stage: &Stage<'_>) -> Option<()>;

    /// Panics unless everything that was answered holds.
    fn check(&mut self, stage: &Stage<'_>) -> Option<()>;
}

/// All of them, and what they know.
pub(super) struct Play<'a> {
    service: &'a Service,
    cast: Cast,
    parties: Vec<Party>,
    others: Vec<Box<dyn Actor>>,
}

/// What has come of a play so far.
pub(super) struct Outcome {
    /// What parties were answered.
    pub(super) answers: usize,
    /// Refresh families that ended for a reason, and must not come back.
    pub(super) ended: usize,
}

impl<'a> Play<'a> {
    pub(super) fn prepare(service: &'a Service) -> Self {
        let name = |number: usize| format!("user-{number}@example.com");
        let people: Vec<String> = (0..=PARTIES).map(name).collect();
        let cast = Cast::register(service, &people);
        let process = service.serve();
        let stage = Stage::new(service, &process, &cast);
        let parties = people[..PARTIES].iter();
        let parties = parties.map(|name| Party::new(stage.sign_in(name).unwrap()));
        let parties = parties.collect();
        let others: Vec<Box<dyn Actor>> = vec![
            Box::new(Person::new(&people[PARTIES])),
            Box::new(Robot::default()),
            Box::new(Administrator::default()),
        ];
        Self {
            service,
            cast,
            parties,
            others,
        }
    }

    /// Everybody checks; nothing else happens to the process.
    pub(super) fn check(&mut self, process: &Running<'_>) {
        let (service, cast) = (self.service, &self.cast);
        thread::scope(|scope| {
            for actor in actors(&mut self.parties, &mut self.others) {
                scope.spawn(move || {
                    let checked = actor.check(&Stage::new(service, process, cast));
                    assert!(checked.is_some(), "a running service does not answer");
                });
            }
        });
    }

    /// Everybody acts while something happens to the process; `disk_fails` when answers may be put off for it.
    pub(super) fn act_during(&mut self, process: &Running<'_>, disk_fails: bool, happening: impl FnOnce()) {
        let (service, cast) = (self.service, &self.cast);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for actor in actors(&mut self.parties, &mut self.others) {
                let over = &over;
                scope.spawn(move || {
                    let mut stage = Stage::new(service, process, cast);
                    stage.disk_fails = disk_fails;
                    while !over.load(Ordering::Relaxed) {
                        if actor.act(&stage).is_none() {
                            thread::yield_now();
                        }
                    }
                });
            }
            happening();
            over.store(true, Ordering::Relaxed);
        });
    }

    pub(super) fn outcome(&self) -> Outcome {
        Outcome {
            answers: self.parties.iter().map(|party| party.answers).sum(),
            ended: self.parties.iter().map(|party| party.ended).sum(),
        }
    }
}

fn actors<'a>(
    parties: &'a mut [Party],
    others: &'a mut [Box<dyn Actor>],
) -> impl Iterator<Item = &'a mut (dyn Actor + 'static)> {
    let parties = parties.iter_mut().map(|party| party as &mut dyn Actor);
    parties.chain(others.iter_mut().map(AsMut::as_mut))
}

impl<'a> Stage<'a> {
    fn new(service: &'a Service, process: &'a Running<'a>, cast: &'a Cast) -> Self {
        Self {
            service,
            process,
            cast,
            random: Random::system(),
            disk_fails: false,
        }
    }
}
