//! The conversation with the authority, from the account to the certificate (RFC 8555 section 7).

use std::time::Duration;

use instant_acme::{
    Account, AccountBuilder, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier,
    NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use zeroize::Zeroizing;

use super::Plan;
use super::failure::{Failure, is_outage, is_problem};
use super::folder::{Folder, SavedAccount, State};
use super::schedule::RenewalInfo;
use super::transport::Transport;
use crate::net::challenge::Challenges;
use crate::net::outbound::Client;

/// The authority does not accept a nonce that it issued (RFC 8555 section 6.5).
const BAD_NONCE: &str = "badNonce";
/// The authority does not know the account.
const UNKNOWN_ACCOUNT: &str = "accountDoesNotExist";
/// The account may not do this. An authority refuses every request of a deactivated account this way (RFC 8555 section
/// 7.3.6), and some requests of others.
const UNAUTHORIZED: &str = "unauthorized";

/// How often a request with a bad nonce is repeated. Each time, the library itself tries three times.
const NONCE_ATTEMPTS: usize = 3;
/// The longest wait for the authority to check the challenges. The last request is sent after four minutes.
const VALIDATION_TIMEOUT: Duration = Duration::from_mins(6);
/// The longest wait for the authority to issue the certificate. It is long, because a new order would count against the
/// authority's rate limit. The last request is sent after a quarter of an hour.
const ISSUANCE_TIMEOUT: Duration = Duration::from_mins(25);
/// The pauses between requests for an issued certificate while the authority is out of order.
const OUTAGE_PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_mins(1),
];

/// Repeats a request while the authority refuses its own nonces. It is a macro, because the compiler does not see that
/// the futures of an async closure are `Send`.
macro_rules! retry_bad_nonce {
    ($request:expr) => {{
        let mut answer = $request.await;
        for _ in 1..NONCE_ATTEMPTS {
            if !answer
                .as_ref()
                .is_err_and(|error| is_problem(error, &[BAD_NONCE]))
            {
                break;
            }
            answer = $request.await;
        }
        answer
    }};
}

/// A certificate chain and its private key, both PEM.
pub struct Issued {
    /// The certificates, the server's own first.
    pub chain: String,
    /// The private key.
    pub key: Zeroizing<String>,
}

/// A conversation with the authority of a plan.
pub struct Conversation<'a> {
    plan: &'a Plan,
    folder: &'a Folder,
    state: &'a mut State,
    transport: Transport,
}

struct CurrentAccount {
    account: Account,
    is_new: bool,
}

impl CurrentAccount {
    fn new(account: Account) -> Self {
        let is_new = true;
        Self { account, is_new }
    }

    fn known(account: Account) -> Self {
        let is_new = false;
        Self { account, is_new }
    }
}

impl<'a> Conversation<'a> {
    /// A conversation by this client. It stores the account in the state, and the state in the folder. `now` is in seconds
    /// since the epoch.
    pub fn new(plan: &'a Plan, folder: &'a Folder, state: &'a mut State, client: &Client, now: u64) -> Self {
        Self {
            plan,
            folder,
            state,
            transport: Transport::new(client.clone(), now),
        }
    }

    /// Orders a certificate. `replaced` names the one that it renews (RFC 9773 section 5).
    pub async fn order(
        &mut self,
        challenges: &Challenges,
        replaced: Option<CertificateIdentifier<'static>>,
    ) -> Result<Issued, Failure> {
        let issued = self.order_once(challenges, replaced).await;
        issued.map_err(|failure| Failure {
            wait: failure.wait.max(self.transport.wait()),
            ..failure
        })
    }

    async fn order_once(
        &mut self,
        challenges: &Challenges,
        replaced: Option<CertificateIdentifier<'static>>,
    ) -> Result<Issued, Failure> {
        let CurrentAccount { account, is_new } = self.account().await?;
        let begun = match self.create_order(&account, replaced).await {
            Err(error) if !is_new && self.is_account_refused(&account, &error).await => {
                let account = self.replace_account(&error).await?;
                self.create_order(&account, None).await
            }
            begun => begun,
        };
        let mut order = begun.map_err(|error| self.failure(&error))?;
        self.answer_challenges(&mut order, challenges).await?;
        let key = retry_bad_nonce!(order.finalize());
        let key = Zeroizing::new(key.map_err(|error| self.failure(&error))?);
        let chain = download(&mut order).await;
        let chain = chain.map_err(|error| self.failure(&error))?;
        Ok(Issued { chain, key })
    }

    /// When the authority wants a certificate renewed.
    pub async fn renewal_window(
        &mut self,
        certificate: &CertificateIdentifier<'_>,
    ) -> Result<RenewalInfo, Failure> {
        let CurrentAccount { account, .. } = self.account().await?;
        let answer = account.renewal_info(certificate).await;
        let (information, lasts) = answer.map_err(|error| self.failure(&error))?;
        let window = information.suggested_window;
        let second = |moment: time::OffsetDateTime| u64::try_from(moment.unix_timestamp()).unwrap_or(0);
        Ok(RenewalInfo {
            window: (second(window.start), second(window.end)),
            lasts: lasts.as_secs(),
        })
    }

    /// A new account is saved before it is used.
    async fn account(&mut self) -> Result<CurrentAccount, Failure> {
        let directory = self.plan.directory.as_str();
        let saved = self.state.account.as_mut();
        let saved = saved.filter(|saved| saved.directory == directory);
        let credentials = saved.and_then(|saved| serde_json::from_value(saved.credentials.clone()).ok());
        let Some(credentials) = credentials else {
            return Ok(CurrentAccount::new(self.open_account().await?));
        };
        let account = builder(&self.transport).from_credentials(credentials).await;
        let account = account.map_err(|error| self.failure(&error))?;
        let known = self.state.account.as_ref().map(|saved| &saved.contact);
        if known == Some(&self.plan.contact) {
            return Ok(CurrentAccount::known(account));
        }
        match self.update_contact(&account).await {
            Ok(()) => {
                if let Some(saved) = &mut self.state.account {
                    saved.contact.clone_from(&self.plan.contact);
                }
                self.folder.save(self.state)?;
            }
            // This request is about the account alone, so the error is about the account.
            Err(error) if is_problem(&error, &[UNKNOWN_ACCOUNT, UNAUTHORIZED]) => {
                return Ok(CurrentAccount::new(self.replace_account(&error).await?));
            }
            // A refused contact does not prevent an order.
            Err(error) => {
                let error = self.failure(&error);
                tracing::warn!(%error, "the certificate authority does not take acme.contact");
            }
        }
        Ok(CurrentAccount::known(account))
    }

    /// Opens an account, agrees to the authority's terms, and saves the account.
    async fn open_account(&mut self) -> Result<Account, Failure> {
        let contacts = contacts(self.plan);
        let wanted = NewAccount {
            contact: &contacts,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.plan.directory.to_string();
        let opened = retry_bad_nonce!(builder(&self.transport).create(&wanted, directory.clone(), None));
        let (account, credentials) = opened.map_err(|error| self.failure(&error))?;
        let credentials = serde_json::to_value(credentials);
        self.state.account = Some(SavedAccount {
            directory,
            contact: self.plan.contact.clone(),
            credentials: credentials.map_err(|error| self.failure(&error.into()))?,
        });
        self.folder.save(self.state)?;
        Ok(account)
    }

    /// Replaces an account that the authority has deactivated (RFC 8555 section 7.3.6) or does not know. The new account
    /// has a new key, because the key of a deactivated account cannot open another.
    async fn replace_account(&mut self, error: &Error) -> Result<Account, Failure> {
        let error = self.failure(error);
        tracing::warn!(
            error = error.message,
            "the certificate authority does not take the account, which is opened anew"
        );
        self.open_account().await
    }

    async fn update_contact(&self, account: &Account) -> Result<(), Error> {
        let contacts = contacts(self.plan);
        retry_bad_nonce!(account.update_contacts(&contacts))
    }

    /// Whether this error means the account and not the order. The same problem can mean both, so this sends a request about
    /// the account: the authority refuses that too if it has deactivated the account (RFC 8555 section 7.3.6).
    async fn is_account_refused(&self, account: &Account, error: &Error) -> bool {
        if !is_problem(error, &[UNAUTHORIZED]) {
            return is_problem(error, &[UNKNOWN_ACCOUNT]);
        }
        let asked = self.update_contact(account).await;
        asked.is_err_and(|error| is_problem(&error, &[UNKNOWN_ACCOUNT, UNAUTHORIZED]))
    }

    /// Creates an order. If the authority refuses an order that names the replaced certificate, the order omits it.
    async fn create_order(
        &self,
        account: &Account,
        replaced: Option<CertificateIdentifier<'static>>,
    ) -> Result<Order, Error> {
        let identifiers: Vec<Identifier> = self.plan.domains.iter().cloned().map(Identifier::Dns).collect();
        if let Some(replaced) = replaced {
            let order = NewOrder::new(&identifiers).replaces(replaced);
            match retry_bad_nonce!(account.new_order(&order)) {
                Err(error) if is_problem(&error, &[UNKNOWN_ACCOUNT, BAD_NONCE, "rateLimited"]) => {
                    return Err(error);
                }
                Err(_) => {}
                begun => return begun,
            }
        }
        let order = NewOrder::new(&identifiers);
        retry_bad_nonce!(account.new_order(&order))
    }

    /// Answers the authority's challenges for the domains.
    async fn answer_challenges(&self, order: &mut Order, challenges: &Challenges) -> Result<(), Failure> {
        let failed = |error: Error| self.failure(&error);
        retry_bad_nonce!(fetch_authorizations(order)).map_err(failed)?;
        let mut open = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(failed)?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                _ => return Err(self.nonsense("it offers an authorization that is not open")),
            }
            let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
                return Err(Failure::new(
                    "the certificate authority does not offer the challenge tls-alpn-01",
                    "name another authority in acme.directory",
                ));
            };
            let domain = challenge.identifier().to_string();
            if !self.plan.domains.contains(&domain) {
                return Err(self.nonsense("it asks about a domain that was not ordered"));
            }
            let digest = challenge.key_authorization().digest();
            let digest = <[u8; 32]>::try_from(digest.as_ref())
                .map_err(|_| self.nonsense("its challenge cannot be answered"))?;
            open.push(challenges.answer(&domain, &digest)?);
            let notified = retry_bad_nonce!(challenge.set_ready());
            notified.map_err(|error| match &error {
                Error::Api(problem) if !is_problem(&error, &[BAD_NONCE]) => {
                    Failure::about(&domain, problem, self.plan)
                }
                _ => self.failure(&error),
            })?;
        }
        let polling = polling(VALIDATION_TIMEOUT);
        let ready = retry_bad_nonce!(order.poll_ready(&polling));
        drop(open);
        let failure = match ready {
            Ok(OrderStatus::Ready) => return Ok(()),
            Ok(_) => self.nonsense("it gives up the order and no reason"),
            Err(error) => self.failure(&error),
        };
        Err(self.failed_challenge(order).await.unwrap_or(failure))
    }

    /// The problem of the first domain that the authority could not verify.
    async fn failed_challenge(&self, order: &mut Order) -> Option<Failure> {
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            authorization.refresh().await.ok()?;
            let domain = authorization.identifier().to_string();
            let mut challenges = authorization.challenges.iter();
            if let Some(problem) = challenges.find_map(|challenge| challenge.error.as_ref()) {
                return Some(Failure::about(&domain, problem, self.plan));
            }
        }
        None
    }

    fn failure(&self, error: &Error) -> Failure {
        Failure::of(error, self.plan)
    }

    fn nonsense(&self, what: &str) -> Failure {
        self.failure(&Error::Other(what.into()))
    }
}

/// Downloads the certificate of a finalized order.
async fn download(order: &mut Order) -> Result<String, Error> {
    let polling = polling(ISSUANCE_TIMEOUT);
    for pause in OUTAGE_PAUSES {
        match retry_bad_nonce!(order.poll_certificate(&polling)) {
            Err(error) if is_outage(&error) => tokio::time::sleep(pause).await,
            downloaded => return downloaded,
        }
    }
    order.poll_certificate(&polling).await
}

/// Makes the library fetch the authorizations of the order, if it has not done so.
async fn fetch_authorizations(order: &mut Order) -> Result<(), Error> {
    let mut identifiers = order.identifiers();
    while let Some(identifier) = identifiers.next().await {
        identifier?;
    }
    Ok(())
}

/// How the status of an order is polled: after pauses that grow by a quarter each time, or as the authority asks.
fn polling(timeout: Duration) -> RetryPolicy {
    RetryPolicy::new()
        .initial_delay(Duration::from_millis(250))
        .backoff(1.25)
        .timeout(timeout)
}

fn builder(transport: &Transport) -> AccountBuilder {
    Account::builder_with_http(Box::new(transport.clone()))
}

fn contacts(plan: &Plan) -> Vec<&str> {
    plan.contact.as_deref().into_iter().collect()
}
