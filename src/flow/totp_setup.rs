//! An authenticator app that a user sets up, with recovery codes, on the account page or in a sign-in.
//!
//! Nothing is stored until a code shows that the app has the seed. Until then the page keeps the seed and the codes,
//! sealed.

use std::time::Duration;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::browser::Browser;
use super::notice::DrawnNotice;
use super::{Core, factors};
use crate::clock::Timestamp;
use crate::identity::{Factor, FactorKind, RecoveryCodes, Totp, TotpSeed, User};
use crate::oauth::access_token::hour_of;
use crate::store::StoreError;
use crate::store::engine::Tx;

/// The texts of new recovery codes, which are shown once.
pub type CodeTexts = Vec<Zeroizing<String>>;

/// A seed and recovery codes that the user has not confirmed yet.
pub struct TotpSetup {
    pub seed: TotpSeed,
    /// The texts of the recovery codes.
    pub codes: CodeTexts,
    /// Both, sealed for the page.
    pub sealed: String,
    /// The account identifier of the user.
    pub account_id: String,
    id: Uuid,
    codes_id: Uuid,
    recovery_codes: RecoveryCodes,
}

const ID_LEN: usize = size_of::<Uuid>();

impl TotpSetup {
    /// How long the user may take.
    const LIFETIME: Duration = Duration::from_mins(10);

    /// Draws a seed and recovery codes, and seals them with a context that has the user in it.
    pub(in crate::flow) fn draw(core: &Core, context: &str, user: &User, now: Timestamp) -> Option<Self> {
        let mut ids = [(); 2].map(|()| *core.random.uuid_v7(core.clock.since_epoch()).as_bytes());
        // The app is listed before its recovery codes.
        ids.sort_unstable();
        let codes = Zeroizing::new(core.random.bytes::<{ RecoveryCodes::RANDOM }>());
        let seed = Zeroizing::new(core.random.bytes::<{ TotpSeed::LEN }>());
        let plain = Zeroizing::new([ids.concat().as_slice(), codes.as_slice(), seed.as_slice()].concat());
        let sealed = core
            .sealer
            .seal_in_hour(hour_of(now), context, &plain, &core.random);
        Self::open(core, context, user, &sealed, now)
    }

    /// Opens what [`TotpSetup::draw`] sealed with this context, if it is recent.
    pub(in crate::flow) fn open(
        core: &Core,
        context: &str,
        user: &User,
        sealed: &str,
        now: Timestamp,
    ) -> Option<Self> {
        let plain = core.sealer.open_of_hour(context, sealed).ok()?;
        let (id, rest) = plain.split_first_chunk::<ID_LEN>()?;
        let (codes_id, rest) = rest.split_first_chunk::<ID_LEN>()?;
        let (random, seed) = rest.split_first_chunk()?;
        let [id, codes_id] = [*id, *codes_id].map(Uuid::from_bytes);
        let begun_at = Timestamp::of_id(id);
        let is_recent = now < begun_at + Self::LIFETIME && !begun_at.is_ahead_of(now);
        let generated = RecoveryCodes::generate(codes_id, random);
        let seed = TotpSeed::new(seed)?;
        is_recent.then(|| Self {
            seed,
            codes: generated.texts,
            sealed: sealed.to_owned(),
            account_id: user.account_id.clone(),
            id,
            codes_id,
            recovery_codes: generated.codes,
        })
    }

    /// The address that the QR code has in it. Without a name of the service, the app shows the issuer.
    pub fn address(&self, core: &Core, service: Option<&str>) -> String {
        let issuer = core.policy.issuer.as_str();
        let host = issuer
            .trim_start_matches("https://")
            .trim_start_matches("http://");
        let label = service.unwrap_or(host);
        self.seed.address(label, &self.account_id).to_string()
    }

    /// The factors, if the typed code is one of this app.
    ///
    /// Their ids were drawn with the seed, so that a form that is sent twice adds them once.
    pub(in crate::flow) fn confirm(
        &self,
        core: &Core,
        user: Uuid,
        typed: &str,
        now: Timestamp,
    ) -> Option<NewFactors> {
        let totp = Totp {
            last_step: self.seed.step_of(typed, now)?,
            sealed: factors::seal_seed(core, user, &self.seed),
        };
        Some(NewFactors {
            id: self.id,
            totp: Factor {
                last_used_at: Some(now),
                ..new_factor(FactorKind::Totp(totp), now)
            },
            codes_id: self.codes_id,
            codes: new_factor(FactorKind::RecoveryCodes(self.recovery_codes.clone()), now),
        })
    }
}

/// A factor without a name, which was not used yet.
pub(in crate::flow) fn new_factor(kind: FactorKind, now: Timestamp) -> Factor {
    Factor {
        name: String::new(),
        added_at: now,
        last_used_at: None,
        kind,
    }
}

fn is_codes(factor: &Factor) -> bool {
    matches!(factor.kind, FactorKind::RecoveryCodes(_))
}

/// A confirmed app, and recovery codes.
#[derive(Clone)]
pub(in crate::flow) struct NewFactors {
    /// The id of the app.
    pub(in crate::flow) id: Uuid,
    totp: Factor,
    codes_id: Uuid,
    codes: Factor,
}

impl NewFactors {
    /// The notice that they were added. Its link removes both: only the transaction knows whether it adds the codes.
    /// `present` decides only what the text names.
    pub(in crate::flow) fn notice(
        &self,
        core: &Core,
        user: &User,
        browser: &Browser,
        present: &[(Uuid, Factor)],
        now: Timestamp,
    ) -> Result<Option<DrawnNotice>, StoreError> {
        let notice = DrawnNotice::of_added(core, user, browser, &self.beside(present), now)?;
        Ok(notice.map(|notice| notice.adding(vec![self.id, self.codes_id])))
    }

    /// The app, and the recovery codes if there are none among the `present` factors.
    fn beside(&self, present: &[(Uuid, Factor)]) -> Vec<(Uuid, &Factor)> {
        let app = (self.id, &self.totp);
        let codes = (self.codes_id, &self.codes);
        if present.iter().any(|(_, factor)| is_codes(factor)) {
            vec![app]
        } else {
            vec![app, codes]
        }
    }

    /// Adds the app, and the recovery codes if the user has none. Returns whether the codes were added; `None` if the user
    /// has too many factors.
    pub(in crate::flow) fn add(&self, tx: &mut dyn Tx, user: Uuid) -> Result<Option<bool>, StoreError> {
        let present = factors::of_user(&*tx, user)?;
        let needs_codes = !present.iter().any(|(_, factor)| is_codes(factor));
        if present.len() + usize::from(needs_codes) >= factors::MAX_PER_USER {
            return Ok(None);
        }
        factors::add(tx, user, self.id, &self.totp)?;
        if needs_codes {
            factors::add(tx, user, self.codes_id, &self.codes)?;
        }
        Ok(Some(needs_codes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::admin::tests::core;
    use crate::identity::LinkPurpose;
    use crate::store::tables::ONE_TIME_LINKS;

    /// The codes that were there when the notice was drawn may be gone in the transaction, and the other way around.
    #[tokio::test]
    async fn the_link_of_a_notice_removes_all_that_the_transaction_adds_whatever_was_there_before() {
        for [had_codes, has_codes] in [[true, false], [true, true], [false, false], [false, true]] {
            let mut core = core();
            Arc::make_mut(&mut core.policy).sends_mail = true;
            let now = core.clock.now();
            let user = User::local(core.random.uuid_v4(), "alice@example.com", "org", now);
            let setup = TotpSetup::draw(&core, "test", &user, now).unwrap();
            let totp = Totp {
                last_step: 0,
                sealed: factors::seal_seed(&core, user.uuid, &setup.seed),
            };
            let new = NewFactors {
                id: setup.id,
                totp: new_factor(FactorKind::Totp(totp), now),
                codes_id: setup.codes_id,
                codes: new_factor(FactorKind::RecoveryCodes(setup.recovery_codes), now),
            };
            let codes = (core.random.uuid_v4(), new.codes.clone());
            let before = Vec::from_iter(had_codes.then(|| codes.clone()));
            let notice = new.notice(&core, &user, &Browser::default(), &before, now);
            let notice = notice.unwrap().unwrap();
            assert_eq!(new.beside(&before).len(), if had_codes { 1 } else { 2 });
            let written = core.store.write("test", move |tx| -> Result<_, StoreError> {
                if has_codes {
                    factors::add(tx, user.uuid, codes.0, &codes.1)?;
                }
                new.add(tx, user.uuid)?;
                notice.put(tx)?;
                let links = ONE_TIME_LINKS.scan(&*tx, .., 1)?;
                Ok((links, factors::of_user(&*tx, user.uuid)?, codes.0))
            });
            let (links, stored, earlier) = written.await.unwrap();
            let LinkPurpose::SecureAccount { event, .. } = &links[0].1.purpose else {
                panic!("another link")
            };
            let undone = &event.as_ref().unwrap().factors;
            let mut added = stored.iter().filter(|(id, _)| *id != earlier);
            assert!(
                added.all(|(id, _)| undone.contains(id)),
                "{had_codes} {has_codes}"
            );
            assert!(!undone.contains(&earlier));
        }
    }
}
