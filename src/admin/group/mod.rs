//! Groups of users.

mod add;
mod list;
mod remove;
mod show;
mod update;

pub use self::add::AddGroup;
pub use self::list::ListGroups;
pub use self::remove::RemoveGroup;
pub use self::show::ShowGroup;
pub use self::update::UpdateGroup;
use super::api::apis_with_role_group;
use super::client::clients_of_group;
use super::named::{MAX_NAME_BYTES, NamedKind};
use super::{AdminTxError, all_or_none, check_text};
use crate::oauth::fields::Form;
use crate::oauth::named::NamedRecord;
use crate::oauth::{Fault, FaultCode, GroupFields, GroupMetadata};
use crate::store::engine::Snapshot;
use crate::store::table::Table;
use crate::store::tables::GROUPS;
use crate::text;

impl NamedKind for GroupMetadata {
    const KIND: &'static str = "group";
    const TABLE: Table<String, NamedRecord<Self>> = GROUPS;
    const FIELDS: &'static [(&'static str, Form)] = GroupFields::FIELDS;
    type Fields = GroupFields;

    fn apply(&mut self, change: GroupFields, faults: &mut Vec<Fault>) {
        change.apply(self, faults);
    }

    fn check_name(name: &str, faults: &mut Vec<Fault>) {
        check_text(faults, "name", name);
        if name.trim() != name || name.len() > MAX_NAME_BYTES {
            let detail = format!(
                "group {name:?}: use up to {MAX_NAME_BYTES} bytes, without a space at the start or end"
            );
            faults.push(FaultCode::Invalid.at(["name"], detail));
        }
    }

    fn form(name: &str) -> String {
        text::caseless(name)
    }

    fn check(&self, _: &mut Vec<Fault>) {}

    fn check_removal(snapshot: &dyn Snapshot, name: &str) -> Result<(), AdminTxError> {
        let mut faults = Vec::new();
        let apis = apis_with_role_group(snapshot, name)?;
        if !apis.is_empty() {
            let detail = format!("the users of group {name} have roles in api {}", apis.join(", "));
            faults.push(FaultCode::InUse.of(Self::KIND, name, detail));
        }
        let clients = clients_of_group(snapshot, name)?;
        if !clients.is_empty() {
            let detail = format!("group {name} is named by client {}", clients.join(", "));
            let fault = FaultCode::InUse.at(["allowed_groups"], detail);
            faults.push(fault.about(Self::KIND, name));
        }
        Ok(all_or_none(faults)?)
    }
}
