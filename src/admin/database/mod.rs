//! The disk space of the database.

mod compact;
mod measure;

pub use self::compact::{Compact, Compacted};
pub use self::measure::{DatabaseSize, MeasureDatabase};
