//! The section of the account page with the factors of the user.

use uuid::Uuid;

use super::account_action::{ActionAnswer, SectionAnswer};
use super::account_passkeys::{self, PasskeyAction};
use super::account_proof;
use super::page_parts::moment;
use crate::clock::Timestamp;
use crate::flow::Failure;
use crate::flow::account::ActionResult;
use crate::flow::account::factors::{
    TotpConfirmation, TotpConfirmationForm, begin_totp, confirm_totp, remove_factor, renew_recovery_codes,
};
use crate::flow::account::present_proof::PresentProof;
use crate::flow::login::session::LiveSession;
use crate::flow::totp_setup::TotpSetup;
use crate::http::context::RequestContext;
use crate::http::request::Parameters;
use crate::identity::{Factor, FactorKind, SecondFactorRule};
use crate::pages::AccountNotice;
use crate::pages::security::{FactorLine, FactorLineKind, Security, TotpForm};
use crate::pages::totp_key::TotpKey;
use crate::route::Route;

/// An action that a form asks for.
pub(super) enum FactorAction {
    BeginTotp,
    ConfirmTotp(TotpConfirmationForm),
    RenewCodes,
    Remove(Uuid),
    Passkey(PasskeyAction),
}

impl FactorAction {
    /// Reads a form with this value of `decision`.
    pub(super) fn read(decision: &str, form: &Parameters) -> Option<Self> {
        let typed = |name: &str| form.get(name).unwrap_or_default().to_owned();
        match decision {
            "totp" => Some(Self::BeginTotp),
            "totp-confirm" => Some(Self::ConfirmTotp(TotpConfirmationForm {
                sealed: typed("setup"),
                code: typed("code"),
            })),
            "recovery-codes" => Some(Self::RenewCodes),
            "factors" => form.get("factor")?.parse().ok().map(Self::Remove),
            decision => PasskeyAction::read(decision, form).map(Self::Passkey),
        }
    }

    pub(super) async fn perform(
        self,
        context: &RequestContext,
        form: &Parameters,
    ) -> Result<ActionResult<ActionAnswer>, Failure> {
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        if let Self::BeginTotp = self {
            let begun = begin_totp(core, &browser, now).await?;
            return Ok(begun.map(|setup| setup_section(context, &setup, None)));
        }
        let Some(proof) = account_proof::read(context, form).await? else {
            return Ok(ActionResult::SignInRequired);
        };
        Ok(match self {
            Self::BeginTotp => ActionResult::SignInRequired,
            Self::ConfirmTotp(typed) => return confirm(context, &typed, &proof).await,
            Self::RenewCodes => {
                let renewed = renew_recovery_codes(core, &browser, &proof, now).await?;
                renewed.map(|texts| {
                    if texts.is_empty() {
                        ActionAnswer::Notice(AccountNotice::Expired)
                    } else {
                        codes_section(context, &texts)
                    }
                })
            }
            Self::Passkey(action) => {
                let done = action.perform(context, &proof).await?;
                done.map(ActionAnswer::Notice)
            }
            Self::Remove(id) => {
                let removed = remove_factor(core, &browser, id, &proof, now).await?;
                removed.map(|()| ActionAnswer::Notice(AccountNotice::FactorRemoved))
            }
        })
    }
}

/// Adds the app, or shows the setup again.
async fn confirm(
    context: &RequestContext,
    typed: &TotpConfirmationForm,
    proof: &PresentProof,
) -> Result<ActionResult<ActionAnswer>, Failure> {
    let (core, browser, now) = (&context.app.core, context.browser(), context.now);
    let confirmed = confirm_totp(core, &browser, typed, proof, now).await?;
    Ok(confirmed.map(|confirmed| match confirmed {
        TotpConfirmation::Added(texts) if texts.is_empty() => {
            ActionAnswer::Notice(AccountNotice::FactorAdded)
        }
        TotpConfirmation::Added(texts) => codes_section(context, &texts),
        TotpConfirmation::Wrong(setup) => setup_section(context, &setup, Some(SetupProblem::Code)),
        TotpConfirmation::Unproven(setup) => setup_section(context, &setup, Some(SetupProblem::Proof)),
        TotpConfirmation::Full => ActionAnswer::Notice(AccountNotice::TooManyFactors),
        TotpConfirmation::Expired => ActionAnswer::Notice(AccountNotice::Expired),
    }))
}

/// What was wrong in the form that confirms an app.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetupProblem {
    Code,
    Proof,
}

fn href(context: &RequestContext) -> String {
    context.app.path(&Route::AccountSecurity)
}

fn codes_section(context: &RequestContext, texts: &[zeroize::Zeroizing<String>]) -> ActionAnswer {
    let security = Security {
        new_codes: texts.iter().map(|text| text.to_string()).collect(),
        href: href(context),
        ..Security::default()
    };
    ActionAnswer::Section(Box::new(SectionAnswer {
        security,
        notice: None,
    }))
}

/// What a person adds to the app.
pub(super) fn totp_key(context: &RequestContext, setup: &TotpSetup) -> TotpKey {
    let theme = context.app.themes.theme(None);
    TotpKey {
        sealed: setup.sealed.clone(),
        address: setup.address(&context.app.core, theme.given_name()),
        seed: setup.seed.grouped(),
    }
}

fn setup_section(context: &RequestContext, setup: &TotpSetup, problem: Option<SetupProblem>) -> ActionAnswer {
    let security = Security {
        setup: Some(TotpForm {
            key: totp_key(context, setup),
            is_wrong: problem == Some(SetupProblem::Code),
        }),
        href: href(context),
        ..Security::default()
    };
    let is_unproven = problem == Some(SetupProblem::Proof);
    ActionAnswer::Section(Box::new(SectionAnswer {
        security,
        notice: is_unproven.then_some(AccountNotice::WrongPassword),
    }))
}

/// How the page lists a factor.
pub(super) fn line(id: Uuid, factor: &Factor, now: Timestamp) -> FactorLine {
    FactorLine {
        id: id.to_string(),
        kind: match &factor.kind {
            FactorKind::Passkey(passkey) => FactorLineKind::Passkey {
                is_synced: passkey.backed_up,
            },
            FactorKind::Totp(_) => FactorLineKind::Totp,
            FactorKind::RecoveryCodes(codes) => FactorLineKind::RecoveryCodes(codes.unused.len()),
        },
        name: factor.name.clone(),
        added_at: moment(factor.added_at, now),
        last_used_at: factor.last_used_at.map(|at| moment(at, now)),
    }
}

/// What the section shows of these factors.
pub(super) async fn section(
    context: &RequestContext,
    live: &LiveSession,
    factors: &[(Uuid, Factor)],
) -> Security {
    Security {
        factors: factors
            .iter()
            .map(|(id, factor)| line(*id, factor, context.now))
            .collect(),
        is_required: context.app.core.policy.accounts.second_factor != SecondFactorRule::Off,
        passkeys: account_passkeys::section(context, live, factors).await,
        href: href(context),
        ..Security::default()
    }
}
