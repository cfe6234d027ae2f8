//! A scope as a field of a record.

use crate::oauth::fault::{Fault, FaultCode};
use crate::oauth::fields::{Field, Form, in_words};
use crate::oauth::list_edits::{ListEdits, edit_list};
use crate::oauth::scope::Scope;

/// A text may contain several values, separated by spaces.
impl Field for Scope {
    type Change = Vec<String>;
    const FORM: Form = Form::Texts;

    fn change(&mut self, to: Vec<String>, name: &str, faults: &mut Vec<Fault>) {
        *self = to.join(" ").parse().unwrap_or_else(|error| {
            faults.push(FaultCode::Invalid.at([name], format!("{}: {error}", in_words(name))));
            Self::empty()
        });
        for marker in self.iter().filter(|value| Self::is_marker(value)) {
            let detail = format!("{marker} is granted by the service and cannot be registered");
            faults.push(FaultCode::NotAllowed.at([name], detail));
        }
    }

    fn edited(
        &self,
        edits: ListEdits<Option<Vec<String>>>,
        name: &str,
        faults: &mut Vec<Fault>,
    ) -> Option<Vec<String>> {
        let values = |texts: Vec<String>| {
            let values = texts.iter().flat_map(|text| text.split(' '));
            values
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let edits = ListEdits {
            add: edits.add.map(values),
            remove: edits.remove.map(values),
        };
        let stored = self.iter().map(str::to_owned);
        Some(edit_list(stored, edits, name, faults))
    }
}

/// An empty scope removes the value.
impl Field for Option<Scope> {
    type Change = Vec<String>;
    const FORM: Form = Form::Texts;

    fn change(&mut self, to: Vec<String>, name: &str, faults: &mut Vec<Fault>) {
        let mut scope = Scope::empty();
        scope.change(to, name, faults);
        *self = Some(scope).filter(|scope| !scope.is_empty());
    }

    fn edited(
        &self,
        edits: ListEdits<Option<Vec<String>>>,
        name: &str,
        faults: &mut Vec<Fault>,
    ) -> Option<Vec<String>> {
        self.clone().unwrap_or_default().edited(edits, name, faults)
    }
}
