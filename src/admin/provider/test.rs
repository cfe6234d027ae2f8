//! Tests a provider step by step, as a sign-in would use it, and reports problems with their remedies.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use url::Url;

use super::find;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::authorization::{AuthorizationParameters, address};
use crate::federation::metadata::{self, Metadata, https};
use crate::federation::upstreams::{OutboundError, UpstreamError};
use crate::flow::Core;
use crate::flow::login::redeem_upstream_code::{RedeemError, redeem};
use crate::jose::jwk::JwkSet;
use crate::oauth::pkce::challenge_of;
use crate::store::tables::CLIENTS;

/// The largest difference of the clocks that is not reported.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(30);

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingStatus {
    /// There is no problem.
    Ok,
    /// It may work, but the operator should look at it.
    Warning,
    /// It cannot work.
    Failed,
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub check: String,
    /// The result.
    pub standing: FindingStatus,
    /// What was found.
    pub seen: String,
    /// What the operator can do.
    pub remedy: Option<String>,
    /// The members of the provider's record that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// All checks, in the order of a sign-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderReport {
    pub provider: String,
    /// Whether no check failed.
    pub works: bool,
    /// The checks.
    pub findings: Vec<Finding>,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn note(
        &mut self,
        check: &str,
        standing: FindingStatus,
        seen: impl Into<String>,
        remedy: Option<String>,
    ) {
        self.0.push(Finding {
            check: check.to_owned(),
            standing,
            seen: seen.into(),
            remedy,
            fields: Vec::new(),
        });
    }

    /// Names the members of the record that the last finding is about.
    fn about<const N: usize>(&mut self, fields: [&str; N]) {
        if let Some(finding) = self.0.last_mut() {
            finding.fields = fields.map(str::to_owned).into();
        }
    }

    fn ok(&mut self, check: &str, seen: impl Into<String>) {
        self.note(check, FindingStatus::Ok, seen, None);
    }

    fn warn(&mut self, check: &str, seen: impl Into<String>, remedy: impl Into<String>) {
        self.note(check, FindingStatus::Warning, seen, Some(remedy.into()));
    }

    fn fail(&mut self, check: &str, seen: impl Into<String>, remedy: impl Into<String>) {
        self.note(check, FindingStatus::Failed, seen, Some(remedy.into()));
    }
}

/// A provider to be tested: discovery, keys, clock, registration and credentials. Nothing is changed here or at the
/// provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestProvider {
    pub id: String,
}

impl Operation for TestProvider {
    const NAME: &'static str = "provider test";
    const EFFECT: Effect = Effect::Read;
    type Output = ProviderReport;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ProviderReport>> {
        let core = admin.core;
        let provider = find(admin, &self.id).await?;
        let mut findings = Findings::default();
        if provider.enabled {
            findings.ok("record", "enabled");
        } else {
            findings.warn("record", "disabled: sign-ins at it are refused", "enable it");
            findings.about(["enabled"]);
        }
        check_clients(admin, &provider, &mut findings).await?;
        let metadata = discover(core, &provider, &mut findings).await;
        check_keys(core, &provider, metadata.as_ref(), &mut findings).await;
        if let Some(metadata) = metadata.filter(|_| provider.signs_people_in()) {
            check_metadata(&provider, &metadata, &mut findings);
            check_registration(core, &provider, &metadata, &mut findings).await;
            check_credentials(core, &provider, &metadata, &mut findings).await;
        }
        let findings = findings.0;
        let has_failed = |finding: &Finding| finding.standing == FindingStatus::Failed;
        Ok(Done::unrecorded(ProviderReport {
            provider: provider.id,
            works: !findings.iter().any(has_failed),
            findings,
        }))
    }
}

async fn check_clients(admin: Admin<'_>, provider: &Provider, findings: &mut Findings) -> AdminResult<()> {
    let clients = admin
        .core
        .store
        .read(|snapshot| CLIENTS.scan(snapshot, .., usize::MAX))
        .await?;
    let names: Vec<_> = clients
        .into_iter()
        .filter(|(_, client)| client.providers.contains(&provider.id))
        .map(|(name, _)| name)
        .collect();
    if names.is_empty() {
        let remedy = "add it to the providers of a client";
        findings.warn("clients", "no client names this provider", remedy);
    } else {
        findings.ok("clients", names.join(", "));
    }
    Ok(())
}

async fn discover(core: &Core, provider: &Provider, findings: &mut Findings) -> Option<Metadata> {
    const CHECK: &str = "discovery";
    let address = metadata::address(&provider.issuer);
    let needs_it = provider.signs_people_in() || (provider.keys.is_empty() && provider.jwks_uri.is_none());
    if !needs_it {
        return None;
    }
    let url = https(&address)?;
    let response = match core.upstreams.fetch_uncached(&url).await {
        Ok(response) if response.status == 200 => response,
        Ok(response) => {
            let seen = format!("{address} answers with status {}", response.status);
            findings.fail(
                CHECK,
                seen,
                "compare the issuer with what the provider's documentation says",
            );
            findings.about(["issuer"]);
            return None;
        }
        Err(problem) => {
            findings.fail(CHECK, problem.to_string(), remedy_of(&problem));
            return None;
        }
    };
    if let Some(theirs) = response.date.as_deref().and_then(parse_date) {
        check_clock(core.clock.now(), theirs, findings);
    }
    match Metadata::parse(&response.body, &provider.issuer) {
        Ok(metadata) => {
            findings.ok(CHECK, address);
            Some(metadata)
        }
        Err(problem) => {
            let remedy = "the issuer in the record has to be the one in the document, letter for letter";
            findings.fail(CHECK, problem.to_string(), remedy);
            findings.about(["issuer"]);
            None
        }
    }
}

fn remedy_of(problem: &OutboundError) -> &'static str {
    match problem {
        OutboundError::Forbidden(_) => {
            "if the provider is in your own network, name that network in outbound.allow"
        }
        OutboundError::Tls { .. } => {
            "if the provider's certificate is from an authority of your own, name it in outbound.ca_file"
        }
        OutboundError::Unresolved(_) => "check the name, and the DNS of this machine",
        OutboundError::Redirect(_) => "give the address to which it redirects",
        OutboundError::Address => "give an https address",
        OutboundError::Unreachable(_) | OutboundError::Timeout(_) | OutboundError::Busy(_) => {
            "check the way out of this machine: firewall, proxy, routing"
        }
        OutboundError::Malformed(_) | OutboundError::TooLong { .. } => "tell the people who run the provider",
    }
}

/// Reads the `Date` header (RFC 9110 section 5.6.7).
fn parse_date(date: &str) -> Option<Timestamp> {
    let date = OffsetDateTime::parse(date, &Rfc2822).ok()?;
    let seconds = u64::try_from(date.unix_timestamp()).ok()?;
    Some(Timestamp::from_seconds(seconds))
}

fn check_clock(now: Timestamp, theirs: Timestamp, findings: &mut Findings) {
    let (ahead, behind) = (now.since(theirs), theirs.since(now));
    if ahead.max(behind) <= CLOCK_TOLERANCE {
        findings.ok("clock", "the two clocks agree");
    } else {
        let seen = match (ahead.as_secs(), behind.as_secs()) {
            (0, behind) => format!("this clock is {behind} s behind the provider's"),
            (ahead, _) => format!("this clock is {ahead} s ahead of the provider's"),
        };
        findings.fail(
            "clock",
            seen,
            "tokens will be refused: set this machine's clock by NTP",
        );
    }
}

async fn check_keys(core: &Core, provider: &Provider, metadata: Option<&Metadata>, findings: &mut Findings) {
    const CHECK: &str = "keys";
    let algs: Vec<_> = provider.algs.iter().map(ToString::to_string).collect();
    let wanted = algs.join(" or ");
    let set = if provider.keys.is_empty() {
        let discovered = metadata.map(|metadata| metadata.jwks_uri.to_string());
        let Some(address) = provider.jwks_uri.clone().or(discovered) else {
            return;
        };
        let Some(url) = https(&address) else { return };
        match core.upstreams.fetch_uncached(&url).await {
            Ok(response) if response.status == 200 => match JwkSet::parse(&response.body) {
                Ok(set) => set,
                Err(problem) => {
                    findings.fail(CHECK, problem.to_string(), "tell the people who run the provider");
                    return;
                }
            },
            Ok(response) => {
                let seen = format!("{address} answers with status {}", response.status);
                findings.fail(
                    CHECK,
                    seen,
                    "compare the jwks uri with what the provider's documentation says",
                );
                findings.about(["jwks_uri"]);
                return;
            }
            Err(problem) => {
                findings.fail(CHECK, problem.to_string(), remedy_of(&problem));
                return;
            }
        }
    } else {
        JwkSet::of_jwks(&provider.keys)
    };
    let is_usable =
        |key: &&crate::jose::jwk::PublicKey| key.algorithms().iter().any(|alg| provider.algs.contains(alg));
    let count = set.keys.iter().filter(is_usable).count();
    if count == 0 {
        let seen = format!("none of the {} usable keys is for {wanted}", set.keys.len());
        findings.fail(CHECK, seen, "accept an algorithm of these keys");
        findings.about(["algs"]);
    } else {
        findings.ok(CHECK, format!("{count} for {wanted}"));
    }
}

/// Compares the provider's metadata with its record.
fn check_metadata(provider: &Provider, metadata: &Metadata, findings: &mut Findings) {
    let signs =
        |alg: &crate::jose::alg::Algorithm| metadata.id_token_algs.iter().any(|name| name == alg.as_str());
    if !metadata.id_token_algs.is_empty() && !provider.algs.iter().any(signs) {
        let seen = format!(
            "the provider signs ID tokens with {}",
            metadata.id_token_algs.join(", ")
        );
        findings.fail("algorithm", seen, "accept one of these algorithms");
        findings.about(["algs"]);
    }
    let method = provider.auth_method.as_str();
    if metadata.auth_methods.iter().any(|name| name == method) {
        findings.ok("authentication", method);
    } else {
        let seen = format!("{method} is not among {}", metadata.auth_methods.join(", "));
        findings.warn("authentication", seen, "choose another method of authentication");
        findings.about(["auth_method"]);
    }
    let challenges = &metadata.code_challenge_methods;
    if !challenges.is_empty() && !challenges.iter().any(|name| name == "S256") {
        findings.warn(
            "pkce",
            "the provider does not say that it takes S256",
            "no change is needed: codes are also bound to the browser by state and nonce",
        );
    }
}

/// Requests the authorization endpoint without a user. A provider that does not know the client or its redirect URI
/// answers with an error.
async fn check_registration(core: &Core, provider: &Provider, metadata: &Metadata, findings: &mut Findings) {
    const CHECK: &str = "redirect uri";
    let redirect_uri = provider.redirect_uri(&core.policy.issuer);
    let verifier = "idsvc-provider-test-idsvc-provider-test-idsvc";
    let question = AuthorizationParameters {
        state: "idsvc-provider-test",
        nonce: "idsvc-provider-test",
        code_challenge: &challenge_of(verifier),
        redirect_uri: &redirect_uri,
    };
    let url: Url = address(provider, metadata, &question, None, false);
    match core.upstreams.fetch_uncached(&url).await {
        Err(OutboundError::Redirect(_)) => findings.ok(CHECK, redirect_uri),
        Ok(response) if response.status < 400 => findings.ok(CHECK, redirect_uri),
        Ok(response) => {
            let seen = format!(
                "the authorization endpoint answers with status {}",
                response.status
            );
            let remedy =
                format!("register there, for the client id in the record, the redirect URI {redirect_uri}");
            findings.fail(CHECK, seen, remedy);
        }
        Err(problem) => findings.fail(CHECK, problem.to_string(), remedy_of(&problem)),
    }
}

/// Redeems a made-up code. A provider that knows the client refuses only the code.
async fn check_credentials(core: &Core, provider: &Provider, metadata: &Metadata, findings: &mut Findings) {
    const CHECK: &str = "credentials";
    let verifier = "idsvc-provider-test-idsvc-provider-test-idsvc";
    let answer = redeem(
        core,
        provider,
        metadata,
        "idsvc-provider-test",
        verifier,
        core.clock.now(),
    )
    .await;
    match answer {
        Err(RedeemError::Upstream(UpstreamError::Refused { error, .. })) if error == "invalid_grant" => {
            findings.ok(CHECK, "the provider knows this service");
        }
        Err(RedeemError::Upstream(UpstreamError::Refused { status, error, .. })) => {
            let seen = format!("the token endpoint answers with status {status} {error}");
            if error == "invalid_client" || status == 401 {
                findings.fail(
                    CHECK,
                    seen,
                    "compare the client id, its secret and the method of authentication with what is registered there",
                );
                findings.about(["client_id", "client_secret", "auth_method"]);
            } else {
                findings.warn(
                    CHECK,
                    seen,
                    "the code that was offered is made up, so a refusal is expected, but another one: invalid_grant",
                );
            }
        }
        Err(RedeemError::Upstream(UpstreamError::Outbound(problem))) => {
            findings.fail(CHECK, problem.to_string(), remedy_of(&problem));
        }
        Err(problem) => findings.fail(
            CHECK,
            problem.to_string(),
            "look at the provider's record and master.key",
        ),
        Ok(_) => findings.warn(
            CHECK,
            "the token endpoint took a code that it never issued",
            "tell the people who run the provider",
        ),
    }
}
