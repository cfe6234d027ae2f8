//! All events.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::section;
use crate::observe::audit::{EVENTS, EventDescription, is_routine};

const INTRODUCTION: &str = "\
The service keeps events in `events/` of the data directory, one JSON object a line. `idsvc events` shows them: see [See what happened](../look-into-events.md).

Every event has `time`, in seconds since 1970, and `event`, its name. Members may be added; those named here stay. A security event is in the log too. A routine event is in the log with `log.level = \"debug\"`.

";

pub(super) fn text() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut by_name: BTreeMap<&str, Vec<&EventDescription>> = BTreeMap::new();
    for event in EVENTS {
        by_name.entry(event.name).or_default().push(event);
    }
    for (name, events) in by_name {
        let Some(first) = events.first() else { continue };
        let kind = if is_routine(name) { "Routine" } else { "Security" };
        let log = match first.level {
            "" => "not in the log".to_owned(),
            level => format!("log level `{level}`"),
        };
        section(
            &mut text,
            2,
            name,
            &format!("{}\n\n{kind} event, {log}.", first.meaning),
        );
        // Several events may share a name, such as the changes by administrators.
        let mut known = Vec::new();
        for (member, meaning) in events.iter().flat_map(|event| event.members) {
            if !known.contains(member) {
                known.push(*member);
                // Writing to a string does not fail.
                let _ = writeln!(text, "- `{member}`: {meaning}");
            }
        }
        text.push('\n');
    }
    text
}
