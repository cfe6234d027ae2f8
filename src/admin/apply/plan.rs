//! The changes that a declared state needs, and how they are made.

use std::collections::{BTreeMap, HashSet};

use super::stored_record::StoredRecord;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Action, Applied, Change, FieldChange};
use crate::admin::{AdminRefusal, SecretString, about};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::flow::one_time_link::invitations;
use crate::identity::User;
use crate::oauth::fault::RecordName;
use crate::oauth::group::Groups;
use crate::oauth::{Api, Fault, FaultCode, Logo};
use crate::store::engine::{Snapshot, Tx};
use crate::store::login_names;
use crate::store::{StoreError, TxError};

/// An entry of a file, prepared for the comparison with the stored record.
pub(super) trait Entry {
    /// What entries of this kind are compared with, beside the stored record.
    type Context;
    /// The kind of record in faults.
    const KIND: &'static str;

    /// The name of the record in faults.
    fn id(&self) -> &str;

    /// Compares the entry with the stored record. Adds what is wrong with the record to `faults`.
    fn compare(
        &self,
        snapshot: &dyn Snapshot,
        context: &Self::Context,
        faults: &mut Vec<Fault>,
    ) -> Result<Comparison, TxError<AdminRefusal>>;

    /// The stored records that are removed if no entry declares them.
    fn prunable(snapshot: &dyn Snapshot) -> Result<Vec<StoredRecord>, StoreError>;
}

/// A record before and after the change.
pub(super) struct Comparison {
    pub(super) before: Option<StoredRecord>,
    /// The time of the last change is still that of `before`.
    pub(super) after: StoredRecord,
    /// The change of a secret. An entry of an export does not show it.
    pub(super) secret: Option<FieldChange>,
    /// A secret that was generated, to be shown once.
    pub(super) generated_secret: Option<SecretString>,
    /// The field of a generated identifier.
    pub(super) generated_field: Option<&'static str>,
}

impl Comparison {
    pub(super) fn of<R: Into<StoredRecord>>(before: Option<R>, after: R) -> Self {
        Self {
            before: before.map(Into::into),
            after: after.into(),
            secret: None,
            generated_secret: None,
            generated_field: None,
        }
    }
}

struct PlannedWrite {
    before: Option<StoredRecord>,
    /// `None` if the record is removed.
    after: Option<StoredRecord>,
    /// Whether the operator changes the record. If not, only the note of which hash was declared changes.
    is_audited: bool,
}

/// The changes to make, and the faults that prevent them.
pub(super) struct Plan {
    pub(super) applied: Applied,
    pub(super) faults: Vec<Fault>,
    /// The providers after the change, by id.
    pub(super) providers: BTreeMap<String, Provider>,
    /// The APIs after the change, by id.
    pub(super) apis: BTreeMap<String, Api>,
    /// The identifiers of the groups after the change, by name.
    pub(super) groups: BTreeMap<String, Uuid>,
    /// Whether records that are not declared are removed, of the kinds that are declared.
    prunes: bool,
    now: Timestamp,
    writes: Vec<PlannedWrite>,
}

impl Plan {
    /// A plan without changes.
    pub(super) fn new(dry_run: bool, prunes: bool, now: Timestamp) -> Self {
        Self {
            applied: Applied {
                dry_run,
                ..Applied::default()
            },
            faults: Vec::new(),
            providers: BTreeMap::new(),
            apis: BTreeMap::new(),
            groups: BTreeMap::new(),
            prunes,
            now,
            writes: Vec::new(),
        }
    }

    /// Adds the changes that the entries of one kind need. Does nothing if the file does not declare this kind.
    pub(super) fn compare<E: Entry>(
        &mut self,
        snapshot: &dyn Snapshot,
        declared: Option<&[E]>,
        context: &E::Context,
    ) -> Result<(), StoreError> {
        let Some(declared) = declared else {
            return Ok(());
        };
        let groups = Groups::new(self.groups.clone());
        let mut known = HashSet::new();
        for entry in declared {
            let mut faults = Vec::new();
            match entry.compare(snapshot, context, &mut faults) {
                Ok(comparison) => {
                    if !known.insert(comparison.after.lasting_name().id) {
                        let detail = format!("another entry is about the same {}", E::KIND);
                        faults.push(FaultCode::AlreadyExists.of(E::KIND, entry.id(), detail));
                    }
                    self.change(comparison, &groups);
                }
                Err(TxError::Refused(AdminRefusal(refused))) => faults.extend(refused),
                Err(TxError::Failed(error)) => return Err(error),
            }
            self.faults.extend(about(E::KIND, entry.id(), faults));
        }
        if self.prunes {
            let mut undeclared = E::prunable(snapshot)?;
            undeclared.retain(|record| !known.contains(&record.lasting_name().id));
            for record in undeclared {
                self.remove(record);
            }
        }
        Ok(())
    }

    fn change(&mut self, comparison: Comparison, groups: &Groups) {
        let Comparison {
            before,
            mut after,
            secret,
            generated_secret,
            generated_field,
        } = comparison;
        match &after {
            StoredRecord::Group(group) => drop(self.groups.insert(group.name.clone(), group.uuid)),
            StoredRecord::Provider(provider) => {
                self.providers.insert(provider.id.clone(), (**provider).clone());
            }
            StoredRecord::Api(api) => drop(self.apis.insert(api.id.clone(), (**api).clone())),
            StoredRecord::Scope(_) | StoredRecord::Client(_) | StoredRecord::User(_) => {}
        }
        let is_same = before.as_ref() == Some(&after);
        let is_unchanged = before
            .as_ref()
            .is_some_and(|before| before.is_as_declared(&after));
        if is_unchanged {
            self.applied.unchanged += 1;
        } else {
            after.set_updated_at(self.now);
            let then = before.as_ref().map(|before| before.export(groups));
            let mut fields = differences(&then.unwrap_or_default(), &after.export(groups));
            // The real run generates other identifiers and secrets.
            let is_dry = self.applied.dry_run;
            fields.retain(|field| !is_dry || Some(field.name.as_str()) != generated_field);
            fields.extend(secret);
            let RecordName { kind, id } = after.name();
            self.applied.changes.push(Change {
                kind,
                id,
                action: if before.is_none() {
                    Action::Add
                } else {
                    Action::Change
                },
                fields,
                client_secret: generated_secret.filter(|_| !is_dry),
            });
        }
        if !is_same {
            self.writes.push(PlannedWrite {
                before,
                after: Some(after),
                is_audited: !is_unchanged,
            });
        }
    }

    /// Plans the removal of a record.
    pub(super) fn remove(&mut self, record: StoredRecord) {
        match &record {
            StoredRecord::Group(group) => drop(self.groups.remove(&group.name)),
            StoredRecord::Provider(provider) => drop(self.providers.remove(&provider.id)),
            StoredRecord::Api(api) => drop(self.apis.remove(&api.id)),
            StoredRecord::Scope(_) | StoredRecord::Client(_) | StoredRecord::User(_) => {}
        }
        let RecordName { kind, id } = record.name();
        self.applied.changes.push(Change {
            kind,
            id,
            action: Action::Remove,
            fields: Vec::new(),
            client_secret: None,
        });
        self.writes.push(PlannedWrite {
            before: Some(record),
            after: None,
            is_audited: true,
        });
    }

    /// The clients that are stored or removed, by identifier, and whether they are there after the change.
    pub(super) fn changed_clients(&self) -> BTreeMap<&str, bool> {
        let mut changed = BTreeMap::new();
        for write in &self.writes {
            let record = write.after.as_ref().or(write.before.as_ref());
            if let Some(StoredRecord::Client(client)) = record {
                changed.insert(client.client_id.as_str(), write.after.is_some());
            }
        }
        changed
    }

    /// The users who are added or changed, as they are after the change.
    pub(super) fn users_after(&self) -> impl Iterator<Item = &User> {
        self.writes.iter().filter_map(|write| match &write.after {
            Some(StoredRecord::User(user)) => Some(&**user),
            _ => None,
        })
    }

    /// The stored users who are changed or removed.
    pub(super) fn users_before(&self) -> impl Iterator<Item = &User> {
        self.writes.iter().filter_map(|write| match &write.before {
            Some(StoredRecord::User(user)) => Some(&**user),
            _ => None,
        })
    }

    /// The records that the operator changes, as the audit log names them.
    pub(super) fn audited(&self) -> Vec<RecordName> {
        let audited = self.writes.iter().filter(|write| write.is_audited);
        let records = audited.filter_map(|write| write.after.as_ref().or(write.before.as_ref()));
        records.map(StoredRecord::lasting_name).collect()
    }

    /// Makes the writes. Names are removed before others are added, so that one user may get the name of another.
    pub(super) fn execute(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        for write in &self.writes {
            match (&write.before, &write.after) {
                (Some(before), None) => before.remove(tx, self.now)?,
                (Some(StoredRecord::User(before)), Some(StoredRecord::User(after))) => {
                    invitations::end_of_lost_names(tx, before, Some(after), self.now)?;
                    login_names::release(tx, before, after)?;
                }
                _ => {}
            }
        }
        let mut put = self.writes.iter().filter_map(|write| write.after.as_ref());
        put.try_for_each(|record| record.put(tx))
    }
}

fn differences(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<FieldChange> {
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let names = after.keys().chain(removed);
    let changed = names.filter(|name| before.get(*name) != after.get(*name));
    let changes = changed.map(|name| FieldChange {
        name: name.clone(),
        before: before.get(name).map(|value| shown(name, value)),
        after: after.get(name).map(|value| shown(name, value)),
        secret: None,
    });
    changes.collect()
}

/// A value as the plan shows it: of a logo, its size and its version.
fn shown(name: &str, value: &Value) -> Value {
    match value.as_str() {
        Some(data) if name == "logo" => {
            let version = Logo::version_of(data);
            format!("{} bytes of base64, version {version}", data.len()).into()
        }
        _ => value.clone(),
    }
}
