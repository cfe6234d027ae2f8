//! The flags that say which password a user gets.

use std::io::{self, IsTerminal, Read};

use clap::Args;
use zeroize::Zeroizing;

use super::output::CliError;
use super::prompt;
use crate::admin::SecretString;
use crate::admin::user::NewPassword;
use crate::text;

/// The most bytes that are read as a password. The policy has a lower limit.
const PASSWORD_LIMIT: u64 = 8192;

/// Where a password comes from. Without a flag it is asked for on the terminal.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct PasswordFlags {
    /// Read the password from standard input; on a terminal it is asked for once
    #[arg(long)]
    pub password_stdin: bool,
    /// Generate a password and print it once
    #[arg(long)]
    pub generate_password: bool,
    /// Set no password: the user cannot sign in with one
    #[arg(long)]
    pub no_password: bool,
}

impl PasswordFlags {
    pub(super) fn choose(&self) -> Result<NewPassword, CliError> {
        if self.no_password {
            return Ok(NewPassword::None);
        }
        if self.generate_password {
            return Ok(NewPassword::Generated);
        }
        let given = |password: &str| NewPassword::Given(SecretString::new(password));
        let is_terminal = io::stdin().is_terminal();
        if self.password_stdin && is_terminal {
            return Ok(given(&prompt::password("Password: ")?));
        }
        if self.password_stdin {
            let mut text = Zeroizing::new(String::new());
            io::stdin()
                .take(PASSWORD_LIMIT)
                .read_to_string(&mut text)
                .map_err(|error| CliError::refused(format!("the password cannot be read: {error}")))?;
            return Ok(given(text::secret_line(&text)));
        }
        if !is_terminal {
            return Err(CliError::Misused(
                "there is no terminal to ask for the password: add --password-stdin, --generate-password or --no-password"
                    .to_owned(),
            ));
        }
        let first = prompt::password("Password (empty: make one): ")?;
        if first.is_empty() {
            return Ok(NewPassword::Generated);
        }
        if first != prompt::password("Again: ")? {
            return Err(CliError::refused("the two passwords differ; nothing was changed"));
        }
        Ok(given(&first))
    }
}
