//! Says which factors users have, and whether some users would be locked out: without their phone, or because their
//! tokens are too long.

use super::finding::{Finding, Level};
use crate::flow::factors::FactorSummary;
use crate::flow::users::NearTokenLimit;
use crate::oauth::token_length;

/// Counts the users with each factor.
pub(super) fn examine(summary: &FactorSummary) -> Finding {
    let FactorSummary {
        users,
        totp,
        passkey,
        neither,
        only_totp,
    } = summary;
    let message = format!(
        "of {users} users who may sign in, {totp} have an authenticator app, {passkey} a passkey, {neither} neither"
    );
    let good = Finding::good("users", "factors", &message);
    if *only_totp == 0 {
        return good;
    }
    let remedy = "tell them to make new recovery codes at /account/security. idsvc user reset WHO --factors helps one who lost the phone";
    let message = format!(
        "{message}. {only_totp} of those with an authenticator app have neither a passkey nor a recovery code: without the app they cannot sign in"
    );
    Finding { message, ..good }.at_level(Level::Advice, remedy)
}

/// Names the user whose tokens are longest.
pub(super) fn examine_tokens(near: &NearTokenLimit) -> Finding {
    let NearTokenLimit {
        users,
        account_id,
        bytes,
    } = near;
    let message = format!(
        "the groups and claims of {users} users take half of a token or more: those of {account_id} up to {bytes} of {} bytes. A client that would get a longer token gets invalid_request",
        token_length::LONGEST
    );
    let remedy =
        "take them out of groups with idsvc user update WHO --remove-group GROUP, or give clients less scope";
    Finding::advice("users", "token length", message, remedy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_with_nothing_but_an_app_are_an_advice() {
        let summary = FactorSummary {
            users: 9,
            totp: 4,
            passkey: 3,
            neither: 2,
            only_totp: 0,
        };
        let finding = examine(&summary);
        assert_eq!((finding.level, &finding.remedy), (Level::Good, &None));
        assert_eq!(
            finding.message,
            "of 9 users who may sign in, 4 have an authenticator app, 3 a passkey, 2 neither"
        );
        let finding = examine(&FactorSummary {
            only_totp: 1,
            ..summary
        });
        assert_eq!(finding.level, Level::Advice);
        assert!(finding.message.contains("1 of those") && finding.remedy.unwrap().contains("--factors"));
    }
}
