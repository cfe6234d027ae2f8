use serde::{Deserialize, Serialize};

use super::{KeyView, done};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::flow::rotate_keys;
use crate::jose::alg::Algorithm;

/// A request to replace the active key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RotateKey {
    pub alg: Algorithm,
    /// Whether it signs at once instead of being announced first.
    pub at_once: bool,
}

impl Operation for RotateKey {
    const NAME: &'static str = "key rotate";
    const EFFECT: Effect = Effect::Write;
    type Output = KeyView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<KeyView>> {
        Ok(done(
            rotate_keys::rotate(admin.core, self.alg, self.at_once).await?,
        )?)
    }
}
