//! Scope values that the operator registers. They release claims of users.

mod add;
mod list;
mod remove;
mod show;
mod update;

pub use self::add::AddScope;
pub use self::list::ListScopes;
pub use self::remove::RemoveScope;
pub use self::show::ShowScope;
pub use self::update::UpdateScope;
use super::claim::may_be_released;
use super::named::{MAX_NAME_BYTES, NamedKind};
use crate::oauth::fields::Form;
use crate::oauth::named::NamedRecord;
use crate::oauth::{Fault, FaultCode, Scope, ScopeFields, ScopeMetadata};
use crate::store::table::Table;
use crate::store::tables::SCOPES;

/// The most claims of one scope value.
const MAX_CLAIMS: usize = 100;

impl NamedKind for ScopeMetadata {
    const KIND: &'static str = "scope";
    const TABLE: Table<String, NamedRecord<Self>> = SCOPES;
    const FIELDS: &'static [(&'static str, Form)] = ScopeFields::FIELDS;
    type Fields = ScopeFields;

    fn apply(&mut self, change: ScopeFields, faults: &mut Vec<Fault>) {
        change.apply(self, faults);
    }

    fn check_name(name: &str, faults: &mut Vec<Fault>) {
        let is_one_value = Scope::of([name]).is_ok() && name.len() <= MAX_NAME_BYTES;
        if !is_one_value {
            let detail = format!(
                "scope {name:?}: use up to {MAX_NAME_BYTES} printable ASCII characters, without spaces, quotes or backslashes"
            );
            faults.push(FaultCode::Invalid.at(["name"], detail));
        }
        if Scope::is_built_in(name) {
            let detail = format!("the value {name} has a meaning of its own, which cannot be changed");
            faults.push(FaultCode::Invalid.at(["name"], detail));
        }
    }

    fn check(&self, faults: &mut Vec<Fault>) {
        if self.claims.len() > MAX_CLAIMS {
            let detail = format!("there are more than {MAX_CLAIMS} claims");
            faults.push(FaultCode::TooMany.at(["claims"], detail));
        }
        for claim in self.claims.iter().filter(|claim| !may_be_released(claim)) {
            let detail = format!("claim {claim:?} is not a claim of a user, or belongs to the service");
            faults.push(FaultCode::Invalid.at(["claims"], detail));
        }
    }
}
