//! A person types the code of a mail, in the browser in which the mail was requested.

use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::locator;
use crate::clock::Timestamp;
use crate::flow::{Core, Failure, failed_passwords};
use crate::identity::one_time_link::RequestedMail;
use crate::identity::{LinkCode, LinkPurpose};
use crate::secret::{LinkSecret, Secret};
use crate::store::StoreError;
use crate::store::tables::{FAILED_PASSWORDS, ONE_TIME_LINKS};
use crate::text;

/// The result of a code.
#[derive(Debug)]
pub enum CodeCheck {
    /// It is right. The link in the mail no longer works: this secret opens the page that the link led to. If the same code
    /// comes again, because the answer was lost, it gets another secret, and this one no longer works.
    Right(Secret<LinkSecret>),
    /// It is wrong. The user whose code it is, if there is one.
    Wrong(Option<Uuid>),
    /// The code has expired, its link was used, or too many wrong ones were typed.
    Void,
}

/// Checks a code. A wrong one is counted, even if no mail was sent. For a user it also counts as a wrong password: after
/// [`crate::store::records::FailedPasswords::LIMIT`] in a row, only the link in the mail works. The right code then gets the
/// answer of a wrong one, because the limit tells that the user exists.
pub async fn check_code(
    core: &Core,
    requested: &RequestedMail,
    typed: &str,
    now: Timestamp,
) -> Result<CodeCheck, Failure> {
    let key = requested.link;
    let link = core
        .store
        .read(|snapshot| ONE_TIME_LINKS.get(snapshot, &key))
        .await?;
    let Some(code) = link.and_then(|link| link.code) else {
        return Ok(CodeCheck::Void);
    };
    let digits = core.sealer.open_text(&LinkCode::context(key.1), &code.sealed);
    let typed = text::code(typed);
    let is_right = digits.is_ok_and(|digits| digits.as_bytes().ct_eq(typed.as_bytes()).into());
    let fresh = Secret::<LinkSecret>::generate(&locator(key), &core.random);
    let digest = fresh.digest();
    let check = core
        .store
        .write("check_code", move |tx| -> Result<_, StoreError> {
            let Some(mut link) = ONE_TIME_LINKS.get(&*tx, &key)? else {
                return Ok(CodeCheck::Void);
            };
            let user = link.purpose.user();
            let failed = match user {
                Some(user) => FAILED_PASSWORDS.get(&*tx, &user)?,
                None => None,
            };
            let is_at_limit = failed.is_some_and(|failed| failed.is_at_limit());
            let is_live = link.is_live(key.1, now);
            let code = link.code.as_mut().filter(|code| code.tries_left > 0);
            let Some(code) = code.filter(|_| is_live) else {
                return Ok(CodeCheck::Void);
            };
            let result = if is_right && !is_at_limit && link.purpose != LinkPurpose::Nothing {
                link.digest = digest;
                CodeCheck::Right(fresh.clone())
            } else {
                code.tries_left -= 1;
                if let Some(user) = user {
                    failed_passwords::add(tx, user, now)?;
                }
                CodeCheck::Wrong(user)
            };
            ONE_TIME_LINKS.put(tx, &key, &link)?;
            Ok(result)
        });
    Ok(check.await?)
}
