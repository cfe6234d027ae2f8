//! A user exports what the service knows of them.

use serde_json::{Value, json};
use uuid::Uuid;

use super::ActionResult;
use super::view::{Account, Application, view};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::{Core, Failure, user_activity};
use crate::identity::{Factor, LinkedIdentity, Session};
use crate::store::records::UserActivity;

/// The data of the signed-in user as JSON, with the names of the standard claims. Secrets and digests are not in it.
pub async fn export_data(
    core: &Core,
    browser: &Browser,
    now: Timestamp,
) -> Result<ActionResult<Value>, Failure> {
    let account = view(core, browser, now).await?;
    let Some(account) = account.filter(|account| account.live.session.is_fresh(now)) else {
        return Ok(ActionResult::SignInRequired);
    };
    let user = account.live.user.uuid;
    let activity = core
        .store
        .read(|snapshot| user_activity::of_user(snapshot, user))
        .await?;
    Ok(ActionResult::Done(document(core, &account, activity)))
}

fn document(core: &Core, account: &Account, activity: UserActivity) -> Value {
    let user = &account.live.user;
    let session = |session: &Session| {
        json!({
            "browser": session.device.name(),
            "address": session.device.address,
            "signed_in_at": session.created_at.rfc3339(),
            "last_used_at": session.last_used_at.rfc3339(),
        })
    };
    let identity = |identity: &LinkedIdentity| {
        json!({
            "provider": identity.provider,
            "issuer": identity.issuer,
            "subject": identity.subject,
            "linked_at": identity.linked_at.rfc3339(),
        })
    };
    let application = |application: &Application| {
        json!({
            "client_id": application.client_id,
            "name": application.name,
            "since": application.since.rfc3339(),
            "scope": application.scope,
        })
    };
    let factor = |(_, factor): &(Uuid, Factor)| {
        json!({
            "kind": factor.kind.name(),
            "name": factor.name,
            "added_at": factor.added_at.rfc3339(),
            "last_used_at": factor.last_used_at.map(Timestamp::rfc3339),
        })
    };
    json!({
        "sub": user.uuid,
        "account_id": user.account_id,
        "email": user.email,
        "email_verified": user.email_verified,
        "phone_number": user.phone_number,
        "phone_number_verified": user.phone_number_verified,
        "user_type": user.user_type,
        "venue_id": user.venue_id,
        "organization": user.organization,
        "source": user.source,
        "claims": user.claims,
        "groups": core.catalog().groups().of(user),
        "has_password": user.password.is_some(),
        "identities": user.identities.iter().map(identity).collect::<Vec<_>>(),
        "factors": account.factors.iter().map(factor).collect::<Vec<_>>(),
        "sessions": account.sessions.iter().map(|(_, of)| session(of)).collect::<Vec<_>>(),
        "applications": account.applications.iter().map(application).collect::<Vec<_>>(),
        "last_sign_in": activity.last_sign_in.map(Timestamp::date),
        "last_used": activity.last_used.map(Timestamp::date),
        "created_at": user.created_at.rfc3339(),
        "updated_at": user.updated_at.rfc3339(),
    })
}
