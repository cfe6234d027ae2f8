//! Describes what a command has changed, for the error message when its output cannot be written.

use super::output::CliError;
use crate::admin::user::NewPassword;
use crate::control::protocol::Command;

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

    /// The change of this command, or `None` if it only reads.
    pub fn of(command: &Command) -> Option<Self> {
        if command.is_read_only() {
            return None;
        }
        Some(match command {
            Command::ClientAdd(add) => {
                let has_secret = !add.public && add.secret.is_none();
                let done = format!("client {} was added", add.client_id);
                Self::with_credentials(done, &add.client_id, has_secret, add.api_key)
            }
            Command::ClientRotateSecret(rotate) => {
                let done = format!("client {} has a new secret", rotate.client_id);
                Self::with_credentials(done, &rotate.client_id, rotate.secret.is_none(), false)
            }
            Command::ApiKeyAdd(client_id) => {
                let done = format!("client {client_id} has one more API key");
                Self::with_credentials(done, client_id, false, true)
            }
            Command::RegistrationTokenAdd(_) => Self {
                done: "there is a new registration token".to_owned(),
                lost: "the token",
                remedies: vec![
                    "find the token with idsvc client registration-token list, remove it, and add another"
                        .to_owned(),
                ],
            },
            Command::UserAdd(add) if matches!(add.password, NewPassword::Generated) => {
                Self::with_password(format!("user {} was added", add.email), &add.email)
            }
            Command::UserSetPassword(set) if matches!(set.password, NewPassword::Generated) => {
                Self::with_password(format!("user {} has a new password", set.who), &set.who)
            }
            Command::UserInvite(invite) => Self {
                done: format!("an invitation for {} was made", invite.email),
                lost: "its link",
                remedies: vec![format!("idsvc user invite {} makes another one", invite.email)],
            },
            Command::UserReset(reset) => Self {
                done: format!("a link for user {} was made", reset.who),
                lost: "the link",
                remedies: vec![format!("idsvc user reset {} makes another one", reset.who)],
            },
            Command::KeyRotate(_) | Command::KeyImport(_) => Self {
                done: "there is a new key".to_owned(),
                lost: "its name",
                remedies: vec!["idsvc key list shows it".to_owned()],
            },
            Command::Apply(_) => Self {
                done: "the state was applied".to_owned(),
                lost: "what changed, and any secret that was made,",
                remedies: vec![
                    "idsvc client rotate-secret ID makes a new secret for a client that was added without one"
                        .to_owned(),
                ],
            },
            _ => Self::plain("the change was made"),
        })
    }

    fn with_credentials(done: String, client_id: &str, has_secret: bool, has_api_key: bool) -> Self {
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
        Self { done, lost, remedies }
    }

    fn with_password(done: String, who: &str) -> Self {
        Self {
            done,
            lost: "the password",
            remedies: vec![format!(
                "idsvc user set-password {who} --generate-password makes a new one"
            )],
        }
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
