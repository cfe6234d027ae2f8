//! Which users a list or a removal has.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::flow::{factors, user_activity};
use crate::identity::{FactorKind, User};
use crate::oauth::group::Groups;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::records::UserActivity;
use crate::text;

/// Conditions that all hold for a user. Without one, every user matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserFilter {
    /// A text that a name, an address, the account identifier or the uuid contains, in the form in which names are
    /// compared.
    pub search: Option<String>,
    pub disabled: bool,
    pub anonymous: bool,
    /// The id of the provider that created the user or has an account linked to the user.
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Users who have neither an authenticator app nor a passkey. Anonymous users can have none, and do not match.
    pub without_factor: bool,
    /// Users who have never signed in here, and whom no client has got tokens for by another grant. Anonymous users cannot
    /// sign in, and do not match. Nor does a user whose record an earlier release made, if nothing is known of their sign-ins.
    pub never_signed_in: bool,
    /// Users whose last sign-in and last use are at least so many seconds ago. Without either, the creation counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_seen: Option<u64>,
}

impl UserFilter {
    /// The filter at this time.
    pub(super) fn matcher<'a>(&'a self, groups: &'a Groups, now: Timestamp) -> Matcher<'a> {
        Matcher {
            filter: self,
            search: self.search.as_deref().map(Search::of),
            groups,
            now,
        }
    }
}

/// The forms of a searched text.
struct Search {
    readable: String,
    /// With A-labels in the domain of an address.
    address: String,
}

impl Search {
    fn of(text: &str) -> Self {
        Self {
            readable: text::caseless(text),
            address: text::caseless_address(text),
        }
    }

    /// Whether the name contains the text. A domain is found by each of its two spellings.
    fn is_in(&self, name: &str) -> bool {
        text::caseless(&text::readable_address(name)).contains(&self.readable)
            || text::caseless_address(name).contains(&self.address)
    }
}

/// Decides which users match.
pub(super) struct Matcher<'a> {
    filter: &'a UserFilter,
    search: Option<Search>,
    groups: &'a Groups,
    now: Timestamp,
}

impl Matcher<'_> {
    /// When the user was last seen, if the user matches. What is stored beside the record is read only if the record
    /// matches.
    pub(super) fn activity_if_matching(
        &self,
        snapshot: &dyn Snapshot,
        user: &User,
    ) -> Result<Option<UserActivity>, StoreError> {
        if !self.matches_record(user) {
            return Ok(None);
        }
        let activity = user_activity::of_user(snapshot, user.uuid)?;
        if !self.matches_activity(user, activity) {
            return Ok(None);
        }
        let is_excluded = self.filter.without_factor && has_app_or_passkey(snapshot, user)?;
        Ok((!is_excluded).then_some(activity))
    }

    fn matches_record(&self, user: &User) -> bool {
        let filter = self.filter;
        let is_of = |provider: &String| {
            let mut linked = user.identities.iter().map(|identity| &identity.provider);
            user.source == *provider || linked.any(|linked| linked == provider)
        };
        let is_in = |name: &String| {
            let group = self.groups.id_of(name);
            group.is_some_and(|id| user.groups.contains(&id))
        };
        let is_found = |search: &Search| {
            let mut names = user.names_and_addresses();
            names.any(|name| search.is_in(name)) || user.uuid.to_string().contains(&search.readable)
        };
        let is_about_people = filter.without_factor || filter.never_signed_in;
        (!filter.disabled || !user.enabled)
            && (!filter.anonymous || user.is_anonymous())
            && (!is_about_people || !user.is_anonymous())
            && filter.provider.as_ref().is_none_or(is_of)
            && filter.group.as_ref().is_none_or(is_in)
            && self.search.as_ref().is_none_or(is_found)
    }

    fn matches_activity(&self, user: &User, activity: UserActivity) -> bool {
        let never_signed_in = user.sign_ins_are_known && activity == UserActivity::default();
        (!self.filter.never_signed_in || never_signed_in)
            && self
                .filter
                .not_seen
                .is_none_or(|age| self.is_unseen_for(age, user, activity))
    }

    /// Whether the last use is so many seconds ago. Only its day is known, so the end of that day counts.
    fn is_unseen_for(&self, age: u64, user: &User, activity: UserActivity) -> bool {
        const DAY: Duration = Duration::from_hours(24);
        let last = activity.last_used.max(activity.last_sign_in);
        let seen = last.map_or(user.created_at, |day| day + DAY);
        seen + Duration::from_secs(age) <= self.now
    }
}

fn has_app_or_passkey(snapshot: &dyn Snapshot, user: &User) -> Result<bool, StoreError> {
    let factors = factors::of_user(snapshot, user.uuid)?;
    let is_one = |kind: &FactorKind| matches!(kind, FactorKind::Totp(_) | FactorKind::Passkey(_));
    Ok(factors.iter().any(|(_, factor)| is_one(&factor.kind)))
}
