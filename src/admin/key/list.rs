use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::{KeyStateView, KeyView};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::store::tables::SIGNING_KEYS;

/// A request for all keys, by algorithm: first the active one, then the announced one, then the retired ones from new to
/// old.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListKeys;

impl Operation for ListKeys {
    const NAME: &'static str = "key list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<KeyView>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Vec<KeyView>>> {
        let mut keys: Vec<_> = admin
            .core
            .store
            .read(|snapshot| SIGNING_KEYS.scan(snapshot, .., usize::MAX))
            .await?
            .iter()
            .map(|(kid, record)| KeyView::of(kid, record))
            .collect();
        let rank = |key: &KeyView| match key.standing {
            KeyStateView::Active { .. } => 0,
            KeyStateView::Announced { .. } => 1,
            KeyStateView::Retired { .. } => 2,
        };
        keys.sort_by_cached_key(|key| (key.alg, rank(key), Reverse(key.created_at), key.kid.clone()));
        Ok(Done::unrecorded(keys))
    }
}
