//! The upgrades of the store, from its first format on.

use super::login_names;
use super::schema::Schema;

impl Schema {
    /// The schema of this release.
    pub const CURRENT: Self = Self::new(&[login_names::bring_to_one_form]);
}
