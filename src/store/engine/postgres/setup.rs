//! Creates the tables and functions that a database lacks.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::{Client, Error};

use super::errors::failed;
use super::{Postgres, sql};
use crate::store::StoreError;

/// How long it may take to create everything. Other processes that do so may come first.
pub(super) const SETUP_TIMEOUT: Duration = Duration::from_mins(1);

impl Postgres {
    /// Creates the tables and functions that are missing, in one transaction. Returns whether there were any.
    pub(in crate::store) fn set_up(&self) -> Result<bool, StoreError> {
        self.wait_for(|state| async move {
            let client = state.settings.connect().await?.client;
            let created = async {
                client.batch_execute("BEGIN").await?;
                let is_changed = create_missing(&client).await?;
                client.batch_execute("COMMIT").await?;
                Ok(is_changed)
            };
            let created = timeout(SETUP_TIMEOUT, created).await;
            let created = created.map_err(|_| state.settings.silence())?;
            created.map_err(|error| failed(&error))
        })
    }
}

/// Creates what is missing, inside a transaction. Returns whether anything was.
pub(super) async fn create_missing(client: &Client) -> Result<bool, Error> {
    client.batch_execute(sql::SETUP_LOCK).await?;
    let before = definitions(client).await?;
    client.batch_execute(&sql::setup()).await?;
    Ok(definitions(client).await? != before)
}

async fn definitions(client: &Client) -> Result<String, Error> {
    let row = client.query_typed_one(sql::DEFINITIONS, &[]).await?;
    row.try_get(0)
}
