//! What a command has done, for the case that its output cannot be written.

use super::output::CliError;
use crate::admin::session::RevokeSessions;
use crate::admin::user::NewPassword;
use crate::control::Command;

/// A change that was made, and what is lost when it cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    done: String,
    lost: &'static str,
    remedy: Option<String>,
}

impl Deed {
    /// A change of which nothing is lost but the sight of it.
    pub(super) fn plain(done: String) -> Self {
        Self {
            done,
            lost: "that",
            remedy: None,
        }
    }

    fn with_secret(done: String, client_id: &str) -> Self {
        Self {
            done,
            lost: "its secret",
            remedy: Some(format!("idsvc client rotate-secret {client_id} makes a new one")),
        }
    }

    fn with_api_key(done: String, lost: &'static str, client_id: &str) -> Self {
        Self {
            done,
            lost,
            remedy: Some(format!(
                "idsvc client api-key list {client_id} names the key, so that it can be revoked; then add another"
            )),
        }
    }

    fn with_password(done: String, who: &str) -> Self {
        Self {
            done,
            lost: "the password",
            remedy: Some(format!(
                "idsvc user set-password {who} --generate-password makes a new one"
            )),
        }
    }

    fn with_key(done: String) -> Self {
        Self {
            done,
            lost: "its name",
            remedy: Some("idsvc key list shows it".to_owned()),
        }
    }

    /// What this command does; none when it only looks.
    pub fn of(command: &Command) -> Option<Self> {
        Some(match command {
            Command::ClientList
            | Command::ClientShow(_)
            | Command::ApiKeyList(_)
            | Command::UserList(_)
            | Command::UserShow(_)
            | Command::ProviderList
            | Command::ProviderShow(_)
            | Command::ProviderTest(_)
            | Command::KeyList
            | Command::SessionList(_)
            | Command::SetUp
            | Command::Room
            | Command::BackUp(_)
            | Command::Export(_) => return None,
            Command::Apply(request) if request.dry_run => return None,
            Command::Apply(_) => Self {
                done: "the state was applied".to_owned(),
                lost: "what changed, and any secret that was made,",
                remedy: Some(
                    "idsvc client rotate-secret ID makes a new secret for a client that was added without one"
                        .to_owned(),
                ),
            },
            Command::ClientAdd(add) => {
                let done = format!("client {} was added", add.client_id);
                match (add.public || add.secret.is_some(), add.api_key) {
                    (true, false) => Self::plain(done),
                    (false, false) => Self::with_secret(done, &add.client_id),
                    (true, true) => Self::with_api_key(done, "its API key", &add.client_id),
                    (false, true) => {
                        let Self { remedy: secret, .. } = Self::with_secret(String::new(), &add.client_id);
                        let key = Self::with_api_key(done, "its secret and its API key", &add.client_id);
                        let remedies: Vec<_> = secret.into_iter().chain(key.remedy).collect();
                        Self {
                            remedy: Some(remedies.join("; ")),
                            ..key
                        }
                    }
                }
            }
            Command::ClientRotateSecret(rotate) => {
                let done = format!("client {} has a new secret", rotate.client_id);
                match rotate.secret {
                    Some(_) => Self::plain(done),
                    None => Self::with_secret(done, &rotate.client_id),
                }
            }
            Command::ClientUpdate(update) => Self::plain(format!("client {} was changed", update.client_id)),
            Command::ClientRemove(id) => Self::plain(format!("client {id} was removed")),
            Command::ClientEnable(id) => Self::plain(format!("client {id} was enabled")),
            Command::ClientDisable(id) => Self::plain(format!("client {id} was disabled")),
            Command::ApiKeyAdd(client_id) => {
                Self::with_api_key(format!("client {client_id} has one more API key"), "it", client_id)
            }
            Command::ApiKeyRevoke(which) => Self::plain(format!(
                "API key {} of client {} was revoked",
                which.id, which.client_id
            )),
            Command::UserAdd(add) => {
                let done = format!("user {} was added", add.email);
                match add.password {
                    NewPassword::Generated => Self::with_password(done, &add.email),
                    NewPassword::Given(_) | NewPassword::None => Self::plain(done),
                }
            }
            Command::UserSetPassword(set) => match set.password {
                NewPassword::Generated => {
                    Self::with_password(format!("user {} has a new password", set.who), &set.who)
                }
                NewPassword::Given(_) => Self::plain(format!("user {} has a new password", set.who)),
                NewPassword::None => Self::plain(format!("user {} has no password any more", set.who)),
            },
            Command::UserUpdate(update) => Self::plain(format!("user {} was changed", update.who)),
            Command::UserRemove(who) => Self::plain(format!("user {who} was removed")),
            Command::UserImport(_) => Self::plain("users were imported".to_owned()),
            Command::UserEnable(who) => Self::plain(format!("user {who} was enabled")),
            Command::UserDisable(who) => Self::plain(format!("user {who} was disabled")),
            Command::UserUnlink(unlink) => Self::plain(format!(
                "user {} is no longer linked to provider {}",
                unlink.who, unlink.provider
            )),
            Command::ProviderAdd(add) => Self::plain(format!("provider {} was added", add.id)),
            Command::ProviderUpdate(update) => Self::plain(format!("provider {} was changed", update.id)),
            Command::ProviderRemove(id) => Self::plain(format!("provider {id} was removed")),
            Command::KeyRotate(rotate) => Self::with_key(format!("a key for {} was brought in", rotate.alg)),
            Command::KeyImport(_) => Self::with_key("the key was imported".to_owned()),
            Command::KeyRetire(kid) => Self::plain(format!("key {kid} was taken out of service")),
            Command::SessionRevoke(RevokeSessions::One(id)) => Self::plain(format!("session {id} was ended")),
            Command::SessionRevoke(RevokeSessions::AllOf(who)) => {
                Self::plain(format!("the sessions of user {who} were ended"))
            }
            Command::Compact => Self::plain("the database was compacted".to_owned()),
            Command::SetIssuer(issuer) => {
                Self::plain(format!("the issuer is {issuer} from the next start on"))
            }
        })
    }

    /// The end of a command that did this and whose output stopped.
    pub fn unshown(self, stop: CliError) -> CliError {
        let cause = match stop {
            CliError::BrokenPipe => String::new(),
            CliError::Unwritable(_) => format!("{stop}\n"),
            CliError::Refused { .. } | CliError::Misused(_) => return stop,
        };
        let Self { done, lost, remedy } = self;
        let remedy = remedy.map(|remedy| format!(": {remedy}")).unwrap_or_default();
        CliError::refused(format!("{cause}{done}; {lost} could not be shown{remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::user::SetPassword;

    #[test]
    fn what_is_lost_with_the_output_is_named_with_the_way_to_get_it_again() {
        let set = |password| {
            Command::UserSetPassword(SetPassword {
                who: "alice".to_owned(),
                password,
                sign_out: false,
            })
        };
        let message = |command: &Command, stop| match Deed::of(command).unwrap().unshown(stop) {
            CliError::Refused { message, .. } => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            message(&set(NewPassword::Generated), CliError::BrokenPipe),
            "user alice has a new password; the password could not be shown: \
             idsvc user set-password alice --generate-password makes a new one"
        );
        let full = || CliError::Unwritable(std::io::ErrorKind::StorageFull.into());
        assert_eq!(
            message(&set(NewPassword::None), full()),
            "standard output cannot be written to: no storage space\n\
             user alice has no password any more; that could not be shown"
        );
        assert_eq!(
            message(&set(NewPassword::None), CliError::refused("other")),
            "other"
        );
        assert_eq!(Deed::of(&Command::KeyList), None);
    }
}
