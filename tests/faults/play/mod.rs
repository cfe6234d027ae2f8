//! Actors that use the service, remember its answers, and check them later.
//!
//! Each keeps a model. A request without an answer may or may not have happened, so what it was about leaves the
//! model, unless the service promises that it can be repeated.

mod client_status;
mod grants;
mod haste;
mod locks;
mod people;
mod races;
pub(super) mod stage;
mod tally;

use std::sync::atomic::{AtomicBool, Ordering};
use std::{slice, thread};

use idsvc::random::Random;

use self::client_status::ClientDisabler;
use self::grants::Party;
use self::haste::ParallelRefresher;
use self::locks::LockingAdministrator;
use self::people::{Administrator, Person, Robot};
use self::races::ConcurrentUser;
use self::stage::{Cast, Stage};
use self::tally::{ACTIONS, PROOFS, Tally};
use crate::harness::process::Service;

const PARTIES: usize = 3;

/// A user or program that uses the service.
trait Actor: Send {
    /// Does one thing. Nothing when no whole answer came.
    fn act(&mut self, stage: &Stage<'_>) -> Option<()>;

    /// Panics unless everything that was answered holds.
    fn check(&mut self, stage: &Stage<'_>) -> Option<()>;
}

/// All actors, with their models.
pub(super) struct Play<'a> {
    nodes: &'a [Service],
    random: Random,
    cast: Cast,
    actors: Vec<Box<dyn Actor>>,
    actions: Tally,
    proofs: Tally,
}

impl<'a> Play<'a> {
    /// Registers and signs in everybody at a service of one process.
    pub(super) fn of(service: &'a Service) -> Self {
        Self::of_nodes(slice::from_ref(service), Random::system())
    }

    /// Registers and signs in everybody at these nodes.
    pub(super) fn of_nodes(nodes: &'a [Service], random: Random) -> Self {
        let service = &nodes[0];
        let name = |number: usize| format!("user-{number}@example.com");
        let people: Vec<String> = (0..PARTIES + 3).map(name).collect();
        let cast = Cast::register(service, &people);
        let vault = LockingAdministrator::register(service);
        let disabler = ClientDisabler::register(service);
        let running: Vec<_> = nodes.iter().map(Service::serve).collect();
        let stage = Stage::new(nodes, &cast, &random);
        let mut actors: Vec<Box<dyn Actor>> = vec![
            Box::new(Person::new(&people[PARTIES])),
            Box::new(Robot::default()),
            Box::new(Administrator::default()),
            Box::new(ParallelRefresher::default()),
            Box::new(LockingAdministrator::new(&people[PARTIES + 1], vault, &stage)),
            Box::new(ConcurrentUser::new(stage.sign_in(&people[PARTIES + 2]).unwrap())),
            Box::new(disabler),
        ];
        for name in &people[..PARTIES] {
            actors.push(Box::new(Party::new(stage.sign_in(name).unwrap())));
        }
        drop(running);
        Self {
            nodes,
            random,
            cast,
            actors,
            actions: Tally::of(ACTIONS),
            proofs: Tally::of(PROOFS),
        }
    }

    /// Everybody checks; nothing else happens to the nodes, which run.
    pub(super) fn check(&mut self) {
        let (nodes, cast, proofs, random) = (self.nodes, &self.cast, &self.proofs, &self.random);
        thread::scope(|scope| {
            for actor in &mut self.actors {
                let mut stage = Stage::new(nodes, cast, random);
                scope.spawn(move || {
                    stage.proofs = Some(proofs);
                    let checked = actor.check(&stage);
                    assert!(checked.is_some(), "a running service does not answer");
                });
            }
        });
    }

    /// Everybody acts while something happens to the nodes; `storage_fails` when answers may be put off for it.
    pub(super) fn act_during(&mut self, storage_fails: bool, happening: impl FnOnce()) {
        let (nodes, cast, actions, random) = (self.nodes, &self.cast, &self.actions, &self.random);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for actor in &mut self.actors {
                let over = &over;
                let mut stage = Stage::new(nodes, cast, random);
                scope.spawn(move || {
                    stage.storage_fails = storage_fails;
                    stage.actions = Some(actions);
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

    /// How many grants were answered.
    pub(super) fn grants(&self) -> usize {
        self.actions
            .of_these(&["anonymous grants", "codes redeemed", "refreshes", "retries"])
    }

    /// The actions and results that were counted less often than this.
    pub(super) fn lacks(&self, floor: usize) -> Vec<(&'static str, usize)> {
        let mut lacks = self.actions.below(floor);
        lacks.extend(self.proofs.below(floor));
        lacks
    }

    /// The counted actions and results, in words.
    pub(super) fn outcome(&self) -> String {
        format!(
            "{}; {} times what was checked held, {} times of unspent codes and {} times of spent ones",
            self.actions.shown(),
            self.proofs.sum(),
            self.proofs.of_these(&["unspent codes"]),
            self.proofs.of_these(&["spent codes"])
        )
    }
}

impl<'a> Stage<'a> {
    fn new(nodes: &'a [Service], cast: &'a Cast, random: &Random) -> Self {
        Self {
            nodes,
            cast,
            random: Random::seeded(u64::from_be_bytes(random.bytes())),
            storage_fails: false,
            actions: None,
            proofs: None,
        }
    }
}
