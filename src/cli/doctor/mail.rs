//! Checks that the mail server takes connections and the sign-in.

use super::finding::Finding;
use crate::config::Config;
use crate::mail::SendFault;

/// Connects to the mail server and signs in. Nothing is sent.
pub(super) fn examine(config: &Config, findings: &mut Vec<Finding>) {
    let settings = &config.settings;
    let Some(mail) = &settings.mail else { return };
    let host = config.host().unwrap_or_default();
    // Faults of outbound.ca_file are among the findings already.
    let Ok(Some(connector)) = mail.connector(&host, &settings.outbound) else {
        return;
    };
    let subject = connector.server.to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let connected = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let connection = connector.connect().await?;
            let is_encrypted = connection.is_encrypted();
            connection.quit().await;
            Ok(is_encrypted)
        }),
        Err(error) => Err(SendFault::Server(error.to_string())),
    };
    findings.push(match connected {
        Ok(true) => Finding::good("mail", subject, "it takes connections and the sign-in, by TLS"),
        Ok(false) => {
            let message = "it takes connections and the sign-in, without TLS, on this machine";
            Finding::good("mail", subject, message)
        }
        Err(fault) => {
            let remedy = "correct the settings of [mail], or the mail server. Mails wait for a day";
            Finding::mend("mail", subject, fault.to_string(), remedy)
        }
    });
}
