//! Changes of single members of the lists of a record.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::oauth::fault::{Fault, FaultCode};

/// The lists that restrict something only if they have a member. The last member is not removed alone: an empty list
/// would allow more.
const RESTRICTIONS: &[&str] = &["domains", "allowed_groups"];

/// What is added to lists and what is removed from them. For a whole record, `C` is its change, which names the members of
/// several lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEdits<C> {
    pub add: C,
    pub remove: C,
}

impl<C> ListEdits<Option<C>> {
    pub fn is_some(&self) -> bool {
        self.add.is_some() || self.remove.is_some()
    }
}

/// The fault of a list that is replaced and edited in one change.
pub(super) fn replaced(name: &str) -> Fault {
    let detail = format!(
        "{}: the list is replaced, so single members can neither be added nor removed",
        in_words(name)
    );
    FaultCode::NotAllowed.at([name], detail)
}

/// The list after the edits. A member that is there already is not added again. To remove one that is not there is a fault.
pub fn edit_list<T: Clone + PartialEq + Serialize>(
    stored: impl IntoIterator<Item = T>,
    edits: ListEdits<Option<Vec<T>>>,
    name: &str,
    faults: &mut Vec<Fault>,
) -> Vec<T> {
    let mut list: Vec<T> = stored.into_iter().collect();
    let before = list.clone();
    let (added, removed) = (edits.add.unwrap_or_default(), edits.remove.unwrap_or_default());
    for member in &removed {
        if !before.contains(member) {
            faults.push(not_in_list(member, &before, name));
        }
        list.retain(|other| other != member);
    }
    for member in added {
        if text_of(&member).is_empty() {
            let detail = format!("{}: an empty text cannot be added", in_words(name));
            faults.push(FaultCode::Invalid.at([name], detail));
        } else if !list.contains(&member) {
            list.push(member);
        }
    }
    if list.is_empty() && !before.is_empty() && RESTRICTIONS.contains(&name) {
        let detail = format!(
            "{}: this removes the last member, and an empty list restricts nothing",
            in_words(name)
        );
        faults.push(FaultCode::NotAllowed.at([name], detail));
    }
    list
}

/// The changed texts of a table after the edits: an empty text removes the one of its name. An edit that removes a name
/// with an empty text removes any text of this name.
pub(super) fn edit_texts(
    stored: &BTreeMap<String, String>,
    edits: ListEdits<Option<BTreeMap<String, String>>>,
    name: &str,
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, String> {
    let mut texts = stored.clone();
    for (key, text) in edits.remove.unwrap_or_default() {
        let is_there = stored
            .get(&key)
            .is_some_and(|known| text.is_empty() || *known == text);
        if !is_there {
            faults.push(not_in_table(&key, &text, stored.keys(), name));
        }
        texts.insert(key, String::new());
    }
    texts.extend(edits.add.unwrap_or_default());
    texts
}

/// The changed lists of a table after the edits. An edit that removes an empty text from a list removes the whole list.
pub(super) fn edit_lists(
    stored: &BTreeMap<String, BTreeSet<String>>,
    edits: ListEdits<Option<BTreeMap<String, Vec<String>>>>,
    name: &str,
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, Vec<String>> {
    let (mut added, mut removed) = (edits.add.unwrap_or_default(), edits.remove.unwrap_or_default());
    let keys: BTreeSet<String> = added.keys().chain(removed.keys()).cloned().collect();
    let mut lists = BTreeMap::new();
    for key in keys {
        let list = stored.get(&key).cloned().unwrap_or_default();
        let mut remove = removed.remove(&key).unwrap_or_default();
        if remove.iter().any(String::is_empty) {
            if list.is_empty() {
                faults.push(not_in_table(&key, "", stored.keys(), name));
            }
            remove = list.iter().cloned().collect();
        }
        let edits = ListEdits {
            add: added.remove(&key),
            remove: Some(remove),
        };
        let list = edit_list(list, edits, name, faults);
        lists.insert(key, list);
    }
    lists
}

fn not_in_list<T: Serialize>(member: &T, list: &[T], name: &str) -> Fault {
    let members: Vec<_> = list.iter().map(text_of).collect();
    let detail = format!(
        "{}: {:?} is not in the list, which {}",
        in_words(name),
        text_of(member),
        contents_of(&members)
    );
    FaultCode::NotFound.at([name], detail)
}

fn not_in_table<'a>(key: &str, text: &str, keys: impl Iterator<Item = &'a String>, name: &str) -> Fault {
    let keys: Vec<_> = keys.cloned().collect();
    let entry = if text.is_empty() {
        key.to_owned()
    } else {
        format!("{key}={text}")
    };
    let detail = format!(
        "{}: {entry:?} is not in the list, which {}",
        in_words(name),
        contents_of(&keys)
    );
    FaultCode::NotFound.at([name], detail)
}

fn contents_of(members: &[String]) -> String {
    if members.is_empty() {
        "is empty".to_owned()
    } else {
        format!("has {}", members.join(", "))
    }
}

fn in_words(name: &str) -> String {
    name.replace('_', " ")
}

/// The member as it is written in a flag.
fn text_of(member: &impl Serialize) -> String {
    match serde_json::to_value(member) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
