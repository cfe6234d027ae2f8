//! The proof that forms of the account page take: the password, a code or a passkey.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::flow::Failure;
use crate::flow::account::present_proof::{PasskeyProof, PresentProof, TypedProof};
use crate::flow::factors::answer_second_step;
use crate::flow::login::session;
use crate::flow::login::session::LiveSession;
use crate::flow::passkey_challenge::{self, ChallengePlace};
use crate::http::context::{RequestContext, throttled};
use crate::http::request::Parameters;
use crate::identity::{Factor, FactorKind, LoginName};
use crate::limit::password_attempt::PasswordAttempt;
use crate::pages::{PasskeyProofRequest, ProofRequest};
use crate::webauthn::response::AuthenticationResponse;

/// Reads the proof that a form brings. `None` if nobody is signed in. Refuses it if too many were wrong in this session.
/// Failures in other browsers do not count here.
pub(super) async fn read(
    context: &RequestContext,
    form: &Parameters,
) -> Result<Option<PresentProof>, Failure> {
    let (core, now, from) = (&context.app.core, context.now, context.client_address());
    let Some(live) = session::signed_in(core, &context.browser(), now).await? else {
        return Ok(None);
    };
    // The script writes the sealed challenge, a space, and the response.
    if let Some((challenge, response)) = form.get("assertion").and_then(|text| text.split_once(' ')) {
        match AuthenticationResponse::parse(response) {
            Ok(response) => {
                return Ok(Some(PresentProof::Passkey(Box::new(PasskeyProof {
                    response,
                    challenge: challenge.to_owned(),
                    from,
                }))));
            }
            Err(error) => context.log_refusal("passkey", &error.to_string()),
        }
    }
    let text = Zeroizing::new(form.get("current-password").unwrap_or_default().to_owned());
    let attempt = if text.is_empty() {
        PasswordAttempt::trusted()
    } else {
        let name = LoginName::new(&live.user.account_id);
        let known = Some(live.id.as_bytes().as_slice());
        let attempt = context.app.limits.try_password(name.as_str(), known, from, now);
        attempt.map_err(throttled)?
    };
    Ok(Some(PresentProof::Typed(TypedProof { text, attempt, from })))
}

/// What the forms ask this user for.
pub(super) fn request(
    context: &RequestContext,
    live: &LiveSession,
    factors: &[(Uuid, Factor)],
) -> ProofRequest {
    let core = &context.app.core;
    let known = factors.iter().filter_map(|(_, factor)| match &factor.kind {
        FactorKind::Passkey(passkey) => Some(URL_SAFE_NO_PAD.encode(&passkey.credential_id)),
        FactorKind::Totp(_) | FactorKind::RecoveryCodes(_) => None,
    });
    let known: Vec<_> = known.collect();
    let relying_party = core.policy.relying_party().filter(|_| !known.is_empty());
    ProofRequest {
        has_password: live.user.password.is_some(),
        takes_code: answer_second_step(factors),
        passkey: relying_party.map(|relying_party| {
            let challenge = passkey_challenge::draw(core, ChallengePlace::Proof(live.id), context.now);
            PasskeyProofRequest {
                rp_id: relying_party.id,
                challenge: challenge.value,
                sealed: challenge.sealed,
                known: known.join(" "),
            }
        }),
    }
}
