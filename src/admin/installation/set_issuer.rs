use serde::{Deserialize, Serialize};

use super::ISSUER;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::oauth::FaultCode;
use crate::store::schema::{meta_get, meta_put};

/// A new issuer. A running server uses its old issuer until it is restarted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetIssuer {
    pub issuer: String,
}

/// The issuer as it was and as it is from the next start on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerView {
    /// The issuer from the next start on.
    pub issuer: String,
    /// The issuer before.
    pub previous_issuer: Option<String>,
}

impl Operation for SetIssuer {
    const NAME: &'static str = "config set-issuer";
    const EFFECT: Effect = Effect::Destructive;
    type Output = IssuerView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<IssuerView>> {
        let others = admin.core.store.other_nodes().await?;
        if others > 0 {
            let detail = format!(
                "{others} other nodes use this database and would go on with the old issuer: stop them, change the issuer, and start them with the new base_url"
            );
            return Err(FaultCode::InUse.of("issuer", "", detail).into());
        }
        let issuer = self.issuer.clone();
        let write = admin.write(Self::NAME, move |tx| {
            let previous_issuer = meta_get(&*tx, ISSUER)?;
            if previous_issuer.as_ref() != Some(&issuer) {
                meta_put(tx, ISSUER, &issuer)?;
            }
            Ok(previous_issuer)
        });
        let view = IssuerView {
            previous_issuer: write.await?,
            issuer: self.issuer,
        };
        if view.previous_issuer.as_ref() == Some(&view.issuer) {
            return Ok(Done::unrecorded(view));
        }
        Ok(Done::about(view.issuer.clone(), view))
    }
}
