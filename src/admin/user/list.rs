//! Lists users, a page at a time.

use std::io::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{UserFilter, UserView};
use crate::admin::Admin;
use crate::admin::operation::Done;
use crate::admin::stream::{RecordStream, StreamError, StreamOperation, write_pages};
use crate::store::StoreError;
use crate::store::page::Page;
use crate::store::tables::USERS;

/// A request for the users that a filter has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListUsers {
    pub filter: UserFilter,
    /// The user after whom the list begins.
    pub after: Option<Uuid>,
    /// The most users of the list.
    pub limit: Option<u64>,
}

impl StreamOperation for ListUsers {
    const NAME: &'static str = "user list";

    /// Reads all users in pages of a hundred. Of those whose records match, it reads the day of the last use, the
    /// sessions and the refresh families too, and for a filter about factors the factors. Each page is a short read, so no
    /// sign-in waits.
    fn write(mut self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError> {
        let limit = self.limit.unwrap_or(u64::MAX);
        write_pages(self.after, limit, sink, |after| {
            self.after = after;
            page(admin, &self)
        })
    }
}

impl RecordStream for ListUsers {
    type Record = UserView;
}

/// The first page of the list, in the order in which the users were added. The next one is that of a list that begins
/// after it.
pub fn page(admin: Admin<'_>, request: &ListUsers) -> Result<Page<UserView, Uuid>, StoreError> {
    let groups = Arc::clone(admin.core.catalog().groups());
    let matcher = request.filter.matcher(&groups, admin.core.clock.now());
    Page::read(&admin.core.store, USERS, request.after, |snapshot, _, user| {
        let activity = matcher.activity_if_matching(snapshot, &user)?;
        Ok(activity.map(|activity| UserView::of(&user, &groups, None, activity)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::{admin, core};
    use crate::clock::Timestamp;
    use crate::flow::Core;
    use crate::identity::{LinkedIdentity, User};

    /// The uuid of the user with this number. Users are listed by number.
    fn uuid(number: u32) -> Uuid {
        Uuid::from_u128(u128::from(number) << 64)
    }

    fn local(number: u32) -> User {
        User::local(
            uuid(number),
            &format!("u{number}@example.com"),
            "org",
            Timestamp::from_seconds(0),
        )
    }

    async fn put(core: &Core, users: impl IntoIterator<Item = User>) {
        let users: Vec<_> = users.into_iter().collect();
        let written = core.store.write("test", move |tx| {
            users.iter().try_for_each(|user| USERS.put(tx, &user.uuid, user))
        });
        written.await.unwrap();
    }

    /// The numbers of the users on a page, and the request for the next one.
    fn numbers(core: &Core, mut request: ListUsers) -> (Vec<u128>, Option<ListUsers>) {
        let page = page(admin(core), &request).unwrap();
        let numbers = page.records.iter().map(|user| user.uuid.as_u128() >> 64);
        request.after = page.next;
        (numbers.collect(), page.next.map(|_| request))
    }

    fn of(filter: UserFilter) -> ListUsers {
        ListUsers {
            filter,
            ..ListUsers::default()
        }
    }

    fn all_numbers(core: &Core, request: ListUsers) -> Vec<u128> {
        let (mut all, mut next) = (Vec::new(), Some(request));
        while let Some(request) = next {
            let (page, after) = numbers(core, request);
            all.extend(page);
            next = after;
        }
        all
    }

    #[tokio::test]
    async fn a_list_has_the_users_that_are_asked_for() {
        let core = core();
        let user = |number| {
            let mut user = local(number);
            match number {
                7 => user.enabled = false,
                8 => user.phone_number = Some("+32 9 876".to_owned()),
                9 => drop(user.claims.insert("name".to_owned(), "Zoë ÉLAN".into())),
                10 => user.email = Some("jo@xn--bcher-kva.example".to_owned()),
                250 => user = User::anonymous(user.uuid, "org", user.created_at),
                251 => {
                    user = User::federated(user.uuid, "corp:1".to_owned(), "corp", "org", user.created_at);
                }
                252 => user.identities.push(LinkedIdentity {
                    issuer: "https://corp.example".to_owned(),
                    subject: "1".to_owned(),
                    provider: "corp".to_owned(),
                    linked_at: user.created_at,
                }),
                _ => {}
            }
            user
        };
        put(&core, (0..253).map(user)).await;
        let all = ListUsers::default();
        assert_eq!(all_numbers(&core, all.clone()), (0..253).collect::<Vec<_>>());
        let search = |text: &str| {
            let search = Some(text.to_owned());
            all_numbers(
                &core,
                of(UserFilter {
                    search,
                    ..UserFilter::default()
                }),
            )
        };
        assert_eq!(search("U12@EXAMPLE"), [12]);
        for name in [
            "élan",
            "e\u{301}lan",
            "ZOE\u{308}",
            " Zoë\u{3000}é",
            "ｅ\u{301}ＬＡＮ",
        ] {
            assert_eq!(search(name), [9], "{name}");
        }
        for address in [
            "jo@bücher.example",
            "JO@BU\u{308}CHER",
            "jo@xn--bcher-kva.example",
            "xn--bch",
        ] {
            assert_eq!(search(address), [10], "{address}");
        }
        assert_eq!(search("9 876"), [8]);
        assert_eq!(search("-0000000000FB-"), [] as [u128; 0]);
        assert_eq!(search("00000000-0000-00FB"), [251]);
        assert_eq!(search("corp:"), [251]);
        assert_eq!(search("").len(), 253);
        let (disabled, anonymous) = (true, true);
        let (provider, after) = (Some("corp".to_owned()), Some(uuid(251)));
        let every = UserFilter::default();
        for (request, expected) in [
            (ListUsers { after, ..all }, vec![252]),
            (
                of(UserFilter {
                    disabled,
                    ..every.clone()
                }),
                vec![7],
            ),
            (
                of(UserFilter {
                    anonymous,
                    ..every.clone()
                }),
                vec![250],
            ),
            (
                of(UserFilter {
                    provider: provider.clone(),
                    ..every.clone()
                }),
                vec![251, 252],
            ),
            (
                of(UserFilter {
                    disabled,
                    provider,
                    ..every
                }),
                vec![],
            ),
        ] {
            assert_eq!(all_numbers(&core, request), expected);
        }
    }

    #[tokio::test]
    async fn a_list_has_each_user_once_while_others_come_and_go() {
        let core = core();
        put(&core, (0..1000).filter(|number| number % 2 == 0).map(local)).await;
        let (mut listed, mut next) = (Vec::new(), Some(ListUsers::default()));
        let mut round = 0;
        while let Some(request) = next {
            let (page, after) = numbers(&core, request);
            listed.extend(page);
            // The last user of the page goes as well, which is the one after whom the next page begins.
            let last = u32::try_from(*listed.last().unwrap()).unwrap();
            let gone = [last, (last + 100) / 4 * 4 + 2].map(uuid);
            core.store
                .write("test", move |tx| {
                    gone.iter().try_for_each(|uuid| USERS.remove(tx, uuid).map(drop))
                })
                .await
                .unwrap();
            put(&core, [round * 2 + 1, last + 51].map(local)).await;
            round += 1;
            next = after;
        }
        assert!(round > 4);
        assert!(listed.is_sorted_by(|one, next| one < next), "{listed:?}");
        let stood = (0..1000).filter(|number| number % 4 == 0);
        let missing: Vec<_> = stood.filter(|number| !listed.contains(number)).collect();
        assert_eq!(missing, [] as [u128; 0]);
    }
}
