//! The log, the audit and the metrics of the service.

pub mod audit;
pub mod audit_file;
pub mod background_writer;
pub mod event_files;
pub mod json_fields;
pub mod log;
pub mod metrics;
pub mod process;
pub mod readings;
pub mod sign_ins;
