//! A device asks for its codes: RFC 8628 sections 3.1 and 3.2.

use std::net::IpAddr;

use super::stored_user_code;
use crate::clock::Timestamp;
use crate::flow::{Core, FlowError};
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::device::{DeviceAuthorization, DeviceAuthorizationResponse, UserCode};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::redirect_uri::with_query;
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;
use crate::oauth::token::user_scope;
use crate::route::Route;
use crate::secret::{DeviceCode, Secret};
use crate::store::StoreError;
use crate::store::tables::{DEVICE_AUTHORIZATIONS, DEVICE_AUTHORIZATIONS_BY_USER_CODE};

/// How many user codes are drawn. All of them are taken by other devices only by a chance that can be neglected.
const DRAWN_CODES: usize = 4;

/// Stores a device authorization and answers with its codes.
pub async fn authorize(
    core: &Core,
    client: &AuthenticatedClient,
    scope: Option<Scope>,
    resources: Resources,
    address: IpAddr,
    now: Timestamp,
) -> Result<DeviceAuthorizationResponse, FlowError> {
    core.grant_policy().check_grant(client, GrantType::DeviceCode)?;
    let scope = user_scope(scope.as_ref(), client, Scope::AUTHENTICATED)?;
    let catalog = core.catalog();
    let apis = catalog.apis();
    let granted = apis.resolve(&resources, client)?;
    let scope = apis.scope_within(&scope, &granted);
    let id = core.random.uuid_v7(core.clock.since_epoch());
    let secret = Secret::<DeviceCode>::generate(id.as_bytes(), &core.random);
    let drawn_codes = [(); DRAWN_CODES].map(|()| draw_user_code(core));
    let stored_codes = drawn_codes
        .each_ref()
        .map(|code| stored_user_code(&core.sealer, code));
    let lifetime = core.policy.lifetimes.device_code;
    let (digest, expires_at) = (secret.digest(), now + lifetime);
    let [first, ..] = stored_codes.clone();
    let drawn = DeviceAuthorization::new(client, digest, first, scope, granted, address, expires_at);
    let stored = core
        .store
        .write("authorize_device", move |tx| -> Result<_, StoreError> {
            for (index, code) in stored_codes.iter().enumerate() {
                if !DEVICE_AUTHORIZATIONS_BY_USER_CODE.contains(&*tx, code.as_str())? {
                    let authorization = DeviceAuthorization {
                        user_code: code.clone(),
                        ..drawn.clone()
                    };
                    DEVICE_AUTHORIZATIONS.put(tx, &id, &authorization)?;
                    DEVICE_AUTHORIZATIONS_BY_USER_CODE.put(tx, code.as_str(), &id)?;
                    return Ok(Some(index));
                }
            }
            Ok(None)
        })
        .await?;
    let Some(user_code) = stored.and_then(|index| drawn_codes.get(index)) else {
        let why = "all drawn user codes are in use; try again";
        return Err(Refusal::new(ErrorCode::TemporarilyUnavailable, why).into());
    };
    let (user_code, verification_uri) = (user_code.to_string(), Route::Device.url(&core.policy.issuer));
    Ok(DeviceAuthorizationResponse {
        device_code: secret.reveal().to_owned(),
        verification_uri_complete: with_query(&verification_uri, &[("user_code", &user_code)]),
        user_code,
        verification_uri,
        expires_in: lifetime.as_secs(),
        interval: DeviceAuthorization::INTERVAL,
    })
}

fn draw_user_code(core: &Core) -> UserCode {
    UserCode::draw(|| {
        let [byte] = core.random.bytes();
        byte
    })
}
