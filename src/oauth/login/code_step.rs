//! The next step of a sign-in for an authorization code.

use super::demanded_level::{lets_user_enrol, required_level};
use super::{CodeGrant, LoginProgress, LoginStep, SignedIn};
use crate::clock::Timestamp;
use crate::identity::{AuthenticationLevel, AuthenticationMethod, Consent};
use crate::oauth::authorize::{AuthorizationRequest, RefusedRequest};
use crate::oauth::client::Client;
use crate::oauth::code::Authorization;
use crate::oauth::confirmation::Confirmation;
use crate::oauth::consent;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::scope::Scope;

/// The checks between an authorization request and its code, in order.
pub(super) fn next_step_to_code(
    request: &AuthorizationRequest,
    client: &Client,
    signed_in: Option<SignedIn<'_>>,
    progress: LoginProgress,
    now: Timestamp,
) -> LoginStep {
    let refuse_with = |refusal| {
        LoginStep::Refuse(Box::new(RefusedRequest {
            target: request.target.clone(),
            refusal,
        }))
    };
    let refuse = |code, why| refuse_with(Refusal::new(code, why));
    let sign_in_or_refuse = |why| {
        if request.prompt.none {
            refuse(ErrorCode::LoginRequired, why)
        } else {
            LoginStep::SignIn
        }
    };
    let demands_passkey = required_level(request, client) == Some(AuthenticationLevel::PhishingResistant);
    if demands_passkey && !client.accepts(&AuthenticationMethod::Passkey { is_synced: true }) {
        return refuse(
            ErrorCode::UnmetAuthenticationRequirements,
            "users of this client cannot sign in with a passkey",
        );
    }
    let Some(signed_in) = signed_in else {
        return sign_in_or_refuse(if demands_passkey {
            "no user is signed in with a passkey"
        } else {
            "no user is signed in"
        });
    };
    let is_settled = progress.is_settled_in(signed_in.id);
    let session = signed_in.session;
    if !is_settled && request.requires_sign_in(session, now) {
        return sign_in_or_refuse("the sign-in is older than max_age");
    }
    // A choice or a consent would not help this user.
    if !signed_in.is_let_in && request.prompt.none && request.may_be(session.user) {
        return refuse_with(Refusal::not_in_group(ErrorCode::AccessDenied, session.user));
    }
    if !is_settled && request.requires_choice(client) {
        return if request.prompt.none {
            let why = "a native application gets no code without the user";
            refuse(ErrorCode::InteractionRequired, why)
        } else {
            LoginStep::SignIn
        };
    }
    if !request.may_be(session.user) {
        return if is_settled {
            refuse(
                ErrorCode::LoginRequired,
                "another user than the requested one signed in",
            )
        } else {
            sign_in_or_refuse("another user than the requested one is signed in")
        };
    }
    if !signed_in.is_let_in {
        return LoginStep::NoAccess;
    }
    if session.level() < required_level(request, client) {
        return if !signed_in.has_second_factor && lets_user_enrol(request, client) {
            sign_in_or_refuse("the user has to set up a second factor")
        } else if !signed_in.has_second_factor {
            refuse(
                ErrorCode::UnmetAuthenticationRequirements,
                "the user has no second factor",
            )
        } else if request.prompt.none {
            refuse(
                ErrorCode::InteractionRequired,
                "the user has to answer a second step",
            )
        } else {
            LoginStep::SecondStep
        };
    }
    let has_consented = is_settled && progress.consented;
    if !has_consented && needs_consent(request, client, signed_in.consent) {
        return if request.prompt.none {
            refuse(ErrorCode::ConsentRequired, "the user has not consented yet")
        } else {
            LoginStep::AskConsent
        };
    }
    LoginStep::IssueCode(Box::new(code_grant(request, client, signed_in)))
}

/// What the code of this request contains for the signed-in user.
fn code_grant(request: &AuthorizationRequest, client: &Client, signed_in: SignedIn<'_>) -> CodeGrant {
    let session = signed_in.session;
    let scope = request.scope.filter(|value| client.scope.contains(value));
    CodeGrant {
        authorization: Authorization {
            client_id: request.client_id.clone(),
            client_incarnation: client.incarnation,
            user: session.user,
            session: Some(signed_in.id),
            auth_time: session.auth_time,
            factor: session.factor.clone(),
            second_factor: session.second_factor,
            upstream_token: None,
            scope: scope.with(Scope::AUTHENTICATED),
            resources: request.resources.clone(),
            claims: request.claims.clone(),
            bound_to: request.dpop_jkt.clone().map(Confirmation::Key),
            actor: None,
        },
        target: request.target.clone(),
        nonce: request.nonce.clone(),
        code_challenge: request.code_challenge.clone(),
        anonymous: request.anonymous,
    }
}

fn needs_consent(request: &AuthorizationRequest, client: &Client, given: Option<&Consent>) -> bool {
    if request.prompt.consent {
        return true;
    }
    client.requires_consent() && !consent::covers(given, &request.scope_for_consent())
}
