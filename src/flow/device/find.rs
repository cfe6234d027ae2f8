//! A person types a user code: RFC 8628 section 3.3.

use super::stored_user_code;
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::destination::{BrowserRedirect, Destination};
use crate::flow::login::transaction::begin_transaction;
use crate::flow::{Core, Failure};
use crate::oauth::client::GrantType;
use crate::oauth::device::{DeviceAuthorization, UserCode};
use crate::oauth::login::{DeviceLogin, LoginPurpose};
use crate::store::engine::Snapshot;
use crate::store::tables::{DEVICE_AUTHORIZATIONS, DEVICE_AUTHORIZATIONS_BY_USER_CODE};

/// Begins the sign-in for the device that shows this code. `None` if no device waits with it.
pub async fn begin_sign_in(
    core: &Core,
    browser: &Browser,
    user_code: &UserCode,
    now: Timestamp,
) -> Result<Option<BrowserRedirect>, Failure> {
    let stored_code = stored_user_code(&core.sealer, user_code);
    let find = |snapshot: &dyn Snapshot| -> Result<_, Failure> {
        // A row of an earlier release has the code itself.
        let known = DEVICE_AUTHORIZATIONS_BY_USER_CODE.get(snapshot, stored_code.as_str())?;
        let earlier = DEVICE_AUTHORIZATIONS_BY_USER_CODE.get(snapshot, user_code.as_str())?;
        let Some(id) = known.or(earlier) else {
            return Ok(None);
        };
        let found = DEVICE_AUTHORIZATIONS.get(snapshot, &id)?;
        let waiting = found.filter(|authorization| authorization.is_pending(id, now));
        Ok(waiting.map(|authorization| (id, authorization)))
    };
    let Some((id, authorization)) = core.store.read(find).await? else {
        return Ok(None);
    };
    let catalog = core.catalog();
    let client = catalog.client(&authorization.client_id);
    let is_served = client.is_some_and(|client| client.enabled && client.may_use(GrantType::DeviceCode));
    if !is_served {
        return Ok(None);
    }
    let purpose = LoginPurpose::Device(DeviceLogin {
        client_id: authorization.client_id,
        client_incarnation: authorization.client_incarnation,
        authorization: id,
        user_code: Some(user_code.clone()),
    });
    let (sealed, binding) = begin_transaction(core, purpose, browser, now)?;
    Ok(Some(BrowserRedirect {
        destination: Destination::DecideDevice(sealed),
        binding,
        session: None,
    }))
}

/// The device authorization that a sign-in is for, decided or not.
pub async fn find(core: &Core, login: &DeviceLogin) -> Result<Option<DeviceAuthorization>, Failure> {
    let found = core
        .store
        .read(|snapshot| DEVICE_AUTHORIZATIONS.get(snapshot, &login.authorization));
    Ok(found.await?)
}
