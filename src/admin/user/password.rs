//! The password that an operator gives a user.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::KIND;
use crate::admin::{Admin, AdminResult, SecretString, about, all_or_none, check_secret};
use crate::identity::User;
use crate::oauth::{Fault, FaultCode};
use crate::password::{PasswordHash, SALT_LEN};
use crate::random::Random;

/// Letters and digits that are hard to confuse.
const PASSWORD_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const PASSWORD_CHARS: usize = 24;

/// Which password a user gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewPassword {
    /// The one that the operator gives.
    Given(SecretString),
    /// A random one, which the answer shows.
    Generated,
    /// None: the user cannot sign in with a password.
    None,
}

/// A password of 120 random bits, made of characters that are easy to read out and type.
fn generate_password(random: &Random) -> SecretString {
    let bytes = Zeroizing::new(random.bytes::<PASSWORD_CHARS>());
    let letters = bytes
        .iter()
        .filter_map(|byte| PASSWORD_ALPHABET.get(usize::from(byte % 32)));
    SecretString::new(letters.map(|letter| char::from(*letter)).collect::<String>())
}

/// Checks a password that an operator gives a user.
pub(in crate::admin) fn check_chosen(
    admin: Admin<'_>,
    user: &User,
    password: &SecretString,
    faults: &mut Vec<Fault>,
) {
    check_secret(faults, "password", password);
    if let Err(problem) = admin.core.policy.check_password(user, password.reveal()) {
        faults.push(FaultCode::Invalid.at(["password"], problem.to_string()));
    }
}

/// The hash to store, and the password if it was generated.
pub(super) async fn hash(
    admin: Admin<'_>,
    user: &User,
    password: NewPassword,
    mut faults: Vec<Fault>,
) -> AdminResult<(Option<PasswordHash>, Option<SecretString>)> {
    let (password, is_generated) = match password {
        NewPassword::Given(password) => (Some(password), false),
        NewPassword::Generated => (Some(generate_password(&admin.core.random)), true),
        NewPassword::None => (None, false),
    };
    if let (Some(password), false) = (&password, is_generated) {
        check_chosen(admin, user, password, &mut faults);
    }
    all_or_none(about(KIND, &user.account_id, faults).collect())?;
    let Some(password) = password else {
        return Ok((None, None));
    };
    let salt = admin.core.random.bytes::<SALT_LEN>();
    let hash = admin.core.passwords.hash(password.to_zeroizing(), salt).await?;
    Ok((Some(hash), is_generated.then_some(password)))
}
