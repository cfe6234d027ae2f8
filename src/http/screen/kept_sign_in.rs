//! The cookies that keep a sign-in while its user is at a provider, or looks for a mail.
//!
//! A provider returns only `state`, and some limit its length. So the browser keeps the sealed transaction and the sealed
//! question in cookies that are named after the transaction: several tabs may be at providers at once. A long
//! transaction takes several cookies.
//!
//! The link of a mail names no sign-in. If it is opened in the browser in which the mail was requested, a cookie continues
//! the sign-in.

use std::collections::BTreeMap;
use std::time::Duration;

use ::http::header::HeaderValue;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::flow::login::begin_federation::KeptSignIn;
use crate::flow::login::transaction::LoginContext;
use crate::http::context::RequestContext;
use crate::http::cookie;

/// Why a sign-in waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    Provider,
    Mail,
}

impl Wait {
    const ALL: [Self; 2] = [Self::Provider, Self::Mail];

    /// The beginning of the names of its cookies. They end in the suffix of the service.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Provider => "__Host-idsvc_provider_",
            Self::Mail => "__Host-idsvc_mail_",
        }
    }
}

/// The cookies of a sign-in. The ids are ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// The id of the login transaction.
    id: Uuid,
    wait: Wait,
}

/// The parts of values, by the sign-in and the number of the part.
type Parts<'h> = BTreeMap<Kept, BTreeMap<usize, &'h str>>;

/// The cookie of the member `user` of a posted answer. There is one, so that a website cannot fill the header of a request.
const POSTED_USER: &str = "__Host-idsvc_posted_user";
/// The browser comes back with it at once.
const POSTED_USER_LIFETIME: Duration = Duration::from_mins(5);

/// The most bytes of a value. Browsers keep 4,096 bytes of a name and its value (RFC 6265bis section 5.7).
const MAX_PART: usize = 3_900;

/// The most bytes of the values of all these cookies. The oldest are removed to make room: a website can begin a sign-in in
/// a browser as often as it wants, and the cookies must fit into the header of a request. One long sign-in may take more.
const MAX_TOTAL: usize = 6 * 1024;

/// Between the question and the transaction.
const SEPARATOR: char = '.';

/// The `Set-Cookie` values that keep this sign-in while its user is at a provider.
pub(super) fn keep(context: &RequestContext, sign_in: &KeptSignIn) -> Vec<HeaderValue> {
    let value = format!("{}{SEPARATOR}{}", sign_in.question, sign_in.transaction);
    let wait = Wait::Provider;
    keep_value(context, Kept { id: sign_in.id, wait }, &value)
}

/// The `Set-Cookie` values that keep this sign-in until the link of a mail is opened. A long one is not kept: the addresses
/// of the pages have it too, and both must fit into one header.
pub(super) fn keep_for_mail(context: &RequestContext, login: &LoginContext) -> Vec<HeaderValue> {
    if login.sealed.len() > MAX_PART {
        return Vec::new();
    }
    let (id, wait) = (login.transaction.id, Wait::Mail);
    keep_value(context, Kept { id, wait }, &login.sealed)
}

/// The sealed transaction with this id that the browser has kept for a mail.
pub(super) fn find_for_mail(context: &RequestContext, id: Uuid) -> Option<String> {
    let wait = Wait::Mail;
    let parts = present(context).remove(&Kept { id, wait })?;
    Some(parts.into_values().collect())
}

fn keep_value(context: &RequestContext, kept: Kept, value: &str) -> Vec<HeaderValue> {
    let lifetime = context.app.core.policy.lifetimes.login_transaction;
    // Sealed values are base64url.
    let parts = value.as_bytes().chunks(MAX_PART).map(String::from_utf8_lossy);
    let parts: Vec<_> = parts.collect();
    let mut cookies = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        cookies.extend(cookie::set_cookie(
            &name(context, kept, number),
            part,
            Some(lifetime),
        ));
    }
    let mut total = value.len();
    for (other, known) in present(context).into_iter().rev() {
        let is_same = other == kept;
        if !is_same {
            total += known.values().map(|value| value.len()).sum::<usize>();
        }
        for number in known.into_keys() {
            let is_replaced = is_same && number < parts.len();
            if !is_replaced && (is_same || total > MAX_TOTAL) {
                cookies.extend(cookie::set_cookie(
                    &name(context, other, number),
                    "",
                    Some(Duration::ZERO),
                ));
            }
        }
    }
    cookies
}

/// The sign-in that the browser has kept of this transaction while its user was at a provider.
pub(super) fn find(context: &RequestContext, id: Uuid) -> Option<KeptSignIn> {
    let wait = Wait::Provider;
    let kept = Kept { id, wait };
    let own = present(context).remove(&kept);
    let parts = own.or_else(|| sent_under(context, "").remove(&kept))?;
    let value: String = parts.into_values().collect();
    let (question, transaction) = value.split_once(SEPARATOR)?;
    Some(KeptSignIn {
        id,
        question: question.to_owned(),
        transaction: transaction.to_owned(),
    })
}

/// The `Set-Cookie` value that keeps the member `user` of a posted answer to this sign-in, until the browser comes with the
/// answer itself.
pub(super) fn keep_posted_user(context: &RequestContext, id: Uuid, user: &str) -> Option<HeaderValue> {
    let value = format!("{}{SEPARATOR}{}", id.simple(), URL_SAFE_NO_PAD.encode(user));
    cookie::set_cookie(&name_of_user(context), &value, Some(POSTED_USER_LIFETIME))
}

/// The member `user` of the posted answer to this sign-in.
pub(super) fn posted_user(context: &RequestContext, id: Uuid) -> Option<String> {
    let name = name_of_user(context);
    let (_, value) = cookie::pairs(context.headers()).find(|(sent, _)| *sent == name)?;
    let (of, user) = value.split_once(SEPARATOR)?;
    if of.parse() != Ok(id) {
        return None;
    }
    String::from_utf8(URL_SAFE_NO_PAD.decode(user).ok()?).ok()
}

/// The `Set-Cookie` value that removes it, if the browser has it.
pub(super) fn remove_posted_user(context: &RequestContext) -> Option<HeaderValue> {
    let name = name_of_user(context);
    let is_sent = cookie::pairs(context.headers()).any(|(sent, _)| sent == name);
    is_sent.then(|| cookie::set_cookie(&name, "", Some(Duration::ZERO)))?
}

fn name_of_user(context: &RequestContext) -> String {
    format!("{POSTED_USER}{}", context.app.cookie_suffix)
}

/// The `Set-Cookie` values after the provider's answer: a long sign-in is removed, because its cookies and the address of
/// the next page do not fit into one header. Others stay, so that an answer that comes again continues the sign-in.
pub(super) fn after_answer(context: &RequestContext, id: Uuid) -> Vec<HeaderValue> {
    let wait = Wait::Provider;
    let kept = Kept { id, wait };
    let parts = present(context).remove(&kept).unwrap_or_default();
    let is_long = parts.len() > 1;
    let removal = |number| cookie::set_cookie(&name(context, kept, number), "", Some(Duration::ZERO));
    parts
        .into_keys()
        .filter(|_| is_long)
        .filter_map(removal)
        .collect()
}

/// The parts of the sign-ins that the browser has kept.
fn present(context: &RequestContext) -> Parts<'_> {
    sent_under(context, &context.app.cookie_suffix)
}

/// The parts in cookies with this suffix.
fn sent_under<'h>(context: &'h RequestContext, suffix: &str) -> Parts<'h> {
    let mut found = Parts::new();
    for (name, value) in cookie::pairs(context.headers()) {
        let name = name.strip_suffix(suffix).unwrap_or_default();
        for wait in Wait::ALL {
            let rest = name.strip_prefix(wait.prefix());
            if let Some((id, number)) = rest.and_then(|rest| rest.split_once('_'))
                && let (Ok(id), Ok(number)) = (id.parse(), number.parse())
            {
                found.entry(Kept { id, wait }).or_default().insert(number, value);
            }
        }
    }
    found
}

fn name(context: &RequestContext, Kept { id, wait }: Kept, number: usize) -> String {
    let (prefix, id, suffix) = (wait.prefix(), id.simple(), &context.app.cookie_suffix);
    format!("{prefix}{id}_{number}{suffix}")
}
