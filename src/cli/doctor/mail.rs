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
            connector.connect().await?.quit().await;
            Ok(())
        }),
        Err(error) => Err(SendFault::Server(error.to_string())),
    };
    findings.push(match connected {
        Ok(()) => Finding::good("mail", subject, "it takes connections and the sign-in"),
        Err(fault) => {
            let remedy = "correct mail.url or mail.password_file, or the mail server. Mails wait for a day";
            Finding::mend("mail", subject, fault.to_string(), remedy)
        }
    });
}
