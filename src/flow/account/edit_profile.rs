//! A user edits the profile.

use serde_json::Value;

use super::{ActionResult, act_in_recent_session};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::{Core, Failure};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::USERS;

/// The most characters of a value.
const LONGEST: usize = 200;

/// Sets these claims of the signed-in user. An empty value removes a claim. Claims that the operator does not let users
/// edit stay as they are, and so does the whole profile of a user who came from a provider: the provider would set it back
/// at the next sign-in.
pub async fn edit_profile(
    core: &Core,
    browser: &Browser,
    values: Vec<(String, String)>,
    now: Timestamp,
) -> Result<ActionResult<()>, Failure> {
    let editable = core.policy.accounts.self_service.claims.clone();
    let result = act_in_recent_session(core, browser, "edit_profile", now, move |tx, live| {
        let mut user = live.user;
        if user.comes_from_provider() {
            return Ok(None);
        }
        let before = user.clone();
        for (name, value) in values.iter().filter(|(name, _)| editable.contains(name)) {
            if before.editable_claim(name) == Some(value) {
                continue;
            }
            let value: String = value
                .trim()
                .chars()
                .filter(|c| !c.is_control())
                .take(LONGEST)
                .collect();
            let value = (!value.is_empty()).then_some(value);
            match (name.as_str(), value) {
                ("phone_number", value) => user.set_phone_number(value),
                (name, Some(value)) => drop(user.claims.insert(name.to_owned(), Value::String(value))),
                (name, None) => drop(user.claims.remove(name)),
            }
        }
        if user == before {
            return Ok(None);
        }
        user.updated_at = now;
        USERS.put(tx, &user.uuid, &user)?;
        Ok(Some(user.uuid))
    })
    .await?;
    Ok(result.map(|changed| {
        if let Some(user) = changed {
            audit::record(&Event::ProfileEdited { user });
        }
    }))
}
