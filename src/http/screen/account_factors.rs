//! The section of the account page with the factors of the user.

use uuid::Uuid;

use super::account_action::ActionAnswer;
use super::account_passkeys::{self, PasskeyAction};
use super::page_parts::moment;
use crate::flow::Failure;
use crate::flow::account::ActionResult;
use crate::flow::account::factors::{
    TotpConfirmation, begin_totp, confirm_totp, remove_factor, renew_recovery_codes,
};
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
    ConfirmTotp { setup: String, code: String },
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
            "totp-confirm" => Some(Self::ConfirmTotp {
                setup: typed("setup"),
                code: typed("code"),
            }),
            "recovery-codes" => Some(Self::RenewCodes),
            "factors" => form.get("factor")?.parse().ok().map(Self::Remove),
            decision => PasskeyAction::read(decision, form).map(Self::Passkey),
        }
    }

    pub(super) async fn perform(
        self,
        context: &RequestContext,
    ) -> Result<ActionResult<ActionAnswer>, Failure> {
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        Ok(match self {
            Self::BeginTotp => begin_totp(core, &browser, now)
                .await?
                .map(|setup| setup_section(context, &setup, false)),
            Self::ConfirmTotp { setup, code } => {
                confirm_totp(core, &browser, &setup, &code, now)
                    .await?
                    .map(|confirmed| match confirmed {
                        TotpConfirmation::Added(texts) if texts.is_empty() => {
                            ActionAnswer::Notice(AccountNotice::FactorAdded)
                        }
                        TotpConfirmation::Added(texts) => codes_section(context, &texts),
                        TotpConfirmation::Wrong(setup) => setup_section(context, &setup, true),
                        TotpConfirmation::Full => ActionAnswer::Notice(AccountNotice::TooManyFactors),
                        TotpConfirmation::Expired => ActionAnswer::Notice(AccountNotice::Expired),
                    })
            }
            Self::RenewCodes => renew_recovery_codes(core, &browser, now).await?.map(|texts| {
                if texts.is_empty() {
                    ActionAnswer::Notice(AccountNotice::Expired)
                } else {
                    codes_section(context, &texts)
                }
            }),
            Self::Passkey(action) => action.perform(context).await?.map(ActionAnswer::Notice),
            Self::Remove(id) => remove_factor(core, &browser, id, now)
                .await?
                .map(|()| ActionAnswer::Notice(AccountNotice::FactorRemoved)),
        })
    }
}

fn href(context: &RequestContext) -> String {
    context.app.path(&Route::AccountSecurity)
}

fn codes_section(context: &RequestContext, texts: &[zeroize::Zeroizing<String>]) -> ActionAnswer {
    ActionAnswer::Section(Box::new(Security {
        new_codes: texts.iter().map(|text| text.to_string()).collect(),
        href: href(context),
        ..Security::default()
    }))
}

/// What a person adds to the app.
pub(super) fn totp_key(context: &RequestContext, setup: &TotpSetup) -> TotpKey {
    TotpKey {
        sealed: setup.sealed.clone(),
        address: setup.address(&context.app.core),
        seed: setup.seed.grouped(),
    }
}

fn setup_section(context: &RequestContext, setup: &TotpSetup, is_wrong: bool) -> ActionAnswer {
    ActionAnswer::Section(Box::new(Security {
        setup: Some(TotpForm {
            key: totp_key(context, setup),
            is_wrong,
        }),
        href: href(context),
        ..Security::default()
    }))
}

/// What the section shows of these factors.
pub(super) async fn section(
    context: &RequestContext,
    live: &LiveSession,
    factors: &[(Uuid, Factor)],
) -> Security {
    let now = context.now;
    let line = |(id, factor): &(Uuid, Factor)| FactorLine {
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
    };
    Security {
        factors: factors.iter().map(line).collect(),
        is_required: context.app.core.policy.accounts.second_factor != SecondFactorRule::Off,
        passkeys: account_passkeys::section(context, live, factors).await,
        href: href(context),
        ..Security::default()
    }
}
