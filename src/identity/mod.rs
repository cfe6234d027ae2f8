//! Users, their sessions and their consents.

pub mod account_policy;
pub mod claim;
pub mod consent;
pub mod device;
pub mod factor;
pub mod first_factor;
pub mod one_time_link;
mod recovery_codes;
pub mod session;
pub mod totp;
mod totp_export;
pub mod user;

pub use account_policy::{AccountPolicy, SecondFactorRule, SelfServicePolicy, SignUp};
pub use consent::Consent;
pub use device::Device;
pub use factor::{AuthenticationLevel, Factor, FactorKind, Passkey, RecoveryCodes, SecondFactor, Totp};
pub use first_factor::FirstFactor;
pub use one_time_link::{LinkCode, LinkPurpose, NewAccount, OneTimeLink};
pub use recovery_codes::GeneratedCodes;
pub use session::{AuthenticationMethod, ProviderOfSignIn, Session, SessionLifetimes, UpstreamToken};
pub use totp::TotpSeed;
pub use totp_export::{ExportedTotp, TotpExportError};
pub use user::{LinkedIdentity, LoginName, User};
