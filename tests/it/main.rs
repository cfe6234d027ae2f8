//! What the service promises, tried from outside: a real socket, a browser that keeps cookies, a clock moved by
//! hand.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod account;
mod account_links;
mod account_self_service;
mod acme;
mod age_vectors;
mod anonymous_upgrade;
mod application;
mod backup;
mod backup_encryption;
mod brand;
mod cli;
mod client_access;
mod client_acr;
mod client_groups;
mod client_secrets;
mod clock_jumps;
mod connection;
mod error_pages;
mod events;
mod failed_passwords;
mod federation;
mod foreign_forms;
mod groups;
mod guide;
#[expect(
    dead_code,
    reason = "two test binaries share the harness, and each uses a part"
)]
#[path = "../harness/mod.rs"]
mod harness;
mod help;
mod hostile;
mod import;
mod import_factors;
mod invitations;
mod launcher;
mod limits;
mod limits_by_default;
mod limits_for_all;
mod local_files;
mod log;
mod mail;
mod mail_cli;
mod memory;
mod metrics;
mod neighbours;
#[cfg(feature = "postgres")]
mod node_changes;
#[cfg(feature = "postgres")]
mod node_failover;
#[cfg(feature = "postgres")]
mod node_guesses;
#[cfg(feature = "postgres")]
mod node_keys;
#[cfg(feature = "postgres")]
mod node_outages;
#[cfg(feature = "postgres")]
mod node_pause;
#[cfg(feature = "postgres")]
mod node_people;
#[cfg(feature = "postgres")]
mod node_round_trips;
#[cfg(feature = "postgres")]
mod node_silence;
#[cfg(feature = "postgres")]
mod node_upgrade;
#[cfg(feature = "postgres")]
mod nodes;
#[cfg(feature = "postgres")]
mod nodes_catalog;
mod outbound;
mod packages;
mod page_language;
mod passkey_offer;
mod passkeys;
mod passkeys_account;
mod people;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_faults;
#[cfg(feature = "postgres")]
mod postgres_restore;
mod promises;
mod refresh_model;
mod refusals;
mod registration;
mod remembered_device;
mod requested_mails;
mod required_second_factor;
mod reused_identifiers;
mod rows;
mod rsa_keygen;
mod scopes;
mod second_factor;
mod second_factor_passkey;
mod secrets;
mod secured_account;
mod shared;
mod sign_in_state;
mod snapshot;
mod spec;
mod state;
mod step_up;
mod stolen_session;
mod sweep;
mod text_forms;
mod theme;
mod theme_cli;
mod tidy;
mod unproven_holder;
mod volumes;
mod watch;
mod webauthn_mutations;
mod webauthn_vectors;
mod wycheproof;
