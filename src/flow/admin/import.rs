//! Users from another system, a bounded number at a time: all looked at before the first is written.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::user::{borrowed_type, put};
use super::{Admin, Done, check_account_id, check_text, claim};
use crate::audit::{self, Event};
use crate::clock::Timestamp;
use crate::identity::claim::looks_like_email;
use crate::identity::password::PasswordHash;
use crate::identity::{LoginName, User};
use crate::store::StoreError;
use crate::store::backend::{Snapshot, Tx};
use crate::store::tables::{USERS, USERS_BY_LOGIN_NAME};

/// How far the clock of the other system may be ahead of ours.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

/// What happens to a user who is there already and differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// The line is bad.
    #[default]
    Refuse,
    /// The user stays as they are.
    Skip,
    /// The user becomes what the line says.
    Update,
}

/// Some lines of an import.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportUsers {
    /// Each line with its number.
    pub lines: Vec<(u64, String)>,
    /// What happens to users who are there already.
    pub existing: Existing,
    /// Whether good lines are imported though others of these are bad.
    pub skip_bad: bool,
    /// Whether anything is written; else the lines are only looked at.
    pub write: bool,
}

/// A line that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadLine {
    /// Its number, from 1 on.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// What came of some lines, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Users that are new.
    pub added: u64,
    /// Users that changed.
    pub updated: u64,
    /// Users that were there already, and stay.
    pub unchanged: u64,
    /// Lines that are bad. When there are some and they are not to be skipped, nothing was written.
    pub bad: Vec<BadLine>,
}

/// One user, as a line or an entry of a file has them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UserLine {
    /// The user's identifier in the platform.
    pub uuid: Option<Uuid>,
    /// The account identifier; the address when there is none.
    pub account_id: Option<String>,
    /// The e-mail address.
    pub email: Option<String>,
    /// Whether it was shown to be the user's.
    pub email_verified: Option<bool>,
    /// The telephone number.
    pub phone_number: Option<String>,
    /// Whether it was shown to be the user's.
    pub phone_number_verified: Option<bool>,
    /// The user's type.
    pub user_type: Option<String>,
    /// The venue.
    pub venue_id: Option<String>,
    /// The organization.
    pub organization: Option<String>,
    /// Whether the user may be given tokens.
    pub enabled: Option<bool>,
    /// Claims by name.
    pub claims: BTreeMap<String, Value>,
    /// The password's hash, as [`PasswordHash::import`] reads it.
    pub password_hash: Option<Value>,
    /// When the user was made, in seconds since the epoch.
    pub created_at: Option<u64>,
}

impl UserLine {
    /// The name that messages call the user by.
    pub fn name(&self) -> Option<&str> {
        self.account_id.as_deref().or(self.email.as_deref())
    }

    fn names(&self) -> impl Iterator<Item = LoginName> {
        [&self.account_id, &self.email]
            .into_iter()
            .flatten()
            .map(|name| LoginName::new(name))
    }

    /// The user that the line means, if they are there.
    pub(super) fn existing(
        &self,
        snapshot: &dyn Snapshot,
    ) -> Result<Result<Option<User>, String>, StoreError> {
        let mut owners = Vec::new();
        if let Some(uuid) = self.uuid
            && USERS.contains(snapshot, &uuid)?
        {
            owners.push(uuid);
        }
        for name in self.names() {
            if let Some(uuid) = USERS_BY_LOGIN_NAME.get(snapshot, name.as_str())?
                && !owners.contains(&uuid)
            {
                owners.push(uuid);
            }
        }
        match owners.as_slice() {
            [] => Ok(Ok(None)),
            [one] => Ok(Ok(USERS.get(snapshot, one)?)),
            _ => Ok(Err("its names belong to different users".to_owned())),
        }
    }

    /// Why the user who is there is not the one that the line means, if it is so. A provider chooses the names of those
    /// whom it brings: by its name alone none of them becomes somebody that the operator speaks of.
    pub(super) fn mistakes(&self, before: &User) -> Option<String> {
        let is_brought = before.comes_from_provider() && self.uuid != Some(before.uuid);
        is_brought.then(|| {
            format!(
                "provider {} brought a user of this name: name its uuid, {}, to mean it, or remove it",
                before.source, before.uuid
            )
        })
    }

    /// Why the user may not have the type that the line wants, if it is so.
    pub(super) fn borrowed_type(&self, before: Option<&User>) -> Option<String> {
        borrowed_type(before, self.user_type.as_deref()?)
    }

    /// The user as the line wants it, made of the one who is there.
    pub(super) fn onto(
        &self,
        before: Option<&User>,
        fresh: Uuid,
        organization: &str,
        now: Timestamp,
    ) -> Result<User, String> {
        let said = self;
        let mut faults = Vec::new();
        if let Some(seconds) = said.created_at
            && Timestamp::from_seconds(seconds) > now + CLOCK_SKEW
        {
            faults.push(format!(
                "created_at is in seconds since 1970, and {seconds} lies ahead"
            ));
        }
        let mut user = if let Some(user) = before {
            user.clone()
        } else {
            let made_at = said.created_at.map_or(now, Timestamp::from_seconds).min(now);
            User {
                email: None,
                source: User::IMPORT.to_owned(),
                created_at: made_at,
                ..User::local(said.uuid.unwrap_or(fresh), "", organization, now)
            }
        };
        if let Some(uuid) = said.uuid
            && uuid != user.uuid
        {
            faults.push(format!("the user is there under another uuid, {}", user.uuid));
        }
        if let Some(email) = &said.email {
            if !looks_like_email(email) {
                faults.push(format!("{email:?} is no e-mail address"));
            }
            user.set_email(Some(email.clone()));
        }
        match (&said.account_id, &said.email, before) {
            (Some(id), _, _) => {
                check_account_id(&mut faults, "account_id", id);
                user.account_id.clone_from(id);
            }
            (None, Some(email), None) => user.account_id.clone_from(email),
            _ => {}
        }
        for (field, text) in [
            ("user_type", &said.user_type),
            ("organization", &said.organization),
            ("venue_id", &said.venue_id),
            ("phone_number", &said.phone_number),
        ] {
            if let Some(text) = text {
                check_text(&mut faults, field, text);
            }
        }
        let set = |field: &mut String, said: &Option<String>| {
            if let Some(said) = said {
                field.clone_from(said);
            }
        };
        set(&mut user.user_type, &said.user_type);
        set(&mut user.organization, &said.organization);
        user.venue_id = said.venue_id.clone().or(user.venue_id);
        if said.phone_number.is_some() {
            user.set_phone_number(said.phone_number.clone());
        }
        for (name, value) in &said.claims {
            if matches!(
                name.as_str(),
                "email" | "email_verified" | "phone_number" | "phone_number_verified"
            ) {
                faults.push(format!("{name} stands beside claims, not in them"));
            } else if let Err(fault) = claim::set_value(&mut user, name, value) {
                faults.push(fault);
            }
        }
        claim::forget_verdicts(&mut user);
        user.email_verified = said.email_verified.unwrap_or(user.email_verified);
        user.phone_number_verified = said.phone_number_verified.unwrap_or(user.phone_number_verified);
        faults.extend(claim::unfounded(&user));
        user.enabled = said.enabled.unwrap_or(user.enabled);
        if faults.is_empty() {
            Ok(user)
        } else {
            Err(faults.join("; "))
        }
    }
}

/// A line that was understood.
struct Arrival {
    line: u64,
    said: UserLine,
    password: Option<PasswordHash>,
    fresh: Uuid,
}

impl Arrival {
    fn read(line: u64, text: &str, fresh: Uuid) -> Result<Self, String> {
        // A record could be written as a list, too, by the order of its members: that is never what was meant.
        if !text.starts_with('{') {
            return Err("a line is one JSON object, no list and nothing else".to_owned());
        }
        let said: UserLine = serde_json::from_str(text).map_err(|error| {
            let message = error.to_string();
            // The place within the line is all that its number leaves open.
            message.replace(" at line 1 column", ", at column")
        })?;
        let password = match &said.password_hash {
            Some(hash) => Some(PasswordHash::import(hash).map_err(|problem| problem.to_string())?),
            None => None,
        };
        if said.email.is_none() && said.account_id.is_none() {
            return Err("neither email nor account_id: the user would have no name".to_owned());
        }
        Ok(Self {
            line,
            said,
            password,
            fresh,
        })
    }

    /// What is to be done, decided on one state of the store.
    fn decide(
        &self,
        snapshot: &dyn Snapshot,
        existing: Existing,
        organization: &str,
        now: Timestamp,
    ) -> Result<Result<Step, String>, StoreError> {
        let before = match self.said.existing(snapshot)? {
            Ok(before) => before,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut user = match self.said.onto(before.as_ref(), self.fresh, organization, now) {
            Ok(user) => user,
            Err(fault) => return Ok(Err(fault)),
        };
        if let Some(fault) = self.said.borrowed_type(before.as_ref()) {
            return Ok(Err(fault));
        }
        let Some(before) = before else {
            user.password.clone_from(&self.password);
            return Ok(Ok(Step::Add(user)));
        };
        // A password that was rehashed since, or changed, is newer than the line's.
        let is_repeated = before == user && before.source == User::IMPORT;
        Ok(match existing {
            _ if is_repeated && existing != Existing::Update => Ok(Step::Keep),
            Existing::Skip => Ok(Step::Keep),
            Existing::Refuse => Err(format!(
                "there is a user {} already: --existing skip leaves them, --existing update changes them",
                before.account_id
            )),
            Existing::Update => {
                if let Some(fault) = self.said.mistakes(&before) {
                    return Ok(Err(fault));
                }
                if self.password.is_some() {
                    user.password.clone_from(&self.password);
                }
                if user == before {
                    return Ok(Ok(Step::Keep));
                }
                user.updated_at = now;
                Ok(Step::Change(Box::new(before), user))
            }
        })
    }
}

enum Step {
    Add(User),
    Change(Box<User>, User),
    Keep,
}

/// Looks at some lines, and imports them if that is asked for and they are good. One transaction.
pub async fn users(admin: Admin<'_>, request: ImportUsers) -> Done<Imported> {
    let core = admin.core;
    let began = core.clock.since_epoch();
    let now = core.clock.now();
    let ImportUsers {
        lines,
        existing,
        skip_bad,
        write,
    } = request;
    let mut report = Imported::default();
    let mut arrivals = Vec::new();
    // Sorted, so that users stand in the order of their lines.
    let mut fresh: Vec<Uuid> = lines.iter().map(|_| core.random.uuid_v7(began)).collect();
    fresh.sort_unstable();
    for ((line, text), fresh) in lines.into_iter().zip(fresh) {
        match Arrival::read(line, &text, fresh) {
            Ok(arrival) => arrivals.push(arrival),
            Err(reason) => report.bad.push(BadLine { line, reason }),
        }
    }
    refuse_repeats(&mut arrivals, &mut report.bad);
    let organization = core.policy.organization.clone();
    if !write {
        return Ok(core.store.read(move |snapshot| {
            plan(snapshot, &arrivals, existing, &organization, now, report).map(|(report, _)| report)
        })?);
    }
    let report = core
        .store
        .write("user import", move |tx: &mut dyn Tx| {
            let begun = report.clone();
            let (mut report, steps) = plan(&*tx, &arrivals, existing, &organization, now, begun)?;
            if !report.bad.is_empty() && !skip_bad {
                return Ok(report);
            }
            for (line, step) in steps {
                let put = match &step {
                    Step::Add(user) => put(tx, None, user)?,
                    Step::Change(before, user) => put(tx, Some(before), user)?,
                    Step::Keep => Ok(()),
                };
                // Two lines of one request cannot mean the same name, so this is out of reach of a plan.
                if let Err(refusal) = put {
                    report.bad.push(BadLine {
                        line,
                        reason: refusal.message,
                    });
                }
            }
            Ok(report)
        })
        .await?;
    if report.added + report.updated > 0 && (skip_bad || report.bad.is_empty()) {
        audit::record(&Event::Administered {
            command: "user import",
            subject: &format!("{} added, {} updated", report.added, report.updated),
        });
    }
    Ok(report)
}

/// Takes lines out that use a name which an earlier one of them uses.
fn refuse_repeats(arrivals: &mut Vec<Arrival>, bad: &mut Vec<BadLine>) {
    let mut seen: HashMap<String, u64> = HashMap::new();
    arrivals.retain(|arrival| {
        let mut keys: Vec<String> = arrival
            .said
            .names()
            .map(|name| name.as_str().to_owned())
            .collect();
        keys.extend(arrival.said.uuid.map(|uuid| uuid.to_string()));
        if let Some(first) = keys.iter().find_map(|key| seen.get(key)) {
            bad.push(BadLine {
                line: arrival.line,
                reason: format!("the same user as in line {first}"),
            });
            return false;
        }
        seen.extend(keys.into_iter().map(|key| (key, arrival.line)));
        true
    });
}

type Planned = (Imported, Vec<(u64, Step)>);

fn plan(
    snapshot: &dyn Snapshot,
    arrivals: &[Arrival],
    existing: Existing,
    organization: &str,
    now: Timestamp,
    mut report: Imported,
) -> Result<Planned, StoreError> {
    let mut steps = Vec::new();
    for arrival in arrivals {
        match arrival.decide(snapshot, existing, organization, now)? {
            Ok(step) => {
                match &step {
                    Step::Add(_) => report.added += 1,
                    Step::Change(..) => report.updated += 1,
                    Step::Keep => report.unchanged += 1,
                }
                steps.push((arrival.line, step));
            }
            Err(reason) => report.bad.push(BadLine {
                line: arrival.line,
                reason,
            }),
        }
    }
    report.bad.sort_by_key(|bad| bad.line);
    Ok((report, steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::admin::tests::{admin, core};
    use crate::flow::admin::user;

    fn request(lines: &[&str], write: bool) -> ImportUsers {
        ImportUsers {
            lines: (1..).zip(lines.iter().map(|line| (*line).to_owned())).collect(),
            existing: Existing::Refuse,
            skip_bad: false,
            write,
        }
    }

    fn reasons(report: &Imported) -> Vec<(u64, &str)> {
        report
            .bad
            .iter()
            .map(|bad| (bad.line, bad.reason.as_str()))
            .collect()
    }

    #[tokio::test]
    async fn a_line_brings_a_whole_user() {
        let core = core();
        let line = r#"{"uuid":"7f9c24e8-3b12-4fe1-9a51-111111111111","account_id":"alice","email":"Alice@Example.com","email_verified":true,
            "phone_number":"+32 2 555","user_type":"staff","venue_id":"v1","organization":"acme","enabled":false,"created_at":12,
            "claims":{"given_name":"Alice","address":{"locality":"Ghent"},"badge":"7"},
            "password_hash":"$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"}"#;
        let report = users(admin(&core), request(&[line], true)).await.unwrap();
        assert_eq!((report.added, report.bad.len()), (1, 0));
        let view = user::show(admin(&core), "alice@example.com").unwrap();
        assert_eq!(view.uuid.to_string(), "7f9c24e8-3b12-4fe1-9a51-111111111111");
        assert_eq!(
            (view.source.as_str(), view.enabled, view.created_at.seconds()),
            ("IMPORT", false, 12)
        );
        assert_eq!(view.claims["badge"], "7");
        assert!(view.has_password && view.email_verified && !view.phone_number_verified);
    }

    #[tokio::test]
    async fn every_bad_line_is_named_and_none_is_imported() {
        let core = core();
        let lines = [
            r#"{"email":"good@example.com"}"#,
            r#"{"email":"bad"}"#,
            r#"{"emial":"x@example.com"}"#,
            "no json",
            r#"{"claims":{}}"#,
            r#"{"email":"Good@Example.com"}"#,
            r#"{"email":"c@example.com","password_hash":"md5"}"#,
            r#"{"email":"d@example.com","claims":{"sub":"x","email_verified":true}}"#,
            "[",
            r#"[null,null,"pos@example.com",true]"#,
            r#"{"account_id":"e","email_verified":true,"phone_number_verified":true}"#,
        ];
        for write in [false, true] {
            let report = users(admin(&core), request(&lines, write)).await.unwrap();
            let reasons = reasons(&report);
            assert_eq!(
                reasons.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
                [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
            );
            assert!(reasons[1].1.contains("unknown field `emial`"), "{reasons:?}");
            assert_eq!(reasons[4].1, "the same user as in line 1");
            assert!(reasons[6].1.contains("claim sub") && reasons[6].1.contains("beside claims"));
            for (_, list) in &reasons[7..9] {
                assert_eq!(*list, "a line is one JSON object, no list and nothing else");
            }
            assert!(reasons[9].1.contains("no email;") && reasons[9].1.contains("no phone_number"));
            assert!(user::list(admin(&core), 10).unwrap().is_empty());
        }
        let lenient = ImportUsers {
            skip_bad: true,
            ..request(&lines, true)
        };
        assert_eq!(users(admin(&core), lenient).await.unwrap().added, 1);
        assert_eq!(user::list(admin(&core), 10).unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_second_run_goes_on_where_the_first_ended() {
        let core = core();
        let first = r#"{"email":"a@example.com","password_hash":"$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"}"#;
        users(admin(&core), request(&[first], true)).await.unwrap();
        core.clock.advance(std::time::Duration::from_secs(5));
        let second = request(&[first, r#"{"email":"b@example.com"}"#], true);
        let report = users(admin(&core), second.clone()).await.unwrap();
        assert_eq!((report.added, report.unchanged, report.bad.len()), (1, 1, 0));
        let report = users(admin(&core), second).await.unwrap();
        assert_eq!((report.added, report.unchanged), (0, 2));
    }

    #[tokio::test]
    async fn a_user_who_differs_is_refused_skipped_or_changed_as_told() {
        let core = core();
        users(admin(&core), request(&[r#"{"email":"a@example.com"}"#], true))
            .await
            .unwrap();
        let line = r#"{"email":"a@example.com","venue_id":"v2"}"#;
        let told = |existing| ImportUsers {
            existing,
            ..request(&[line], true)
        };
        let refused = users(admin(&core), told(Existing::Refuse)).await.unwrap();
        assert!(refused.bad[0].reason.contains("--existing"));
        assert_eq!(
            users(admin(&core), told(Existing::Skip)).await.unwrap().unchanged,
            1
        );
        assert_eq!(user::show(admin(&core), "a@example.com").unwrap().venue_id, None);
        assert_eq!(
            users(admin(&core), told(Existing::Update)).await.unwrap().updated,
            1
        );
        assert_eq!(
            users(admin(&core), told(Existing::Update))
                .await
                .unwrap()
                .unchanged,
            1
        );
        assert_eq!(
            user::show(admin(&core), "a@example.com")
                .unwrap()
                .venue_id
                .as_deref(),
            Some("v2")
        );
    }

    #[tokio::test]
    async fn a_line_between_two_users_is_bad() {
        let core = core();
        let two = [r#"{"email":"a@example.com"}"#, r#"{"email":"b@example.com"}"#];
        users(admin(&core), request(&two, true)).await.unwrap();
        let between = ImportUsers {
            existing: Existing::Update,
            ..request(
                &[r#"{"account_id":"a@example.com","email":"b@example.com"}"#],
                true,
            )
        };
        let report = users(admin(&core), between).await.unwrap();
        assert_eq!(reasons(&report), [(1, "its names belong to different users")]);
    }

    #[tokio::test]
    async fn a_name_that_nobody_could_sign_in_with_is_bad() {
        let core = core();
        let line = format!(r#"{{"account_id":"{}"}}"#, "x".repeat(513));
        let report = users(admin(&core), request(&[&line], true)).await.unwrap();
        assert_eq!(reasons(&report), [(1, "account_id is longer than 512 bytes")]);
    }

    #[tokio::test]
    async fn a_type_that_is_no_persons_is_bad() {
        let core = core();
        let line = r#"{"email":"alice@example.com","user_type":"client"}"#;
        let report = users(admin(&core), request(&[line], true)).await.unwrap();
        let told = "user type client is that of clients that act for themselves: choose another";
        assert_eq!(reasons(&report), [(1, told)]);
    }

    #[tokio::test]
    async fn a_user_is_not_made_in_the_future() {
        let core = core();
        let seconds = core.clock.now().seconds();
        let made = |created_at: u64| format!(r#"{{"email":"alice@example.com","created_at":{created_at}}}"#);
        let (millis, ahead) = (made(seconds * 1000), made(seconds + 301));
        for line in [millis, ahead] {
            let report = users(admin(&core), request(&[&line], true)).await.unwrap();
            assert_eq!((report.added, report.bad.len()), (0, 1));
            assert!(
                report.bad[0].reason.contains("in seconds since 1970"),
                "{:?}",
                report.bad
            );
        }
        let soon = made(seconds + 200);
        let report = users(admin(&core), request(&[&soon], true)).await.unwrap();
        assert_eq!((report.added, report.bad.len()), (1, 0), "{:?}", report.bad);
        let user = user::show(admin(&core), "alice@example.com").unwrap();
        assert_eq!(user.created_at.seconds(), seconds);
    }
}
