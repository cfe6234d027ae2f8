//! Runs `idsvc user factors` and `idsvc user reset --factors`.

use super::admin_connection::AdminConnector;
use super::output::{CliError, Output, counted, moment};
use crate::admin::user::{FactorView, ListFactors, ResetFactors, UserView};
use crate::store::records::FailedPasswords;

/// Runs `factors`.
pub(super) fn list(
    who: String,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    connector.run(ListFactors { who }, output, |factors, output| {
        if output.json {
            return output.document(&factors);
        }
        if factors.factors.is_empty() {
            return output.line(&format!("user {} has no factor", factors.account_id));
        }
        for factor in &factors.factors {
            output.line(&words(factor))?;
        }
        if let Some(end) = factors.factors_end_at {
            let end = moment(end);
            output.line(&format!(
                "from {end} on, a sign-in with the password removes them"
            ))?;
            output.hint(&keep_hint(&factors.account_id));
        }
        Ok(())
    })
}

/// Runs `reset --factors`.
pub(super) fn reset(
    who: String,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    connector.run(ResetFactors { who }, output, |removed, output| {
        if output.json {
            return output.document(&removed);
        }
        let count = removed.factors.len().try_into().unwrap_or(u64::MAX);
        let (account_id, factors) = (&removed.account_id, counted(count, "factor"));
        output.line(&format!("removed from user {account_id}: {factors}"))?;
        output.hint("The password stays. Sessions stay too; idsvc session revoke --user ends them.");
        Ok(())
    })
}

/// How to keep the factors of a user who waits.
pub(super) fn keep_hint(account_id: &str) -> String {
    format!(
        "The user has said that none of the factors is left. If that is not true, keep them: idsvc user update {account_id} --keep-factors"
    )
}

/// A factor in a line.
pub(super) fn words(factor: &FactorView) -> String {
    let kind = match factor.kind.as_str() {
        "totp" => "authenticator app",
        "recovery_codes" => "recovery codes",
        kind => kind,
    };
    let mut words = vec![kind.to_owned()];
    if !factor.name.is_empty() {
        words.push(format!("{:?}", factor.name));
    }
    words.extend(factor.codes_left.map(|left| format!("{left} left")));
    words.push(format!("added {}", moment(factor.added_at)));
    words.extend(factor.last_used_at.map(|at| format!("last used {}", moment(at))));
    words.join(", ")
}

/// What `user show` says of factors, and of wrong passwords and codes in a row.
pub(super) fn facts(view: &UserView) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(failed) = &view.failed_passwords {
        if failed.count > 0 {
            facts.push(("failed_passwords", failures(failed)));
        }
        if failed.second_step > 0 {
            facts.push(("failed_codes", format!("{} in a row", failed.second_step)));
        }
    }
    facts.extend(view.factors.iter().map(|factor| ("factor", words(factor))));
    facts.extend(view.factors_end_at.map(|end| ("factors_end_at", moment(end))));
    facts
}

/// The wrong passwords in a row, in words.
fn failures(failed: &FailedPasswords) -> String {
    let last = moment(failed.last_failed_at);
    let limit = if failed.is_at_limit() {
        ", which is the limit"
    } else {
        ""
    };
    format!("{} in a row{limit}, the last one at {last}", failed.count)
}
