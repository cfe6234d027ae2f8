//! An administrator who disables users and clients at the command line.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Actor;
use super::stage::{Stage, granted, refused, text};
use crate::harness::process::Service;
use crate::kiosk::Kiosk;

const MOST_REMEMBERED: usize = 6;
const MOST_KEYS: usize = 4;
const CLIENT: &str = "vault";

/// Disables and enables a user, replaces a client's secret, and makes and revokes its API keys.
pub(super) struct LockingAdministrator {
    user: String,
    session: String,
    refresh: String,
    access: String,
    /// Whether the user is enabled; nothing after a command without an answer.
    is_enabled: Option<bool>,
    /// The client with its secret; nothing after a command without an answer.
    client: Option<Kiosk>,
    replaced: Vec<Kiosk>,
    /// The names and values of API keys.
    keys: Vec<(String, String)>,
    revoked: Vec<String>,
}

impl LockingAdministrator {
    pub(super) fn register(service: &Service) -> Kiosk {
        Kiosk::register_as(service, CLIENT, "--grant anonymous --grant refresh_token")
    }

    /// An administrator with this client and this user.
    pub(super) fn new(user: &str, client: Kiosk, stage: &Stage<'_>) -> Self {
        let session = stage.sign_in(user).unwrap();
        let code = stage.authorize(&session).unwrap().unwrap();
        let body = granted(stage.redeem(&code).unwrap(), "an answered code");
        Self {
            user: user.to_owned(),
            session,
            refresh: text(&body["refresh_token"]),
            access: text(&body["access_token"]),
            is_enabled: Some(true),
            client: Some(client),
            replaced: Vec::new(),
            keys: Vec::new(),
            revoked: Vec::new(),
        }
    }

    fn turn_user(&mut self, stage: &Stage<'_>) -> Option<()> {
        let will_be_enabled = !self.is_enabled.take().unwrap_or(true);
        let verb = if will_be_enabled { "enable" } else { "disable" };
        stage.command(&format!("user {verb} {} --json", self.user))?;
        self.is_enabled = Some(will_be_enabled);
        stage.did(if will_be_enabled {
            "users enabled"
        } else {
            "users disabled"
        });
        Some(())
    }

    fn replace_secret(&mut self, stage: &Stage<'_>) -> Option<()> {
        let old = self.client.take();
        let shown = stage.command(&format!("client rotate-secret {CLIENT} --json"))?;
        self.client = Some(Kiosk::of(CLIENT, shown["client_secret"].as_str().unwrap()));
        self.replaced.extend(old);
        stage.did("secrets replaced");
        Some(())
    }

    fn change_keys(&mut self, stage: &Stage<'_>) -> Option<()> {
        // Many attempts fail with the disk, so the first key is revoked at once.
        let may_add = !self.revoked.is_empty() && (self.keys.len() < 2 || stage.is_heads());
        if self.keys.is_empty() || self.keys.len() < MOST_KEYS && may_add {
            let shown = stage.command(&format!("client api-key add {CLIENT} --json"))?;
            self.keys.push((text(&shown["id"]), text(&shown["api_key"])));
            stage.did("API keys made");
            return Some(());
        }
        let (id, key) = self.keys.swap_remove(stage.below(self.keys.len()));
        stage.command(&format!("client api-key revoke {CLIENT} {id} --yes --json"))?;
        self.revoked.push(key);
        stage.did("API keys revoked");
        Some(())
    }

    fn check_user(&mut self, stage: &Stage<'_>) -> Option<()> {
        let Some(is_enabled) = self.is_enabled else {
            return Some(());
        };
        let is_active = stage.is_active(&self.access)?;
        assert_eq!(is_active, is_enabled, "the access token of a user who was turned");
        let led_to = stage.authorize(&self.session)?;
        assert_eq!(
            led_to.is_ok(),
            is_enabled,
            "the session of a user who was turned: {led_to:?}"
        );
        let told = stage.refresh(&self.refresh)?;
        if is_enabled {
            let body = granted(told, "the refresh token of an enabled user");
            self.refresh = text(&body["refresh_token"]);
            self.access = text(&body["access_token"]);
            stage.found("enabled users");
        } else {
            refused(&told, "the refresh token of a disabled user");
            stage.found("disabled users");
        }
        Some(())
    }
}

/// Whether the service knows this client by this secret.
fn is_known(client: &Kiosk, stage: &Stage<'_>) -> Option<bool> {
    let (status, body) = stage.read(client.ask(stage.node(), "/oauth2/introspect", &[("token", "none")]))?;
    Some(is_authenticated(status, &body, 200))
}

/// Whether an API key opens its door, behind which another refusal waits.
fn opens(key: &str, stage: &Stage<'_>) -> Option<bool> {
    let basic = format!("Basic {}", STANDARD.encode(key));
    let form = [("grant_type", "refresh_token"), ("refresh_token", "none")];
    let headers = [("Authorization", basic.as_str())];
    let (status, body) = stage.read(stage.node().post_form("/v4/tokens", &headers, &form))?;
    Some(is_authenticated(status, &body, 400))
}

fn is_authenticated(status: u16, body: &serde_json::Value, when_known: u16) -> bool {
    if status == 401 {
        assert_eq!(body["error"], "invalid_client", "{body}");
        return false;
    }
    assert_eq!(status, when_known, "{body}");
    true
}

impl Actor for LockingAdministrator {
    fn act(&mut self, stage: &Stage<'_>) -> Option<()> {
        match stage.below(3) {
            0 => self.turn_user(stage),
            1 => self.replace_secret(stage),
            _ => self.change_keys(stage),
        }
    }

    fn check(&mut self, stage: &Stage<'_>) -> Option<()> {
        self.check_user(stage)?;
        if let Some(client) = &self.client {
            assert!(is_known(client, stage)?, "an answered secret does not work");
            stage.found("good secrets");
        }
        for old in &self.replaced {
            assert!(!is_known(old, stage)?, "a replaced secret works again");
            stage.found("replaced secrets");
        }
        for (id, key) in &self.keys {
            assert!(opens(key, stage)?, "answered API key {id} does not work");
            stage.found("good API keys");
        }
        for key in &self.revoked {
            assert!(!opens(key, stage)?, "a revoked API key works again");
            stage.found("revoked API keys");
        }
        let surplus = self.replaced.len().saturating_sub(MOST_REMEMBERED);
        self.replaced.drain(..surplus);
        let surplus = self.revoked.len().saturating_sub(MOST_REMEMBERED);
        self.revoked.drain(..surplus);
        Some(())
    }
}
