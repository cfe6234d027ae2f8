//! Says which factors users have, and whether some of them would be locked out without their phone.

use super::finding::{Finding, Level};
use crate::flow::factors::FactorSummary;

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
