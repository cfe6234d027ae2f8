//! Visits rows together with the changes that lie over them.

use std::ops::ControlFlow;

use super::Visit;
use crate::store::StoreError;

/// Visits the rows of two sources in the order of their keys. A row of `upper` replaces or removes the same row of
/// `visit_lower`.
pub(in crate::store::engine) fn merge<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    upper: impl Iterator<Item = (K, Option<V>)>,
    visit_lower: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
    visit: &mut Visit<'_>,
) -> Result<(), StoreError> {
    let mut upper = upper.peekable();
    let mut has_ended = false;
    visit_lower(&mut |key, value| {
        let mut is_hidden = false;
        while let Some((changed, new)) = upper.next_if(|(changed, _)| changed.as_ref() <= key) {
            is_hidden = changed.as_ref() == key;
            if let Some(new) = new
                && visit(changed.as_ref(), new.as_ref())?.is_break()
            {
                has_ended = true;
                return Ok(ControlFlow::Break(()));
            }
        }
        if is_hidden {
            return Ok(ControlFlow::Continue(()));
        }
        let flow = visit(key, value)?;
        has_ended = flow.is_break();
        Ok(flow)
    })?;
    if has_ended {
        return Ok(());
    }
    for (key, value) in upper {
        if let Some(value) = value
            && visit(key.as_ref(), value.as_ref())?.is_break()
        {
            break;
        }
    }
    Ok(())
}
