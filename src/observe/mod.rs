//! What the service tells about itself: its log, the audit and the metrics.

pub mod audit;
pub mod audit_file;
pub mod background_writer;
pub mod json_fields;
pub mod log;
pub mod metrics;
