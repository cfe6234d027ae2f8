//! All settings, section by section. The keys of the file, the environment, the flags and the reference follow from them.

use super::setting::Setting;
use super::{
    accounts, acme, backups, base_url, brand, clients, data_dir, dpop, events, lifetimes, limits, listen,
    log, mail, metrics, mfa, mtls, outbound, passkeys, password, proxies, refresh, service, signing, store,
    theme, tls,
};

/// The sections, in the order of the reference: first those without a name.
static SECTIONS: &[&[&Setting]] = &[
    data_dir::SETTINGS,
    base_url::SETTINGS,
    listen::SETTINGS,
    proxies::SETTINGS,
    service::SETTINGS,
    theme::SETTINGS,
    brand::SETTINGS,
    tls::SETTINGS,
    mtls::SETTINGS,
    acme::SETTINGS,
    lifetimes::SETTINGS,
    refresh::SETTINGS,
    accounts::SETTINGS,
    passkeys::SETTINGS,
    mfa::SETTINGS,
    clients::SETTINGS,
    dpop::SETTINGS,
    password::SETTINGS,
    signing::SETTINGS,
    outbound::SETTINGS,
    limits::SETTINGS,
    store::SETTINGS,
    backups::SETTINGS,
    mail::SETTINGS,
    events::SETTINGS,
    metrics::SETTINGS,
    log::SETTINGS,
];

pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().flat_map(|section| section.iter().copied())
}

pub fn find(key: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.key == key)
}
