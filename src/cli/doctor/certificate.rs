//! Checks the TLS certificate: from files, from ACME, or self-signed.

use super::disk::{BEYOND_OWNER, check_mode};
use super::finding::{Finding, Level};
use crate::cli::output::moment;
use crate::clock::Timestamp;
use crate::config::{Config, Tls};
use crate::net::acme::Plan;
use crate::net::acme::folder::Folder;
use crate::net::certificate::{self, BEYOND_GROUP, CertificateWarnings};
use crate::net::chain::{ChainEnd, KnownRoots};
use crate::net::validity::Validity;

/// The port that a certificate authority connects to (RFC 8737 section 3).
const HTTPS_PORT: u16 = 443;
/// The remedy that makes a running service order at once.
const ORDER_AT_ONCE: &str = "systemctl reload idsvc, or SIGHUP, has one ordered at once";

/// Checks the certificate that the service uses, or would use.
pub(super) fn examine(config: &Config, is_running: bool, now: Timestamp, findings: &mut Vec<Finding>) {
    match &config.tls {
        Tls::Files { cert, key } => {
            let subject = cert.display().to_string();
            let found = |message: String| Finding::good("certificate", subject.clone(), message);
            let known_roots = KnownRoots::of(&config.settings.outbound);
            match certificate::examine(cert, key, config.host().as_deref(), &known_roots, now.seconds()) {
                Ok(CertificateWarnings {
                    expiry,
                    mismatch,
                    chain,
                    not_after,
                    expiring_issuer,
                    ..
                }) => {
                    let alone = chain.warning();
                    if let (None, Some(not_after)) = (expiry, not_after) {
                        let until = format!("valid until {}", moment(Timestamp::from_seconds(not_after)));
                        findings.push(found(match chain {
                            ChainEnd::UnknownRoot(root) => {
                                format!("{until} for clients that know {root}, which this machine does not")
                            }
                            _ => until,
                        }));
                    }
                    findings.extend(alone.map(|warning| {
                        found(warning).at_level(
                            Level::Advice,
                            "append the certificates that lead to the root, or add the root to outbound.ca_file",
                        )
                    }));
                    findings.extend(expiry.map(|warning| {
                        found(warning.to_string())
                            .at_level(Level::Mend, "renew it; the service reads the new file by itself")
                    }));
                    findings.extend(expiring_issuer.map(|issuer| {
                        found(issuer.to_string()).at_level(
                            Level::Mend,
                            "have the certificate issued again with its chain; the service reads the new file by itself",
                        )
                    }));
                    findings.extend(mismatch.map(|warning| {
                        found(warning).at_level(
                            Level::Advice,
                            "have one issued for this host and for TLS servers, unless there is such a proxy",
                        )
                    }));
                }
                Err(errors) => findings.extend(errors.into_iter().map(|error| {
                    // The finding names the file already.
                    let message = error.to_string();
                    let message = message.strip_prefix(&format!("{subject}: ")).unwrap_or(&message);
                    found(message.to_owned()).at_level(
                        Level::Mend,
                        "correct tls.cert and tls.key, or the files they name",
                    )
                })),
            }
            check_mode(key, BEYOND_GROUP, "the private key", findings);
        }
        Tls::Acme(plan) => examine_acme(plan, config, is_running, now, findings),
        // A self-signed one for a public host is a warning of the settings.
        Tls::SelfSigned => findings.push(Finding::good(
            "certificate",
            "self-signed",
            "made by the service; browsers ask before they trust it",
        )),
        Tls::Off => {}
    }
}

/// Checks the certificate from ACME, and the last order.
fn examine_acme(plan: &Plan, config: &Config, is_running: bool, now: Timestamp, findings: &mut Vec<Finding>) {
    let folder = Folder::of(&config.settings.data_dir);
    let subject = plan.names();
    let certificate = check_acme_certificate(plan, &folder, is_running, now);
    let is_certificate_good = certificate.level == Level::Good;
    findings.push(certificate);
    check_mode(
        &folder.certificate_file(),
        BEYOND_OWNER,
        "the private key",
        findings,
    );
    let schedule = folder.state().unwrap_or_default().schedule;
    if schedule.order == plan.line()
        && let Some(failure) = schedule.failure
    {
        let (at, next) = (schedule.failed_at, schedule.not_before);
        let message = format!(
            "the order of {} failed, {}; the next is made after {}",
            moment(Timestamp::from_seconds(at)),
            failure.message,
            moment(Timestamp::from_seconds(next))
        );
        let level = if is_certificate_good {
            Level::Advice
        } else {
            Level::Mend
        };
        let remedy = if is_running && failure.wait == 0 {
            format!("{}; then {ORDER_AT_ONCE}", failure.remedy)
        } else {
            failure.remedy
        };
        findings.push(Finding::good("acme", plan.directory.to_string(), message).at_level(level, remedy));
    }
    if config.listen.iter().all(|address| address.port() != HTTPS_PORT) {
        findings.push(Finding::advice(
            "acme",
            subject,
            "the service does not listen on port 443, where the authority looks for it",
            "see that port 443 of the domains is forwarded to it, as TCP",
        ));
    }
}

/// Checks the stored certificate against the settings and the clock.
fn check_acme_certificate(plan: &Plan, folder: &Folder, is_running: bool, now: Timestamp) -> Finding {
    let order = if is_running {
        format!("look into the log of the service, which orders one; {ORDER_AT_ONCE}")
    } else {
        "start the service, which orders one".to_owned()
    };
    let found = |message: String| Finding::good("certificate", plan.names(), message);
    let held = match folder.held(plan) {
        Err(error) => return found(error.to_string()).at_level(Level::Mend, order),
        Ok(None) => return found("there is none yet".to_owned()).at_level(Level::Mend, order),
        Ok(Some(held)) => held,
    };
    let Validity {
        not_before,
        not_after,
    } = held.validity;
    let expires = moment(Timestamp::from_seconds(not_after));
    let remaining = not_after.saturating_sub(now.seconds());
    if !held.is_as_planned {
        let message = "it was ordered for other domains or of another authority".to_owned();
        found(message).at_level(
            Level::Mend,
            if is_running {
                format!(
                    "restart the service, unless it runs with these settings already: then {ORDER_AT_ONCE}"
                )
            } else {
                order
            },
        )
    } else if not_before > now.seconds() {
        let begins = moment(Timestamp::from_seconds(not_before));
        found(format!("it is not valid before {begins}, and clients refuse it"))
            .at_level(Level::Mend, format!("see that the clock is right; then {order}"))
    } else if remaining == 0 {
        found(format!("it has expired at {expires}, and clients refuse it")).at_level(Level::Mend, order)
    } else if remaining < not_after.saturating_sub(not_before) / 10 {
        found(format!("it expires at {expires} and was not renewed")).at_level(Level::Mend, order)
    } else {
        found(format!("valid until {expires}"))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use tempfile::TempDir;
    use time::OffsetDateTime;

    use super::*;
    use crate::net::acme::LETS_ENCRYPT;

    #[test]
    fn a_certificate_of_tomorrow_is_not_valid_today() {
        const NOW: u64 = 1_800_000_000;
        let plan = Plan {
            domains: vec!["id.example".to_owned()],
            contact: None,
            directory: LETS_ENCRYPT.parse().unwrap(),
        };
        let directory = TempDir::new().unwrap();
        let folder = Folder::of(directory.path());
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(plan.domains.clone()).unwrap();
        params.not_before = OffsetDateTime::from_unix_timestamp(1_800_086_400).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        folder
            .install(&plan, &certificate.pem(), &key.serialize_pem(), NOW)
            .unwrap();
        let level = |now| check_acme_certificate(&plan, &folder, false, Timestamp::from_seconds(now)).level;
        assert_eq!(level(NOW), Level::Mend);
        assert_eq!(level(NOW + 86_400), Level::Good);
    }
}
