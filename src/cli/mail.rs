//! Runs `idsvc mail …`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::admin_connection::{AdminConnection, AdminConnector, Opening};
use super::output::{CliError, Output, moment};
use crate::admin::mail::{ListMails, TestMail, TestedMail};
use crate::server::mail_sender;

/// The verbs of mails.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Send a mail that tests the settings, and print the answer of the mail server
    #[command(after_help = "Examples:\n  idsvc mail test you@example.com")]
    Test(Test),
    /// Show the mails that wait to be sent
    List,
}

/// The flags of `test`.
#[derive(Debug, Args)]
pub struct Test {
    /// The address that the mail goes to
    #[arg(value_name = "ADDRESS")]
    pub address: String,
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    match verb {
        Verb::Test(Test { address }) => {
            let connection = connector.connect(&Opening::Existing, output)?;
            show_test(&address, &send_test(&connection, &address)?, output)
        }
        Verb::List => list(connector, output),
    }
}

/// Sends the mail through the running service. If none runs, it is sent at once and by itself.
fn send_test(connection: &AdminConnection, to: &str) -> Result<TestedMail, CliError> {
    if !connection.is_running() && connection.settings().mail.is_some() {
        return connection
            .with_core(async |core, settings| mail_sender::send_test(core, settings, to).await)
            .unwrap_or_else(|| Err("the store is not open".to_owned()))
            .map_err(CliError::refused);
    }
    connection.call(TestMail { to: to.to_owned() })
}

fn show_test(to: &str, tested: &TestedMail, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        let TestedMail { id, sent, answer } = tested;
        output.document(&json!({ "to": to, "id": id, "sent": sent, "answer": answer }))?;
    }
    if !tested.sent {
        return Err(CliError::Refused {
            message: format!("the mail to {to} was not sent: {}", tested.answer),
            hint: Some("idsvc doctor checks the mail server".to_owned()),
        });
    }
    if output.json {
        return Ok(());
    }
    output.line(&format!(
        "the mail server took the mail to {to}: {}",
        tested.answer
    ))
}

fn list(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let connection = connector.connect(&Opening::Existing, output)?;
    connection.take_records(ListMails, "list", |mails| {
        if output.json {
            return output.array(mails);
        }
        let mut is_empty = true;
        let rows = mails.map(|mail| {
            is_empty = false;
            mail.map(|mail| {
                [
                    mail.id.to_string(),
                    mail.kind.unwrap_or_else(|| "unreadable".to_owned()),
                    mail.to.unwrap_or_default(),
                    mail.failed_attempts.to_string(),
                    moment(mail.next_attempt_at),
                    mail.last_error.unwrap_or_default(),
                ]
            })
        });
        output.long_table(
            &["MAIL", "KIND", "TO", "FAILED", "NEXT ATTEMPT", "LAST ERROR"],
            rows,
        )?;
        if is_empty {
            output.hint("no mail waits");
        }
        Ok(())
    })
}
