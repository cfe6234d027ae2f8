//! Why there is no new certificate, and what the operator can do.

use std::fmt;
use std::time::Instant;

use instant_acme::{Error, Problem};
use serde::{Deserialize, Serialize};

use super::Plan;
use crate::net::outbound::OutboundError;
use crate::net::tls_error::TlsError;

/// The most characters of an authority's message that are kept.
const LONGEST_MESSAGE: usize = 400;

/// The prefix of problem types (RFC 8555 section 6.7).
const PROBLEM_PREFIX: &str = "urn:ietf:params:acme:error:";

/// Why there is no new certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong; one line, without control characters.
    pub message: String,
    pub remedy: String,
    /// The seconds that the authority asks to wait.
    #[serde(default)]
    pub wait: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.remedy)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub fn new(message: impl AsRef<str>, remedy: impl Into<String>) -> Self {
        Self {
            message: one_line(message.as_ref()),
            remedy: remedy.into(),
            wait: 0,
        }
    }

    /// The failure that an error of the library or of the authority means.
    pub fn of(error: &Error, plan: &Plan) -> Self {
        let directory = format!(
            "see that acme.directory, {}, is the address of an ACME directory",
            plan.directory
        );
        match error {
            Error::Api(problem) => Self::new(explanation(problem), remedy(kind(problem), plan)),
            Error::Other(other) if other.is::<OutboundError>() => Self::new(
                other.to_string(),
                "let this machine reach the authority over https; the outbound settings apply to it",
            ),
            Error::Timeout(next) => Self {
                wait: next.map_or(0, |next| next.saturating_duration_since(Instant::now()).as_secs()),
                ..Self::new(
                    "the certificate authority did not come to a decision in time",
                    "nothing need be done unless it stays so: the service tries again",
                )
            },
            other => Self::new(
                format!("the certificate authority's answer is not understood: {other}"),
                directory,
            ),
        }
    }

    /// The failure that a problem with one domain means.
    pub fn about(domain: &str, problem: &Problem, plan: &Plan) -> Self {
        let kind = match kind(problem) {
            // Authorities also use this type for a wrong answer to a challenge (RFC 8555 section 8.3).
            "unauthorized" => "incorrectResponse",
            kind => kind,
        };
        Self::new(format!("{domain}: {}", explanation(problem)), remedy(kind, plan))
    }
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        let remedy = match error {
            TlsError::Unreadable { .. } | TlsError::Unwritable { .. } => {
                "see to the data directory: its folder certs must be writable and its disk have room"
            }
            _ => {
                "the service tries again; if it stays so, ask the authority, or name another in acme.directory"
            }
        };
        Self::new(error.to_string(), remedy)
    }
}

/// Whether the authority answers with a problem of one of these types (RFC 8555 section 6.7).
pub fn is_problem(error: &Error, names: &[&str]) -> bool {
    matches!(error, Error::Api(problem) if names.contains(&kind(problem)))
}

/// Whether the authority is out of order: no answer came, a proxy answered, or the authority reports an internal error.
/// The library takes any JSON object for a problem, also that of a proxy.
pub fn is_outage(error: &Error) -> bool {
    match error {
        Error::Json(_) => true,
        Error::Other(other) => other.is::<OutboundError>(),
        Error::Api(problem) => {
            let name = problem.r#type.as_deref().unwrap_or_default();
            !name.starts_with(PROBLEM_PREFIX) || kind(problem) == "serverInternal"
        }
        _ => false,
    }
}

/// The authority's explanation, and the type of the problem.
fn explanation(problem: &Problem) -> String {
    let reason = problem.detail.as_deref();
    let mut text = reason
        .unwrap_or("the certificate authority gives no reason")
        .to_owned();
    for part in &problem.subproblems {
        text.push_str("; ");
        text.push_str(&part.to_string());
    }
    format!("{text} ({})", kind(problem))
}

/// The type of a problem without its prefix.
fn kind(problem: &Problem) -> &str {
    let name = problem.r#type.as_deref().unwrap_or("unknown");
    name.strip_prefix(PROBLEM_PREFIX).unwrap_or(name)
}

/// What the operator can do about a problem of this type.
fn remedy(kind: &str, plan: &Plan) -> String {
    let names = plan.names();
    match kind {
        "connection" => {
            format!("let the internet reach port 443 of {names}, and let it end at this service")
        }
        "dns" => format!("publish A or AAAA records of {names} that lead to this service (for AAAA, listen must have [::]:443)"),
        "unauthorized" => format!(
            "ask the authority why it gives this account no certificate for {names}, or name another in acme.directory"
        ),
        "accountDoesNotExist" => {
            "the service opens another account; if the authority forgets that too, name another in acme.directory"
                .to_owned()
        }
        "incorrectResponse" | "tls" => format!(
            "something else answers on port 443 of {names}: let TLS through to this service as it is, past any proxy or CDN"
        ),
        "caa" => {
            format!("let the CAA records of {names} name this authority, or name another in acme.directory")
        }
        "rateLimited" => "nothing need be done: the service waits as long as the authority asks".to_owned(),
        "rejectedIdentifier" | "unsupportedIdentifier" => {
            "correct acme.domains: this authority does not issue for these names".to_owned()
        }
        "invalidContact" | "unsupportedContact" => "correct acme.contact".to_owned(),
        "externalAccountRequired" => {
            "name another authority in acme.directory: this one wants an account that was made elsewhere"
                .to_owned()
        }
        "userActionRequired" => "do what the authority asks, such as agreeing to its new terms".to_owned(),
        _ => "the service tries again; if it stays so, ask the authority".to_owned(),
    }
}

/// The text without control characters, which could control a terminal, and cut to the maximum length.
fn one_line(text: &str) -> String {
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST_MESSAGE)
        .collect();
    if text.chars().nth(LONGEST_MESSAGE).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    fn problem(kind: &str, detail: &str) -> Problem {
        serde_json::from_value(
            serde_json::json!({ "type": format!("{PROBLEM_PREFIX}{kind}"), "detail": detail }),
        )
        .unwrap()
    }

    #[test]
    fn every_problem_comes_with_what_to_do() {
        let plan = plan(&["id.example"]);
        for (kind, part) in [
            ("connection", "reach port 443 of id.example"),
            ("dns", "A or AAAA records of id.example"),
            ("unauthorized", "past any proxy or CDN"),
            ("caa", "CAA"),
            ("rateLimited", "nothing need be done"),
            ("rejectedIdentifier", "acme.domains"),
            ("unsupportedContact", "acme.contact"),
            ("externalAccountRequired", "acme.directory"),
            ("userActionRequired", "terms"),
            ("novel", "tries again"),
        ] {
            let failure = Failure::about("id.example", &problem(kind, "no"), &plan);
            assert_eq!(failure.message, format!("id.example: no ({kind})"));
            assert!(failure.remedy.contains(part), "{failure}");
        }
    }

    #[test]
    fn a_lost_account_a_refused_order_and_a_domain_that_could_not_be_checked_are_three_things() {
        let plan = plan(&["id.example"]);
        let lost = Failure::of(&Error::Api(problem("accountDoesNotExist", "no")), &plan);
        assert!(lost.remedy.contains("another account"), "{lost}");
        let refused = Failure::of(&Error::Api(problem("unauthorized", "not yours")), &plan);
        assert_eq!(refused.message, "not yours (unauthorized)");
        assert!(
            refused.remedy.contains("ask the authority why") && !refused.remedy.contains("another account"),
            "{refused}"
        );
        let unproven = Failure::about("id.example", &problem("unauthorized", "no"), &plan);
        assert!(unproven.remedy.contains("port 443"), "{unproven}");
    }

    #[test]
    fn an_answer_that_is_not_the_authoritys_says_nothing_about_the_order() {
        let error = |document| Error::Api(serde_json::from_value(document).unwrap());
        let nonsense = serde_json::from_str::<u8>("<html>").unwrap_err();
        assert!(is_outage(&error(serde_json::json!({ "message": "no" }))));
        assert!(is_outage(&Error::Api(problem("serverInternal", "no"))));
        assert!(is_outage(&Error::Json(nonsense)));
        assert!(!is_outage(&Error::Api(problem("malformed", "no"))));
        assert!(!is_outage(&Error::Timeout(None)));
    }

    #[test]
    fn an_authority_cannot_write_to_a_terminal_or_fill_a_log() {
        let plan = plan(&["id.example"]);
        let said = Failure::about("id.example", &problem("dns", "\x1b[2Jred\r\n\u{9b}x"), &plan);
        assert!(!said.to_string().contains(char::is_control), "{said}");
        let long = Failure::about("id.example", &problem("dns", &"é".repeat(10_000)), &plan);
        assert_eq!(long.message.chars().count(), LONGEST_MESSAGE + 1);
    }

    #[test]
    fn a_way_out_that_is_closed_is_told_from_an_answer_that_makes_no_sense() {
        let plan = plan(&["id.example"]);
        let closed = OutboundError::Forbidden("ca.example".to_owned());
        let failure = Failure::of(&Error::Other(Box::new(closed)), &plan);
        assert!(failure.to_string().contains("outbound.allow"), "{failure}");
        let nonsense = serde_json::from_str::<u8>("<html>").unwrap_err();
        let failure = Failure::of(&Error::Json(nonsense), &plan);
        assert!(
            failure.to_string().contains("https://ca.example/directory"),
            "{failure}"
        );
    }
}
