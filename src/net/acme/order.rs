//! The conversation with the authority, from the account to the certificate (RFC 8555 section 7).

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewAccount,
    NewOrder, Order, OrderStatus,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::Plan;
use super::failure::{Failure, is_bad_nonce, is_lasting, is_rate_limit, is_unauthorized, is_unknown_account};
use super::folder::{Folder, SavedAccount, SavedOrder};
use super::transport::{LONGEST_WAIT, Transport};
use crate::net::challenge::Challenges;
use crate::net::tls_error::TlsError;

/// How often something is begun that fails because the authority does not know its own nonces; for each of them it has
/// been asked three times by then.
pub const ASKED_AT_MOST: usize = 3;

/// The pause before the authority is asked again how an order stands; it doubles each time, unless the authority names
/// one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause that the authority has not asked for.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How long something may come of an order, in seconds: twice as long as an authority can ask to be left alone.
const LONGEST_ORDER: u64 = 2 * LONGEST_WAIT;

/// How often an authority is asked about an account while it takes no nonce, each time with three of them.
const QUESTIONS: usize = 5;

/// An account with the authority.
pub struct Opened {
    /// The account.
    pub account: Account,
    /// Whether it was opened just now.
    pub is_new: bool,
}

/// The account with the authority of the plan: the one that is kept, or a new one, which is kept before it is used.
pub async fn account(plan: &Plan, folder: &Folder, transport: &Transport) -> Result<Opened, Failure> {
    let failed = |error: Error| Failure::of(&error, plan);
    let Some(saved) = folder
        .account()?
        .filter(|saved| saved.directory == plan.directory.as_str())
    else {
        return open_account(plan, folder, transport).await;
    };
    let account = Account::builder_with_http(Box::new(transport.clone()))
        .from_credentials(saved.credentials)
        .await
        .map_err(failed)?;
    if saved.contact != plan.contact {
        match account.update_contacts(&contacts(plan)).await {
            Ok(()) => {
                if let Some(saved) = folder.account()? {
                    let contact = plan.contact.clone();
                    folder.keep_account(&SavedAccount { contact, ..saved })?;
                }
            }
            // Asked about the account, the authority is not speaking of anything else.
            Err(error) if is_unknown_account(&error) || is_unauthorized(&error) => {
                return replace_account(plan, folder, transport, &error).await;
            }
            // A contact that the authority does not like is no reason to go without a certificate.
            Err(error) => {
                let error = failed(error);
                tracing::warn!(%error, "the certificate authority does not take acme.contact");
            }
        }
    }
    Ok(Opened {
        account,
        is_new: false,
    })
}

/// Whether it is the account that the authority refuses with this error, and not the order. The same problem can mean
/// both, so the authority is asked about the account: to one that it has deactivated it refuses that as well
/// (RFC 8555 section 7.3.6).
pub async fn is_account_refused(account: &Account, plan: &Plan, error: &Error) -> bool {
    if !is_unauthorized(error) {
        return is_unknown_account(error);
    }
    for _ in 0..QUESTIONS {
        match account.update_contacts(&contacts(plan)).await {
            // Says nothing of the account.
            Err(error) if is_bad_nonce(&error) => {}
            asked => return asked.is_err_and(|error| is_unknown_account(&error) || is_unauthorized(&error)),
        }
    }
    false
}

/// Opens an account in the place of one that the authority has deactivated (RFC 8555 section 7.3.6) or does not know.
/// It has a key of its own: that of a deactivated account opens none.
pub async fn replace_account(
    plan: &Plan,
    folder: &Folder,
    transport: &Transport,
    error: &Error,
) -> Result<Opened, Failure> {
    let error = Failure::of(error, plan);
    tracing::warn!(
        error = error.message,
        "the certificate authority does not take the account, which is opened anew"
    );
    open_account(plan, folder, transport).await
}

/// Opens an account, agreeing to the authority's terms, and keeps it.
async fn open_account(plan: &Plan, folder: &Folder, transport: &Transport) -> Result<Opened, Failure> {
    let wanted = NewAccount {
        contact: &contacts(plan),
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let directory = plan.directory.to_string();
    let (account, credentials) = Account::builder_with_http(Box::new(transport.clone()))
        .create(&wanted, directory.clone(), None)
        .await
        .map_err(|error| Failure::of(&error, plan))?;
    folder.keep_account(&SavedAccount {
        directory,
        contact: plan.contact.clone(),
        credentials,
    })?;
    Ok(Opened {
        account,
        is_new: true,
    })
}

fn contacts(plan: &Plan) -> Vec<&str> {
    plan.contact.as_deref().into_iter().collect()
}

/// Begins an order. `replaced` names the certificate that it renews, to authorities that want to know
/// (RFC 9773 section 5); those that have a reason not to hear it get an order without.
pub async fn begin(
    account: &Account,
    plan: &Plan,
    replaced: Option<CertificateIdentifier<'static>>,
) -> Result<Order, Error> {
    let identifiers: Vec<Identifier> = plan.domains.iter().cloned().map(Identifier::Dns).collect();
    if let Some(replaced) = replaced {
        match account
            .new_order(&NewOrder::new(&identifiers).replaces(replaced))
            .await
        {
            Err(error) if is_unknown_account(&error) || is_rate_limit(&error) || is_bad_nonce(&error) => {
                return Err(error);
            }
            Err(_) => {}
            begun => return begun,
        }
    }
    account.new_order(&NewOrder::new(&identifiers)).await
}

/// Proves that the domains are this service's. The authority has until then.
pub async fn prove(
    order: &mut Order,
    plan: &Plan,
    challenges: &Challenges,
    transport: &Transport,
    until: Instant,
) -> Result<(), Failure> {
    let failed = |error: Error| Failure::of(&error, plan);
    let mut answering = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(failed)?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            _ => return Err(nonsense("it offers an authorization that is not open", plan)),
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            return Err(Failure::new(
                "the certificate authority does not offer the challenge tls-alpn-01",
                "name another authority in acme.directory",
            ));
        };
        let domain = challenge.identifier().to_string();
        if !plan.domains.contains(&domain) {
            return Err(nonsense("it asks about a domain that was not ordered", plan));
        }
        let digest = challenge.key_authorization().digest();
        let digest = <[u8; 32]>::try_from(digest.as_ref())
            .map_err(|_| nonsense("its challenge cannot be answered", plan))?;
        answering.push(challenges.answer(&domain, &digest)?);
        challenge.set_ready().await.map_err(|error| match &error {
            Error::Api(problem) if !is_bad_nonce(&error) => Failure::about(&domain, problem, plan),
            _ => failed(error),
        })?;
    }
    let ready = decided(order, &[OrderStatus::Pending], transport, until).await;
    drop(answering);
    match ready {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(_) | Err(Error::Api(_)) => {
            let said = reason(order, plan).await;
            Err(match (said, ready) {
                (Some(failure), _) => failure,
                (None, Err(error)) => failed(error),
                (None, Ok(_)) => nonsense("it gives up the order and no reason", plan),
            })
        }
        Err(error) => Err(failed(error)),
    }
}

/// What has to be kept of an order before anything is issued for it, with a new key.
pub fn to_keep(order: &Order, plan: &Plan, now: u64) -> Result<SavedOrder, TlsError> {
    let key = KeyPair::generate().map_err(|error| TlsError::Unmakeable(error.to_string()))?;
    Ok(SavedOrder {
        order: plan.line(),
        url: order.url().to_owned(),
        key: Zeroizing::new(key.serialize_pem()),
        ordered_at: now,
    })
}

/// The order that was kept, as the authority sees it now; none when no certificate comes of it any more.
pub async fn resume(
    account: &Account,
    saved: &SavedOrder,
    plan: &Plan,
    transport: &Transport,
    now: u64,
) -> Result<Option<Order>, Error> {
    if saved.order != plan.line() || now.abs_diff(saved.ordered_at) > LONGEST_ORDER {
        return Ok(None);
    }
    match account.order(saved.url.clone()).await {
        Ok(mut order) => Ok((!is_over(&mut order)).then_some(order)),
        Err(error) if is_lasting(&error, transport.status()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether no certificate comes of an order whose domains were proven once.
fn is_over(order: &mut Order) -> bool {
    let state = order.state();
    state.error.is_some() || matches!(state.status, OrderStatus::Invalid | OrderStatus::Pending)
}

/// Whether this error, which has just come, is the end of an order whose domains were proven.
pub fn is_end(order: &mut Order, error: &Error, transport: &Transport) -> bool {
    is_over(order) || is_lasting(error, transport.status())
}

/// The certificate that is issued for the order and its key, and those that lead to the root, PEM. The authority has
/// until then.
pub async fn collect(
    order: &mut Order,
    saved: &SavedOrder,
    plan: &Plan,
    transport: &Transport,
    until: Instant,
) -> Result<String, Error> {
    if order.state().status == OrderStatus::Ready {
        let request = request(plan, &saved.key).map_err(|error| Error::Other(Box::new(error)))?;
        order.finalize_csr(&request).await?;
    }
    let open = [OrderStatus::Ready, OrderStatus::Processing];
    match decided(order, &open, transport, until).await? {
        OrderStatus::Valid => {
            let chain = order.certificate().await?;
            chain.ok_or(Error::Str("an order that is done brings no certificate"))
        }
        _ => Err(Error::Str("it gives up the order and no reason")),
    }
}

/// Asks how the order stands until it is in none of these states any more.
async fn decided(
    order: &mut Order,
    open: &[OrderStatus],
    transport: &Transport,
    until: Instant,
) -> Result<OrderStatus, Error> {
    for asked in 0.. {
        let state = order.state();
        if let Some(problem) = &state.error {
            return Err(Error::Api(problem.clone()));
        }
        if !open.contains(&state.status) {
            return Ok(state.status);
        }
        let left = until.saturating_duration_since(Instant::now());
        let Some(pause) = pause(asked, transport.pause(), left) else {
            transport.leave_alone();
            break;
        };
        tokio::time::sleep(pause).await;
        order.refresh().await?;
    }
    Err(Error::Timeout(None))
}

/// The pause before the next question, after so many: as many seconds as the authority wants, if it says so, and the last
/// one when the time is over. None when it is, or will be before the authority wants to be asked.
fn pause(asked: u32, wanted: u64, left: Duration) -> Option<Duration> {
    if left.is_zero() {
        return None;
    }
    if wanted > 0 {
        return Some(Duration::from_secs(wanted)).filter(|wanted| *wanted <= left);
    }
    let doubled = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(asked).unwrap_or(u32::MAX));
    Some(doubled.min(LONGEST_PAUSE).min(left))
}

fn nonsense(what: &str, plan: &Plan) -> Failure {
    Failure::new(
        format!("the certificate authority's answer makes no sense: {what}"),
        format!(
            "see that acme.directory, {}, is the address of an ACME directory",
            plan.directory
        ),
    )
}

/// What the authority found at the domain that it could not check.
async fn reason(order: &mut Order, plan: &Plan) -> Option<Failure> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let domain = authorization.identifier().to_string();
        let mut problems = authorization
            .challenges
            .iter()
            .filter_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problems.next() {
            return Some(Failure::about(&domain, problem, plan));
        }
    }
    None
}

/// The request to certify this key for the domains of the plan, whatever the authority says they are.
fn request(plan: &Plan, key: &str) -> Result<Vec<u8>, TlsError> {
    let unmakeable = |error: rcgen::Error| TlsError::Unmakeable(error.to_string());
    let mut params = CertificateParams::new(plan.domains.clone()).map_err(unmakeable)?;
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::from_pem(key).map_err(unmakeable)?;
    let request = params.serialize_request(&key).map_err(unmakeable)?;
    Ok(request.der().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_asked_again_until_the_time_is_over_and_not_before_it_wants_to_be() {
        let whole = Duration::from_secs(270);
        let (mut left, mut asked, mut pauses) = (whole, 0, Vec::new());
        while let Some(pause) = pause(asked, 0, left) {
            (left, asked) = (left.saturating_sub(pause), asked + 1);
            pauses.push(pause);
        }
        assert_eq!(left, Duration::ZERO, "the last question is asked at the end");
        assert_eq!(pauses.iter().sum::<Duration>(), whole);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_PAUSE) && asked < 30);
        assert_eq!(pause(0, 120, whole), Some(Duration::from_mins(2)));
        assert_eq!(pause(99, 270, whole), Some(whole));
        assert_eq!(pause(0, 271, whole), None);
    }
}
