//! An administrator who disables a client and enables it again.

use super::Actor;
use super::stage::{Stage, StatusAndBody, granted, text};
use crate::harness::process::Service;
use crate::kiosk::{ALL_GRANTS, ANONYMOUS, Kiosk, OWN_TOKEN};

const CLIENT: &str = "disabled-at-times";

/// Disables and enables a client, and asks for tokens as this client.
pub(super) struct ClientDisabler {
    client: Kiosk,
    /// Whether the client is enabled; nothing after a command without an answer.
    is_enabled: Option<bool>,
    refresh: Option<String>,
}

impl ClientDisabler {
    pub(super) fn register(service: &Service) -> Self {
        Self {
            client: Kiosk::register_as(service, CLIENT, ALL_GRANTS),
            is_enabled: Some(true),
            refresh: None,
        }
    }

    fn ask(&self, stage: &Stage<'_>, form: &[(&str, &str)]) -> Option<StatusAndBody> {
        stage.read(self.client.ask(stage.node(), "/oauth2/token", form))
    }

    /// What reads the store is refused from the moment the command is answered.
    fn check_refusal(&self, stage: &Stage<'_>) -> Option<()> {
        assert_no_token(&self.ask(stage, &[("grant_type", ANONYMOUS)])?);
        if let Some(token) = &self.refresh {
            assert_no_token(&self.ask(
                stage,
                &[("grant_type", "refresh_token"), ("refresh_token", token)],
            )?);
        }
        stage.did("disabled clients refused");
        Some(())
    }
}

/// Fails if a disabled client gets a token.
fn assert_no_token((status, body): &StatusAndBody) {
    assert!(
        [400, 401].contains(status),
        "{status} {body} for a disabled client"
    );
}

impl Actor for ClientDisabler {
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        let will_be_enabled = !self.is_enabled.take().unwrap_or(true);
        let verb = if will_be_enabled { "enable" } else { "disable" };
        stage.command(&format!("client {verb} {CLIENT} --json"))?;
        self.is_enabled = Some(will_be_enabled);
        if !will_be_enabled {
            self.check_refusal(stage)?;
        }
        Some(())
    }

    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        match self.is_enabled {
            Some(true) => {
                granted(self.ask(stage, &OWN_TOKEN)?, "an enabled client");
                let body = match &self.refresh {
                    Some(token) => {
                        let form = [("grant_type", "refresh_token"), ("refresh_token", token)];
                        self.ask(stage, &form)?
                    }
                    None => self.ask(stage, &[("grant_type", ANONYMOUS)])?,
                };
                self.refresh = Some(text(&granted(body, "an enabled client")["refresh_token"]));
                stage.found("enabled clients");
            }
            Some(false) => {
                assert_no_token(&self.ask(stage, &OWN_TOKEN)?);
                self.check_refusal(stage)?;
                stage.found("disabled clients");
            }
            None => {}
        }
        Some(())
    }
}
