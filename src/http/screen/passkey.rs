//! Passkeys on the sign-in page and on that of the second step: the challenge that the page has, and the response that it
//! brings back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::browser_redirect;
use crate::flow::FlowError;
use crate::flow::login::passkey::{PasskeyCredentials, PasskeySignIn, sign_in};
use crate::flow::login::transaction::LoginContext;
use crate::flow::passkey_challenge::{self, ChallengePlace};
use crate::http::context::RequestContext;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::identity::FirstFactor;
use crate::pages::{LoginProblem, PasskeyRequest};
use crate::webauthn::response::AuthenticationResponse;

/// The name under which refused passkeys are counted, for each address and network, as wrong credentials of a client are.
const LIMITED: &[u8] = b"(passkey)";

/// The form of a page whose address is `again`. `None` if nobody can sign in with a passkey in this sign-in.
pub(super) fn request(
    context: &RequestContext,
    login: &LoginContext,
    again: String,
) -> Option<PasskeyRequest> {
    let core = &context.app.core;
    let relying_party = core
        .policy
        .relying_party()
        .filter(|_| login.purpose.accepts_passkeys())?;
    let place = ChallengePlace::SignIn(login.transaction.id);
    let challenge = passkey_challenge::draw(core, place, context.now);
    Some(PasskeyRequest {
        rp_id: relying_party.id,
        challenge: challenge.value,
        sealed: challenge.sealed,
        again,
        known: String::new(),
        makes_offer: false,
        unknown: None,
        only_way: None,
    })
}

/// Why a sign-in did not succeed.
pub(super) struct RefusedPasskey {
    /// What the page says.
    pub(super) problem: LoginProblem,
    /// The credential id, base64url, if no user has it.
    pub(super) unknown: Option<String>,
    /// After how many seconds the person may try again, if there were too many attempts.
    pub(super) retry_after: Option<u64>,
}

impl From<LoginProblem> for RefusedPasskey {
    fn from(problem: LoginProblem) -> Self {
        Self {
            problem,
            unknown: None,
            retry_after: None,
        }
    }
}

/// Signs in with the response in the form. `first` is the first step, if the page is that of the second one.
pub(super) async fn submit(
    context: &RequestContext,
    login: &LoginContext,
    form: &Parameters,
    first: Option<&FirstFactor>,
) -> Result<HttpResponse, FlowError<RefusedPasskey>> {
    let (limits, from) = (&context.app.limits, context.client_address());
    if let Err(wait) = limits.may_authenticate(LIMITED, from, context.now) {
        context.log_refusal("throttled", "too many passkeys were refused");
        return Err(FlowError::Refused(RefusedPasskey {
            retry_after: Some(wait.seconds()),
            ..LoginProblem::Throttled.into()
        }));
    }
    let response = match AuthenticationResponse::parse(form.get("passkey").unwrap_or_default()) {
        Ok(response) => response,
        Err(error) => {
            context.log_refusal("passkey", &error.to_string());
            return Err(FlowError::Refused(LoginProblem::Passkey.into()));
        }
    };
    let credentials = PasskeyCredentials {
        response,
        challenge: form.get("challenge").unwrap_or_default().to_owned(),
        first: first.cloned(),
        from,
    };
    let browser = context.browser();
    let result = sign_in(context.browser_login(&browser, login), &credentials).await?;
    if matches!(
        result,
        PasskeySignIn::Unknown | PasskeySignIn::Foreign | PasskeySignIn::Refused(_) | PasskeySignIn::Void
    ) {
        limits.authentication_failed(LIMITED, from, context.now);
    }
    let refused = match result {
        PasskeySignIn::Done(redirect) => return Ok(browser_redirect::send(context, redirect)),
        PasskeySignIn::Unknown => {
            context.log_refusal("passkey", "no user has this passkey");
            RefusedPasskey {
                unknown: Some(URL_SAFE_NO_PAD.encode(&credentials.response.credential_id)),
                ..LoginProblem::PasskeyUnknown.into()
            }
        }
        PasskeySignIn::Foreign => {
            context.log_refusal(
                "passkey",
                "passkey is not one of the user whom the response names",
            );
            LoginProblem::Passkey.into()
        }
        PasskeySignIn::Refused(error) => {
            context.log_refusal("passkey", &error.to_string());
            LoginProblem::Passkey.into()
        }
        PasskeySignIn::Void => LoginProblem::Passkey.into(),
        PasskeySignIn::ChallengeOver | PasskeySignIn::Expired => LoginProblem::Expired.into(),
    };
    Err(FlowError::Refused(refused))
}
