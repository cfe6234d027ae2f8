//! Checks the nodes that share a database, and their server.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::finding::Finding;
use crate::store::ServerWarning;
use crate::store::records::NodeDigests;

const SAME_SETTINGS: &str = "give all nodes the same settings, and restart those that you change";
const SAME_THEMES: &str = "copy the folder of themes to all nodes; they read it again by themselves";

/// The names of the nodes that have the same value; `None` if they have none.
type NodesByValue<'a> = BTreeMap<Option<Uuid>, Vec<&'a str>>;

/// A setting of the server, or a right, that should be changed.
pub(super) fn server_finding(warning: ServerWarning) -> Finding {
    let ServerWarning {
        setting,
        message,
        remedy,
        is_fault,
    } = warning;
    if is_fault {
        Finding::mend("database", setting, message, remedy)
    } else {
        Finding::advice("database", setting, message, remedy)
    }
}

/// Why the node can do nothing for users.
pub(super) fn outage_finding(outage: &str, is_running: bool) -> Finding {
    let message = if is_running {
        format!("the service answers 503: {outage}")
    } else {
        outage.to_owned()
    };
    let remedy = "idsvc help run-several-nodes says under 'Watch it' what to do";
    Finding::mend("database", "readiness", message, remedy)
}

/// Compares what the nodes have.
pub(super) fn examine(nodes: &BTreeMap<String, NodeDigests>) -> Vec<Finding> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let keys: BTreeSet<&String> = nodes.values().flat_map(|node| node.settings.keys()).collect();
    let mut findings = Vec::new();
    for key in keys {
        let values = by_value(nodes, |node| node.settings.get(key).copied());
        findings.extend(difference(key, &values, SAME_SETTINGS));
    }
    let themes = by_value(nodes, |node| Some(node.themes));
    findings.extend(difference("themes", &themes, SAME_THEMES));
    if findings.is_empty() {
        let message = format!("the settings and themes of {} are the same", list(nodes.keys()));
        findings.push(Finding::good("nodes", "settings", message));
    }
    findings
}

fn by_value(
    nodes: &BTreeMap<String, NodeDigests>,
    value: impl Fn(&NodeDigests) -> Option<Uuid>,
) -> NodesByValue<'_> {
    let mut values = NodesByValue::new();
    for (name, node) in nodes {
        values.entry(value(node)).or_default().push(name);
    }
    values
}

/// The finding, if the nodes have several values.
fn difference(what: &str, values: &NodesByValue<'_>, remedy: &str) -> Option<Finding> {
    let mut groups: Vec<_> = values.values().collect();
    // The nodes that differ from most come first.
    groups.sort_by_key(|names| names.len());
    let (few, others) = groups.split_first().filter(|(_, others)| !others.is_empty())?;
    let others = others.iter().flat_map(|names| names.iter());
    let message = format!("not the same on {} and on {}", list(few.iter()), list(others));
    Some(Finding::advice("nodes", what, message, remedy))
}

fn list<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    let names: Vec<_> = names.map(|name| name.as_ref().to_owned()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::clock::EARLIEST;

    fn node(sign_up: Option<u128>, themes: u128) -> NodeDigests {
        let sign_up = sign_up.map(|value| ("accounts.sign_up".to_owned(), Uuid::from_u128(value)));
        NodeDigests {
            at: EARLIEST,
            settings: sign_up.into_iter().collect(),
            themes: Uuid::from_u128(themes),
        }
    }

    fn found(nodes: [NodeDigests; 3]) -> Vec<Finding> {
        let names = ["a", "b", "c"].map(str::to_owned);
        examine(&names.into_iter().zip(nodes).collect())
    }

    #[test]
    fn the_setting_and_the_nodes_that_differ_are_named() {
        let differ = found([node(Some(1), 5), node(None, 5), node(Some(1), 5)]);
        assert_eq!(differ.len(), 1);
        assert_eq!(
            (differ[0].subject.as_str(), differ[0].message.as_str()),
            ("accounts.sign_up", "not the same on b and on a, c")
        );
        let themes = found([node(Some(1), 5), node(Some(1), 5), node(Some(1), 6)]);
        assert_eq!(themes[0].message, "not the same on c and on a, b");
        let same = found([(); 3].map(|()| node(Some(1), 5)));
        assert_eq!((same.len(), same[0].level), (1, Level::Good));
        assert!(examine(&BTreeMap::new()).is_empty());
    }
}
