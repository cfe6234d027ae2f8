//! The certificate: of files, of an authority, or of nobody whom browsers trust.

use super::finding::{Finding, Level};
use super::{BEYOND_OWNER, closed};
use crate::cli::output::moment;
use crate::clock::Timestamp;
use crate::config::{Config, Tls};
use crate::net::acme::Plan;
use crate::net::acme::folder::Folder;
use crate::net::certificate::{self, BEYOND_GROUP, Examined};
use crate::net::validity::Validity;

/// Where a certificate authority looks for the service (RFC 8737 section 3).
const HTTPS_PORT: u16 = 443;
/// How a service that runs is told to order at once.
const RELOAD: &str = "systemctl reload idsvc, or SIGHUP, has one ordered at once";

/// Looks at what the service shows, or would show.
pub(super) fn examine(config: &Config, is_running: bool, now: Timestamp, findings: &mut Vec<Finding>) {
    match &config.tls {
        Tls::Files { cert, key } => {
            let subject = cert.display().to_string();
            let found = |message: String| Finding::good("certificate", subject.clone(), message);
            match certificate::examine(cert, key, config.host().as_deref(), now.seconds()) {
                Ok(Examined { lapse, misfit, .. }) => {
                    if lapse.is_none() && misfit.is_none() {
                        findings.push(found("valid".to_owned()));
                    }
                    findings.extend(lapse.map(|lapse| {
                        found(lapse.to_string())
                            .but(Level::Mend, "renew it; the service reads the new file by itself")
                    }));
                    findings.extend(misfit.map(|misfit| {
                        found(misfit).but(
                            Level::Advice,
                            "unless there is such a proxy, have one issued for this host and for TLS servers",
                        )
                    }));
                }
                Err(errors) => findings.extend(errors.into_iter().map(|error| {
                    found(error.to_string()).but(
                        Level::Mend,
                        "correct tls.cert and tls.key, or the files they name",
                    )
                })),
            }
            closed(key, BEYOND_GROUP, "the private key", findings);
        }
        Tls::Acme(plan) => of_acme(plan, config, is_running, now, findings),
        Tls::SelfSigned if config.is_dev => findings.push(Finding::good(
            "certificate",
            "self-signed",
            "made for development; browsers ask before they trust it",
        )),
        Tls::SelfSigned => findings.push(
            Finding::good("certificate", "self-signed", "browsers do not trust it").but(
                Level::Advice,
                "outside of development, tls.mode = \"acme\" has one from Let's Encrypt, and \"files\" takes one of your own",
            ),
        ),
        Tls::Off => {}
    }
}

/// The certificate that the service orders itself, and how its orders went.
fn of_acme(plan: &Plan, config: &Config, is_running: bool, now: Timestamp, findings: &mut Vec<Finding>) {
    let folder = Folder::of(&config.settings.data_dir);
    let subject = plan.names();
    let finding = of_held(plan, &folder, is_running, now);
    let is_bearable = finding.level == Level::Good;
    findings.push(finding);
    closed(
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
        let level = if is_bearable { Level::Advice } else { Level::Mend };
        let remedy = if is_running && failure.wait == 0 {
            format!("{}; then {RELOAD}", failure.remedy)
        } else {
            failure.remedy
        };
        findings.push(Finding::good("acme", plan.directory.to_string(), message).but(level, remedy));
    }
    if config.listen.iter().all(|address| address.port() != HTTPS_PORT) {
        findings.push(
            Finding::good(
                "acme",
                subject,
                "the service does not listen on port 443, where the authority looks for it",
            )
            .but(
                Level::Advice,
                "see that port 443 of the domains is forwarded to it, as TCP",
            ),
        );
    }
}

/// The certificate that is there, against the one that is wanted.
fn of_held(plan: &Plan, folder: &Folder, is_running: bool, now: Timestamp) -> Finding {
    let order = if is_running {
        format!("look into the log of the service, which orders one; {RELOAD}")
    } else {
        "start the service, which orders one".to_owned()
    };
    let found = |message: String| Finding::good("certificate", plan.names(), message);
    let held = match folder.held(plan) {
        Err(error) => return found(error.to_string()).but(Level::Mend, order),
        Ok(None) => return found("there is none yet".to_owned()).but(Level::Mend, order),
        Ok(Some(held)) => held,
    };
    let Validity {
        not_before,
        not_after,
    } = held.validity;
    let expires = moment(Timestamp::from_seconds(not_after));
    let rest = not_after.saturating_sub(now.seconds());
    if !held.is_as_planned {
        let message = "it was ordered for other domains or of another authority".to_owned();
        found(message).but(
            Level::Mend,
            if is_running {
                format!("restart the service, unless it runs with these settings already: then {RELOAD}")
            } else {
                order
            },
        )
    } else if not_before > now.seconds() {
        let begins = moment(Timestamp::from_seconds(not_before));
        found(format!("it is not valid before {begins}, and clients refuse it"))
            .but(Level::Mend, format!("see that the clock is right; then {order}"))
    } else if rest == 0 {
        found(format!("it has expired at {expires}, and clients refuse it")).but(Level::Mend, order)
    } else if rest < not_after.saturating_sub(not_before) / 10 {
        found(format!("it expires at {expires} and was not renewed")).but(Level::Mend, order)
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
    fn a_certificate_of_tomorrow_is_none_of_today() {
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
            .place(&plan, &certificate.pem(), &key.serialize_pem(), NOW)
            .unwrap();
        let level = |now| of_held(&plan, &folder, false, Timestamp::from_seconds(now)).level;
        assert_eq!(level(NOW), Level::Mend);
        assert_eq!(level(NOW + 86_400), Level::Good);
    }
}
