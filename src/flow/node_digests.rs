//! Which settings and themes the nodes have. An operator keeps them the same, and `doctor` compares them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Core;
use crate::clock::Timestamp;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::records::NodeDigests;
use crate::store::tables::NODE_DIGESTS;

/// A node that was not seen for so long has ended. Nodes store their digests every minute.
const LIFETIME: Duration = Duration::from_mins(3);
const MOST_NODES: usize = 1000;

/// What a node has.
#[derive(Debug)]
pub struct NodeFiles<'a> {
    /// The name of the node, which it keeps through a restart.
    pub name: &'a str,
    /// The digest of the value of each setting that all nodes have in common.
    pub settings: &'a BTreeMap<&'static str, [u8; 32]>,
    /// The digest of all files of themes.
    pub themes: [u8; 32],
}

/// Stores the digests of this node, if several share the store. Removes those of nodes that have ended.
pub async fn announce(core: &Core, files: &NodeFiles<'_>) -> Result<(), StoreError> {
    if !core.store.is_shared() {
        return Ok(());
    }
    let now = core.clock.now();
    let keyed = |digest: &[u8; 32]| core.sealer.pseudonym("node", digest);
    let settings = files.settings.iter();
    let digests = NodeDigests {
        at: now,
        settings: settings
            .map(|(key, digest)| ((*key).to_owned(), keyed(digest)))
            .collect(),
        themes: keyed(&files.themes),
    };
    let name = files.name.to_owned();
    let store = move |tx: &mut dyn Tx| -> Result<(), StoreError> {
        for (other, stored) in NODE_DIGESTS.scan(&*tx, .., MOST_NODES)? {
            if !is_live(&stored, now) {
                NODE_DIGESTS.remove(tx, &other)?;
            }
        }
        NODE_DIGESTS.put(tx, &name, &digests)
    };
    core.store.write("announce_node", store).await
}

/// The digests of all nodes that run, by their names.
pub fn read(snapshot: &dyn Snapshot, now: Timestamp) -> Result<BTreeMap<String, NodeDigests>, StoreError> {
    let stored = NODE_DIGESTS.scan(snapshot, .., MOST_NODES)?;
    let live = stored.into_iter().filter(|(_, stored)| is_live(stored, now));
    Ok(live.collect())
}

fn is_live(digests: &NodeDigests, now: Timestamp) -> bool {
    now < digests.at + LIFETIME
}
