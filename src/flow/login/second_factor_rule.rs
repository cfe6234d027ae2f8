//! Decides who has to show a second factor, and who can.

use uuid::Uuid;

use super::remembered_device::RememberedUsers;
use super::session::AuthenticationEvent;
use crate::flow::factors;
use crate::flow::factors::answer_second_step;
use crate::identity::{AuthenticationMethod, Factor, FactorKind, SecondFactorRule, User};
use crate::oauth::login::ResolvedPurpose;
use crate::store::StoreError;
use crate::store::engine::Snapshot;

/// Whether the user has to answer a second step after this event, or has to set one up.
///
/// A provider decides about the users who came from it, unless the operator or the sign-in requires a second factor. If two
/// factors are required, a passkey answers the second step too. A remembered browser skips it, unless the sign-in requires
/// a second factor, or the user must change the password: that ends the memory.
pub(super) fn is_required(
    snapshot: &dyn Snapshot,
    user: &User,
    purpose: &ResolvedPurpose,
    rule: SecondFactorRule,
    remembered: &RememberedUsers,
    event: &AuthenticationEvent,
) -> Result<bool, StoreError> {
    let (is_asked, is_ruled) = match &event.factor {
        AuthenticationMethod::Password | AuthenticationMethod::Email => (true, rule != SecondFactorRule::Off),
        AuthenticationMethod::Federated { .. } => (
            purpose.requires_second_factor() || !user.comes_from_provider(),
            rule == SecondFactorRule::All,
        ),
        AuthenticationMethod::Passkey { .. } | AuthenticationMethod::Anonymous => return Ok(false),
    };
    if event.second_factor.is_some() {
        return Ok(false);
    }
    let factors = factors::of_user(snapshot, user.uuid)?;
    let is_demanded = purpose.requires_second_factor();
    let is_required = is_ruled
        || purpose.lets_user_enrol()
        || is_asked && answer_second_step(&factors)
        || is_demanded && can_use_passkey(&factors, user, purpose.accepts_passkeys());
    let waits = user.factors_end_at.is_some();
    let is_remembered = !waits && !event.must_change_password(user) && remembered.includes(snapshot, user)?;
    Ok(is_required && (is_demanded || !is_remembered))
}

/// Whether the user can sign in with a passkey.
pub(super) fn can_use_passkey(factors: &[(Uuid, Factor)], user: &User, accepts_passkeys: bool) -> bool {
    let mut factors = factors.iter();
    let has_passkey = factors.any(|(_, factor)| matches!(factor.kind, FactorKind::Passkey(_)));
    has_passkey && accepts_passkeys && !user.comes_from_provider()
}

/// Whether the user can sign in with two factors where passkeys are accepted or not. A user who cannot has to set up a
/// factor first.
pub(super) fn can_use_two_factors(
    snapshot: &dyn Snapshot,
    user: &User,
    accepts_passkeys: bool,
) -> Result<bool, StoreError> {
    let factors = factors::of_user(snapshot, user.uuid)?;
    Ok(answer_second_step(&factors) || can_use_passkey(&factors, user, accepts_passkeys))
}
