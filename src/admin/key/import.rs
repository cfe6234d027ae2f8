use serde::{Deserialize, Serialize};

use super::{KeyView, done};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, SecretString};
use crate::flow::rotate_keys;
use crate::jose::alg::Algorithm;
use crate::jose::keyring::SigningKey;
use crate::oauth::FaultCode;

/// A request to import a key that was made elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportKey {
    /// The private key in PEM form.
    pub pem: SecretString,
    /// The algorithm, if the key allows several.
    pub alg: Option<Algorithm>,
    /// Whether it signs at once instead of being announced first.
    pub at_once: bool,
}

impl Operation for ImportKey {
    const NAME: &'static str = "key import";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = KeyView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<KeyView>> {
        let key = SigningKey::from_pem(self.pem.reveal(), self.alg)
            .map_err(|error| FaultCode::Invalid.at(["pem"], error.to_string()))?;
        Ok(done(
            rotate_keys::introduce(admin.core, &key, self.at_once).await?,
        )?)
    }
}
