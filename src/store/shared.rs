//! What only a store that several nodes share has. On one of one process, these do nothing.

use super::{CatalogReader, Engine, ServerWarning, Store, StoreError};

impl Store {
    /// Reads the catalog of a shared store now, and after each change by any node. A store of one process ignores the
    /// reader: its caller reloads the catalog after a change. Blocks.
    pub fn follow_catalog(&self, reader: CatalogReader) -> Result<(), StoreError> {
        match &self.engine {
            Engine::Local(_) => {
                drop(reader);
                Ok(())
            }
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.follow_catalog(reader),
        }
    }

    /// Reads the catalog of a shared store again. Returns whether the store is shared.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_async, reason = "every store is local then")
    )]
    pub async fn reload_catalog(&self) -> Result<bool, StoreError> {
        match &self.engine {
            Engine::Local(_) => Ok(false),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.reload_catalog().await.map(|()| true),
        }
    }

    /// Commits once, if the store is shared. If the database takes no commits, [`Store::problem`] says so until it does.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_async, reason = "every store is local then")
    )]
    pub async fn try_commit(&self) {
        match &self.engine {
            Engine::Local(_) => {}
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.try_commit().await,
        }
    }

    /// Why this node should get no requests, and the cause, for the operator. `None` if the store is of one process.
    pub fn outage(&self) -> Option<String> {
        match &self.engine {
            Engine::Local(_) => None,
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.outage(),
        }
    }

    /// How many other nodes run. One that has stopped counts for a few seconds, and those are waited for.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_async, reason = "every store is local then")
    )]
    pub async fn other_nodes(&self) -> Result<usize, StoreError> {
        match &self.engine {
            Engine::Local(_) => Ok(0),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.other_nodes().await,
        }
    }

    /// Like [`Self::other_nodes`], and blocks.
    pub fn other_nodes_blocking(&self) -> Result<usize, StoreError> {
        match &self.engine {
            Engine::Local(_) => Ok(0),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.other_nodes_blocking(),
        }
    }

    /// The settings of the database server that should be changed.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_async, reason = "every store is local then")
    )]
    pub async fn server_warnings(&self) -> Result<Vec<ServerWarning>, StoreError> {
        match &self.engine {
            Engine::Local(_) => Ok(Vec::new()),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.server_warnings().await,
        }
    }
}
