//! Upstream providers, as they are kept.

use crate::federation::Provider;
use crate::store::table::Record;

impl Record for Provider {
    const VERSION: u8 = 1;
}
