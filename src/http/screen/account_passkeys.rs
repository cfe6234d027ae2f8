//! Passkeys on the account page: the challenge for a new one, and what its forms bring.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::flow::Failure;
use crate::flow::account::ActionResult;
use crate::flow::account::passkeys::{NewPasskey, PasskeyAddition, add_passkey, may_add, rename_factor};
use crate::flow::account::present_proof::PresentProof;
use crate::flow::login::session::LiveSession;
use crate::flow::passkey_challenge::{self, ChallengePlace};
use crate::http::context::RequestContext;
use crate::http::request::Parameters;
use crate::identity::{Factor, FactorKind};
use crate::pages::{AccountNotice, PasskeySection};
use crate::route::Route;
use crate::webauthn::cose::ALGORITHMS;
use crate::webauthn::response::RegistrationResponse;

/// An action that a form asks for.
pub(super) enum PasskeyAction {
    /// To add a passkey, with the response as text; empty if the user has to sign in first.
    Add { response: String, challenge: String },
    /// To name a factor.
    Rename { id: Uuid, name: String },
}

impl PasskeyAction {
    /// Reads a form with this value of `decision`.
    pub(super) fn read(decision: &str, form: &Parameters) -> Option<Self> {
        let typed = |name: &str| form.get(name).unwrap_or_default().to_owned();
        match decision {
            "passkey" => Some(Self::Add {
                response: typed("passkey"),
                challenge: typed("challenge"),
            }),
            "factor-name" => Some(Self::Rename {
                id: form.get("factor")?.parse().ok()?,
                name: typed("name"),
            }),
            _ => None,
        }
    }

    pub(super) async fn perform(
        self,
        context: &RequestContext,
        proof: &PresentProof,
    ) -> Result<ActionResult<AccountNotice>, Failure> {
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        match self {
            Self::Add { response, .. } if response.is_empty() => Ok(ActionResult::SignInRequired),
            Self::Add { response, challenge } => {
                let response = match RegistrationResponse::parse(&response) {
                    Ok(response) => response,
                    Err(error) => {
                        context.log_refusal("passkey", &error.to_string());
                        return Ok(ActionResult::Done(AccountNotice::PasskeyRefused));
                    }
                };
                let new = NewPasskey { response, challenge };
                let added = add_passkey(core, &browser, &new, proof, now).await?;
                Ok(added.map(|added| match added {
                    PasskeyAddition::Added => AccountNotice::PasskeyAdded,
                    PasskeyAddition::Full => AccountNotice::TooManyFactors,
                    PasskeyAddition::ChallengeOver => AccountNotice::Expired,
                    PasskeyAddition::Known => AccountNotice::PasskeyRefused,
                    PasskeyAddition::Refused(error) => {
                        context.log_refusal("passkey", &error.to_string());
                        AccountNotice::PasskeyRefused
                    }
                }))
            }
            Self::Rename { id, name } => {
                let renamed = rename_factor(core, &browser, id, &name, proof, now).await?;
                Ok(renamed.map(|()| AccountNotice::FactorRenamed))
            }
        }
    }
}

/// What the section shows. `None` if the service has no host name, or if the user came from a provider
/// and signs in there.
pub(super) async fn section(
    context: &RequestContext,
    live: &LiveSession,
    factors: &[(Uuid, Factor)],
) -> Option<PasskeySection> {
    let core = &context.app.core;
    let relying_party = core.policy.relying_party()?;
    if live.user.comes_from_provider() {
        return None;
    }
    let known = factors.iter().filter_map(|(_, factor)| match &factor.kind {
        FactorKind::Passkey(passkey) => Some(URL_SAFE_NO_PAD.encode(&passkey.credential_id)),
        FactorKind::Totp(_) | FactorKind::RecoveryCodes(_) => None,
    });
    let may_add = may_add(core, live, context.now).await.unwrap_or(false);
    let place = ChallengePlace::Registration(live.id);
    let theme = context.app.themes.theme(None);
    let challenge = may_add.then(|| passkey_challenge::draw(core, place, context.now));
    Some(PasskeySection {
        challenge: challenge.map(|challenge| (challenge.value, challenge.sealed)),
        rp_name: theme.given_name().unwrap_or(&relying_party.id).to_owned(),
        rp_id: relying_party.id,
        user_id: URL_SAFE_NO_PAD.encode(live.user.uuid),
        user_name: live.user.account_id.clone(),
        display_name: live.user.display_name().to_owned(),
        algorithms: ALGORITHMS.map(|algorithm| algorithm.to_string()).join(" "),
        known: known.collect::<Vec<_>>().join(" "),
        again: context.app.path(&Route::AccountSecurity),
    })
}
