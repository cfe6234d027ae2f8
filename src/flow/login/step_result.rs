//! What a step of a sign-in needs, and what comes of it.

use super::anonymous_upgrade::LinkedUser;
use super::destination::Destination;
use super::drawn_code::DrawnCode;
use crate::oauth::authorize::{RefusedRequest, ResponseTarget};
use crate::oauth::login::{AccountLogin, CodeGrant, LoginStep};

/// What a step needs: a code to be stored, or nothing but its result.
pub(in crate::flow) enum PlannedStep {
    IssueCode(Box<CodeGrant>),
    Result(StepResult),
}

impl PlannedStep {
    pub(in crate::flow) fn of(step: LoginStep) -> Self {
        Self::Result(match step {
            LoginStep::SignIn => StepResult::SignIn,
            LoginStep::SecondStep => StepResult::SecondStep,
            LoginStep::NoAccess => StepResult::NoAccess,
            LoginStep::AskConsent => StepResult::AskConsent,
            LoginStep::Refuse(refused) => StepResult::Refused(refused),
            LoginStep::OpenAccount(account) => StepResult::OpenAccount(account),
            LoginStep::DecideDevice => StepResult::DecideDevice,
            LoginStep::IssueCode(grant) => return Self::IssueCode(grant),
        })
    }
}

/// The result of a step, inside the transaction.
pub(in crate::flow) enum StepResult {
    SignIn,
    SecondStep,
    NoAccess,
    AskConsent,
    OfferPasskey,
    Issued(ResponseTarget, Option<LinkedUser>),
    Refused(Box<RefusedRequest>),
    OpenAccount(AccountLogin),
    DecideDevice,
}

impl StepResult {
    /// The anonymous user that was linked.
    pub(in crate::flow) fn linked(&self) -> Option<&LinkedUser> {
        match self {
            Self::Issued(_, linked) => linked.as_ref(),
            _ => None,
        }
    }

    /// Where the browser goes.
    pub(in crate::flow) fn destination(self, sealed: String, code: &DrawnCode, issuer: &str) -> Destination {
        match self {
            Self::SignIn => Destination::SignIn(sealed),
            Self::SecondStep => Destination::SecondFactor { sealed, proof: None },
            Self::NoAccess => Destination::NoAccess(sealed),
            Self::AskConsent => Destination::AskConsent(sealed),
            Self::OfferPasskey => Destination::OfferPasskey(sealed),
            Self::Issued(target, _) => Destination::Respond(target.code(code.secret.reveal(), issuer)),
            Self::Refused(refused) => Destination::Respond(refused.response(issuer)),
            Self::OpenAccount(account) => Destination::Account(account),
            Self::DecideDevice => Destination::DecideDevice(sealed),
        }
    }
}
