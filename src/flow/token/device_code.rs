//! A device polls with its device code, and redeems it: RFC 8628 sections 3.4 and 3.5.

use uuid::Uuid;

use super::issue::{ApprovedGrant, issue_tokens};
use super::start_family::NewFamily;
use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::flow::{Answer, Core, Failure};
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::confirmation::Possession;
use crate::oauth::device::{Poll, PresentedDeviceCode, UNKNOWN};
use crate::oauth::error::Refusal;
use crate::oauth::resource::Resources;
use crate::oauth::token::TokenResponse;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::{DEVICE_AUTHORIZATIONS, DEVICE_AUTHORIZATIONS_BY_USER};

/// What the transaction did with a device code that was not refused.
enum PollResult {
    Granted(Box<ApprovedGrant>),
    /// The code was used before. The family that it began has been revoked.
    Replayed(Uuid),
}

/// Answers a poll. Once a user has allowed the device, it starts a refresh family and issues tokens.
pub async fn redeem_device_code(
    core: &Core,
    client: &AuthenticatedClient,
    presented: PresentedDeviceCode,
    resources: Resources,
    possession: Option<Possession>,
    now: Timestamp,
) -> Result<Answer<TokenResponse>, Failure> {
    let grant_policy = core.grant_policy();
    or_refuse!(grant_policy.check_grant(client, GrantType::DeviceCode));
    let (drawn, redeemer) = (NewFamily::draw(core, possession)?, client.clone());
    let polled = core
        .store
        .write("redeem_device_code", move |tx| -> Result<_, crate::store::StoreError> {
            or_refuse!(drawn.check_proof(&*tx, now)?);
            let Some(mut row) = DEVICE_AUTHORIZATIONS.get(&*tx, &presented.id)? else {
                return Ok(Err(UNKNOWN));
            };
            let polled_at = row.polled_at;
            let authorization = match row.poll(&presented, &redeemer, drawn.id, now) {
                Poll::Granted(authorization) => authorization,
                Poll::Replayed { family } => {
                    session::end_family(tx, family, now)?;
                    return Ok(Ok(PollResult::Replayed(family)));
                }
                Poll::Pending(refusal) => {
                    if row.polled_at != polled_at {
                        DEVICE_AUTHORIZATIONS.put(tx, &presented.id, &row)?;
                    }
                    return Ok(Err(refusal));
                }
                Poll::Refused(refusal) => return Ok(Err(refusal)),
            };
            let user = or_refuse!(grant_policy.admit(&*tx, &redeemer, &authorization)?);
            let target = or_refuse!(drawn.target(&redeemer, &authorization, &resources));
            DEVICE_AUTHORIZATIONS.put(tx, &presented.id, &row)?;
            DEVICE_AUTHORIZATIONS_BY_USER.remove(tx, &(user.uuid, presented.id))?;
            let granted = (user, *authorization, target);
            let approved = drawn.begin(tx, &redeemer, GrantType::DeviceCode, granted, now)?;
            Ok(Ok(PollResult::Granted(Box::new(approved))))
        })
        .await?;
    match or_refuse!(polled) {
        PollResult::Granted(approved) => issue_tokens(core, client, *approved, now).map(Ok),
        PollResult::Replayed(family) => {
            audit::record(&Event::CodeReplayed {
                client_id: &client.client_id,
                family,
            });
            Ok(Err(Refusal::invalid_grant(
                "device_code was used before; what it brought has been revoked",
            )))
        }
    }
}
