//! The operator's settings: flag before environment before file before default.
//!
//! A setting is one block in the file of its section: key, meaning, default, form and names ([`setting::Setting`]). The
//! section reads its settings with a `Reader`, and [`resolve`] composes what the sections read. [`reference`] lists the
//! sections; flags, variables, the commented file and the schema follow from it. All faults are reported at once.

mod accounts;
mod acme;
mod backups;
pub mod base_url;
mod brand;
mod clients;
mod collect;
mod data_dir;
mod dpop;
pub mod duration;
mod events;
mod fault;
pub mod file;
pub mod form;
mod issuer;
mod lifetimes;
mod limits;
mod listen;
mod log;
pub mod mail;
pub mod memory;
pub mod memory_limit;
mod metrics;
mod mfa;
pub mod mtls;
pub mod nearest;
mod network;
mod networks;
mod outbound;
mod passkeys;
mod password;
mod proxies;
mod reader;
pub mod reference;
pub mod reference_text;
mod refresh;
pub mod resolve;
pub mod schema;
mod service;
pub mod setting;
mod settings;
mod shared_settings;
mod signing;
pub mod source;
mod store;
#[cfg(test)]
mod tests;
mod theme;
mod tls;

pub use self::backups::Backups;
pub use self::base_url::host_of;
pub use self::brand::logo_fault;
pub use self::collect::{CONFIG_VARIABLE, USUAL_FILES, is_read};
pub use self::events::EventRetention;
pub use self::fault::{ConfigError, Fault};
pub use self::log::{Log, LogFormat};
pub use self::settings::{Config, Settings};
pub use self::source::Sources;
pub use self::theme::ThemeSettings;
pub use self::tls::{NamedFiles, Tls};
