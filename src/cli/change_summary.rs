//! Describes what a command has changed, for the error message when its output cannot be written.

use super::output::CliError;

/// A change that was made, and the part of its output that cannot be shown again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeSummary {
    done: String,
    lost: &'static str,
    /// How to get the lost part, or a new one.
    remedies: Vec<String>,
}

impl ChangeSummary {
    /// A change whose output has nothing that the operator needs.
    pub(super) fn plain(done: impl Into<String>) -> Self {
        Self {
            done: done.into(),
            lost: "that",
            remedies: Vec::new(),
        }
    }

    /// A change whose output has something that cannot be shown again.
    pub(super) fn losing(
        done: impl Into<String>,
        lost: &'static str,
        remedies: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            done: done.into(),
            lost,
            remedies: remedies.into_iter().collect(),
        }
    }

    /// A change of a client whose output has a secret or an API key.
    pub(super) fn with_credentials(
        done: String,
        client_id: &str,
        has_secret: bool,
        has_api_key: bool,
    ) -> Self {
        let new_secret = format!("idsvc client rotate-secret {client_id} makes a new one");
        let new_key = format!(
            "idsvc client api-key list {client_id} names the key, so that it can be revoked; then add another"
        );
        let (lost, remedies) = match (has_secret, has_api_key) {
            (false, false) => return Self::plain(done),
            (true, false) => ("its secret", vec![new_secret]),
            (false, true) => ("its API key", vec![new_key]),
            (true, true) => ("its secret and its API key", vec![new_secret, new_key]),
        };
        Self::losing(done, lost, remedies)
    }

    /// A change of a user whose output has a password.
    pub(super) fn with_password(done: String, who: &str) -> Self {
        let remedy = format!("idsvc user set-password {who} --generate-password makes a new one");
        Self::losing(done, "the password", [remedy])
    }

    /// The error of a command whose output could not be written, and which made this change if there is one.
    pub fn error_after(summary: Option<Self>, error: CliError) -> CliError {
        match summary {
            Some(summary) => summary.unshown(error),
            None => error,
        }
    }

    /// The error of a command that made this change and whose output could not be written.
    pub fn unshown(self, error: CliError) -> CliError {
        let cause = match error {
            CliError::BrokenPipe => String::new(),
            CliError::Unwritable(_) => format!("{error}\n"),
            CliError::Refused { .. } | CliError::Faults(_) | CliError::Misused(_) => return error,
        };
        let Self { done, lost, remedies } = self;
        let separator = if remedies.is_empty() { "" } else { ": " };
        let remedies = remedies.join("; ");
        CliError::refused(format!(
            "{cause}{done}; {lost} could not be shown{separator}{remedies}"
        ))
    }
}
