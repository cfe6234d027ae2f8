//! A device polls with its device code, and redeems it: RFC 8628 sections 3.4 and 3.5.

use uuid::Uuid;

use super::issue::{ApprovedGrant, Granted, issue_tokens};
use super::start_family::NewFamily;
use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::flow::{Core, FlowError};
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::confirmation::Possession;
use crate::oauth::device::{Poll, PresentedDeviceCode, UNKNOWN};
use crate::oauth::error::Refusal;
use crate::oauth::resource::Resources;
use crate::oauth::token::TokenResponse;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::TxError;
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
) -> Result<TokenResponse, FlowError> {
    let grant_policy = core.grant_policy();
    grant_policy.check_grant(client, GrantType::DeviceCode)?;
    let (drawn, redeemer) = (NewFamily::draw(core, possession)?, client.clone());
    let polled = core
        .store
        .write("redeem_device_code", move |tx| -> Result<_, TxError<Refusal>> {
            drawn.check_proof(&*tx, now)?;
            let Some(mut row) = DEVICE_AUTHORIZATIONS.get(&*tx, &presented.id)? else {
                return Err(UNKNOWN.into());
            };
            let polled_at = row.polled_at;
            let authorization = match row.poll(&presented, &redeemer, drawn.id, now) {
                Poll::Granted(authorization) => authorization,
                Poll::Replayed { family } => {
                    session::end_family(tx, family, now)?;
                    return Ok(PollResult::Replayed(family));
                }
                Poll::Pending(refusal) => {
                    if row.polled_at != polled_at {
                        DEVICE_AUTHORIZATIONS.put(tx, &presented.id, &row)?;
                    }
                    return Err(refusal.into());
                }
                Poll::Refused(refusal) => return Err(refusal.into()),
            };
            let user = grant_policy.admit(&*tx, &redeemer, &authorization)?;
            let target = drawn.target(&redeemer, &authorization, &resources)?;
            let granted = Granted {
                user,
                authorization: *authorization,
                target,
            };
            let approved = drawn.begin(tx, &redeemer, GrantType::DeviceCode, granted, now)?;
            DEVICE_AUTHORIZATIONS.put(tx, &presented.id, &row)?;
            DEVICE_AUTHORIZATIONS_BY_USER.remove(tx, &(approved.user.uuid, presented.id))?;
            Ok(PollResult::Granted(Box::new(approved)))
        })
        .await?;
    match polled {
        PollResult::Granted(approved) => issue_tokens(core, client, *approved, now),
        PollResult::Replayed(family) => {
            audit::record(&Event::CodeReplayed {
                client_id: &client.client_id,
                family,
            });
            Err(
                Refusal::invalid_grant("device_code was used before; what it brought has been revoked")
                    .into(),
            )
        }
    }
}
