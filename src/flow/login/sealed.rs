//! What a browser keeps of a sign-in, sealed, until its user has authenticated.

use crate::clock::Timestamp;
use crate::flow::Core;
use crate::oauth::access_token::hour_of;
use crate::store::StoreError;
use crate::store::record::Record;

/// Seals a record. It opens only with the same `context`.
pub(in crate::flow) fn seal<R: Record>(
    core: &Core,
    context: &str,
    record: &R,
    now: Timestamp,
) -> Result<String, StoreError> {
    let mut plain = Vec::new();
    record
        .encode(&mut plain)
        .map_err(|error| StoreError::Unencodable {
            table: std::any::type_name::<R>(),
            what: error.to_string(),
        })?;
    Ok(core
        .sealer
        .seal_in_hour(hour_of(now), context, &plain, &core.random))
}

/// Opens a record that [`seal`] sealed. `None` if another installation or an earlier release sealed it, or if it was
/// changed.
pub(in crate::flow) fn open<R: Record>(core: &Core, context: &str, sealed: &str) -> Option<R> {
    let plain = core.sealer.open_of_hour(context, sealed).ok()?;
    R::decode(&plain).ok()
}
