//! Upstream providers, as they are kept.

use crate::federation::Provider;
use crate::store::record::Record;

impl Record for Provider {}
