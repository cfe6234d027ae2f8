//! Which events are asked for.

use serde_json::Value;

use crate::clock::Timestamp;
use crate::observe::audit;
use crate::observe::event_files::{EventKind, time_of};

/// What an event must be like to be shown.
#[derive(Default)]
pub(super) struct Filter {
    /// The names; all if there is none.
    pub(super) names: Vec<String>,
    /// The value of any member, or one of these values.
    pub(super) about: Option<Vec<String>>,
    /// The uuid of the user.
    pub(super) user: Option<String>,
    /// The identifier of the client.
    pub(super) client: Option<String>,
    /// The first second.
    pub(super) since: Option<Timestamp>,
    /// The last second.
    pub(super) until: Option<Timestamp>,
}

pub(super) enum Line {
    /// An event that is asked for.
    Event(Timestamp, Value),
    /// An event that is not asked for.
    Other,
    /// No event.
    Broken,
}

impl Filter {
    /// Whether events of this kind are asked for.
    pub(super) fn includes(&self, kind: EventKind) -> bool {
        let is_of_kind = |name: &String| match kind {
            EventKind::Security => !audit::is_routine(name),
            EventKind::Routine => audit::is_routine(name),
        };
        self.names.is_empty() || self.names.iter().any(is_of_kind)
    }

    /// Whether events of this time are asked for.
    fn includes_time(&self, time: Timestamp) -> bool {
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time <= until)
    }

    pub(super) fn read(&self, line: &[u8]) -> Line {
        // Most lines are left out by their time.
        if time_of(line).is_some_and(|time| !self.includes_time(time)) {
            return Line::Other;
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(event) => match event.get("time").and_then(Value::as_u64) {
                Some(time) if self.matches(&event) => Line::Event(Timestamp::from_seconds(time), event),
                Some(_) => Line::Other,
                None => Line::Broken,
            },
            Err(_) => Line::Broken,
        }
    }

    fn matches(&self, event: &Value) -> bool {
        let member = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_named = self.names.is_empty() || self.names.iter().any(|name| name == member("event"));
        let is_about = self.about.as_ref().is_none_or(|about| {
            let mut members = event.as_object().into_iter().flat_map(|members| members.values());
            members.any(|value| about.iter().any(|text| value.as_str() == Some(text)))
        });
        let is_of_user = self.user.as_ref().is_none_or(|user| {
            ["user", "subject", "anonymous"]
                .iter()
                .any(|name| member(name) == user)
        });
        let is_of_client = self.client.as_ref().is_none_or(|client| {
            let is_administered = member("command").starts_with("client ") || member("kind") == "client";
            member("client_id") == client || (is_administered && member("subject") == client)
        });
        is_named && is_about && is_of_user && is_of_client
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_of_the_user_and_the_client_that_it_names_in_any_role() {
        let of = |member: &str, event: &Value| {
            let wanted = Some("web".to_owned());
            let filter = match member {
                "user" => Filter {
                    user: wanted,
                    ..Filter::default()
                },
                _ => Filter {
                    client: wanted,
                    ..Filter::default()
                },
            };
            filter.matches(event)
        };
        for (event, of_user, of_client) in [
            (json!({"user": "web"}), true, false),
            (json!({"user": "other", "anonymous": "web"}), true, false),
            (json!({"client_id": "web"}), false, true),
            (json!({"command": "client add", "subject": "web"}), true, true),
            (
                json!({"command": "apply", "kind": "client", "subject": "web"}),
                true,
                true,
            ),
            (json!({"command": "provider add", "subject": "web"}), true, false),
            (json!({"provider": "web"}), false, false),
        ] {
            assert_eq!(
                (of("user", &event), of("client", &event)),
                (of_user, of_client),
                "{event}"
            );
        }
    }

    #[test]
    fn a_line_that_is_no_event_is_broken_and_one_of_another_time_is_not_asked_for() {
        let second = Timestamp::from_seconds;
        let filter = Filter {
            since: Some(second(10)),
            until: Some(second(20)),
            ..Filter::default()
        };
        for (time, is_asked_for) in [(9, false), (10, true), (20, true), (21, false)] {
            let line = format!("{{\"time\":{time},\"event\":\"signed_in\"}}\n");
            let read = filter.read(line.as_bytes());
            assert_eq!(matches!(read, Line::Event(..)), is_asked_for, "{time}");
            assert!(!matches!(read, Line::Broken));
        }
        for broken in [
            "\n",
            "{\"time\":15,\"ev\n",
            "[]\n",
            "{\"event\":\"signed_in\"}\n",
            "\0\0\n",
        ] {
            assert!(matches!(filter.read(broken.as_bytes()), Line::Broken), "{broken}");
        }
    }
}
