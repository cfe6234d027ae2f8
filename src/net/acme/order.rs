//! The conversation with the authority, from the account to the certificate (RFC 8555 section 7).

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier, NewAccount,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use zeroize::Zeroizing;

use super::Plan;
use super::challenge::Challenges;
use super::failure::{Failure, is_bad_nonce, is_rate_limit, is_unauthorized, is_unknown_account};
use super::folder::{Folder, SavedAccount};
use super::transport::Transport;
use crate::net::tls::TlsError;

/// How often something is begun that fails because the authority does not know its own nonces; for each of them it has
/// been asked three times by then.
pub const ASKED_AT_MOST: usize = 3;

/// How long the authority may take to check the challenges, and again to issue.
const PATIENCE: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.6)
    .timeout(Duration::from_secs(90));

/// A certificate and its key, both PEM.
pub struct Issued {
    /// The certificate and those that lead to the root.
    pub chain: String,
    /// The private key.
    pub key: Zeroizing<String>,
}

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
    match account.update_contacts(&contacts(plan)).await {
        Ok(()) => false,
        Err(error) => is_unknown_account(&error) || is_unauthorized(&error),
    }
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

/// Proves that the domains are this service's, and has the certificate issued.
pub async fn complete(mut order: Order, plan: &Plan, challenges: &Challenges) -> Result<Issued, Failure> {
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
    let state = order.state().status;
    let ready = match state {
        OrderStatus::Ready => Ok(OrderStatus::Ready),
        _ => order.poll_ready(&PATIENCE).await,
    };
    drop(answering);
    match ready {
        Ok(OrderStatus::Ready) => {}
        Ok(_) | Err(Error::Api(_)) => {
            let said = reason(&mut order, plan).await;
            return Err(match (said, ready) {
                (Some(failure), _) => failure,
                (None, Err(error)) => failed(error),
                (None, Ok(_)) => nonsense("it gives up the order and no reason", plan),
            });
        }
        Err(error) => return Err(failed(error)),
    }
    let (request, key) = request(plan)?;
    order.finalize_csr(&request).await.map_err(failed)?;
    let mut chain = order.poll_certificate(&PATIENCE).await;
    for _ in 1..ASKED_AT_MOST {
        match &chain {
            Err(error) if is_bad_nonce(error) => chain = order.poll_certificate(&PATIENCE).await,
            _ => break,
        }
    }
    // It is issued or about to be: another order would be another certificate.
    let chain = chain.map_err(|error| Failure {
        is_nonce: false,
        ..failed(error)
    })?;
    Ok(Issued { chain, key })
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

/// A new key, and the request to certify it for the domains of the plan, whatever the authority says they are.
fn request(plan: &Plan) -> Result<(Vec<u8>, Zeroizing<String>), TlsError> {
    let unmakeable = |error: rcgen::Error| TlsError::Unmakeable(error.to_string());
    let mut params = CertificateParams::new(plan.domains.clone()).map_err(unmakeable)?;
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate().map_err(unmakeable)?;
    let request = params.serialize_request(&key).map_err(unmakeable)?;
    Ok((request.der().to_vec(), Zeroizing::new(key.serialize_pem())))
}
