use std::io::Write;

use serde::{Deserialize, Serialize};

use super::ClientView;
use crate::admin::Admin;
use crate::admin::operation::Done;
use crate::admin::stream::{RecordStream, StreamError, StreamOperation, write_pages};
use crate::store::StoreError;
use crate::store::page::Page;
use crate::store::tables::CLIENTS;

/// A request for all clients, in the order of their identifiers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListClients;

impl StreamOperation for ListClients {
    const NAME: &'static str = "client list";

    fn write(self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError> {
        write_pages(None, u64::MAX, sink, |after| page(admin, after))
    }
}

impl RecordStream for ListClients {
    type Record = ClientView;
}

pub fn page(admin: Admin<'_>, after: Option<String>) -> Result<Page<ClientView, String>, StoreError> {
    let now = admin.core.clock.now();
    Page::read(&admin.core.store, CLIENTS, after, |_, _, client| {
        let view = ClientView::of(&client, &admin.core.policy.issuer, None, now);
        Ok(Some(view))
    })
}
