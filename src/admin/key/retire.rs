use serde::{Deserialize, Serialize};

use super::{KIND, KeyView};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::flow::rotate_keys;
use crate::oauth::FaultCode;
use crate::store::records::KeyLifecycle;
use crate::store::tables::{CLIENTS, SIGNING_KEYS};

/// A key to be taken out of service.
///
/// An active key stays published until what it signed has expired. An announced or retired key is removed at once, and
/// tokens that it signed are refused from then on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetireKey {
    pub kid: String,
}

impl Operation for RetireKey {
    const NAME: &'static str = "key retire";
    const EFFECT: Effect = Effect::Destructive;
    type Output = KeyView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<KeyView>> {
        let (now, retention) = (admin.core.clock.now(), admin.core.policy.key_retention());
        let indispensable = rotate_keys::indispensable(admin.core);
        let write = admin.write_catalog(Self::NAME, move |tx| {
            let kid = &self.kid;
            let Some(mut record) = SIGNING_KEYS.get(&*tx, kid)? else {
                return Err(not_found(KIND, kid).into());
            };
            match record.standing {
                KeyLifecycle::Announced { .. } | KeyLifecycle::Retired { .. } => {
                    SIGNING_KEYS.remove(tx, kid)?;
                    record.standing = KeyLifecycle::Retired { remove_at: now };
                    return Ok(KeyView::of(kid, &record));
                }
                KeyLifecycle::Active { .. } => {}
            }
            let alg = record.alg;
            let clients = CLIENTS.scan(&*tx, .., usize::MAX)?;
            let user = clients.iter().find(|(_, client)| {
                let mut used = client.signing_algs().into_iter();
                used.any(|(_, used)| used == Some(alg))
            });
            if indispensable.contains(&alg) || user.is_some() {
                let who = match user {
                    Some((client_id, _)) => format!("client {client_id}"),
                    None => "the service".to_owned(),
                };
                let detail = format!("key {kid} is the active key of {alg}, which {who} needs");
                return Err(FaultCode::InUse.of(KIND, kid, detail).into());
            }
            record.retire(now, retention);
            SIGNING_KEYS.put(tx, kid, &record)?;
            Ok(KeyView::of(kid, &record))
        });
        let view = write.await?;
        Ok(Done::about(view.kid.clone(), view))
    }
}
