//! How lost refreshes are repeated, and how long anonymous users are kept.

use std::time::Duration;

use super::form::Time;
use super::setting::{Literal, Setting};

pub(super) const SETTINGS: &[&Setting] = &[&RETRY_WINDOW, &ANONYMOUS_RETENTION];

pub(super) static RETRY_WINDOW: Setting<Time> = Setting {
    key: "refresh.retry_window",
    doc: "How long a replaced refresh token stays good for a retry, until its successor is used. A retry gets that successor again.",
    default: Some(Literal::Text("120s")),
    example: Literal::Text("120s"),
    value_name: "TIME",
    help: Some("How long a replaced refresh token is good for a retry"),
    form: Time::any(),
};

pub(super) static ANONYMOUS_RETENTION: Setting<Time> = Setting {
    key: "anonymous.retention",
    doc: "How long an anonymous user is kept after the last refresh token has ended.",
    default: Some(Literal::Text("180d")),
    example: Literal::Text("365d"),
    value_name: "TIME",
    help: Some("How long abandoned anonymous users are kept"),
    form: Time::at_least(Duration::from_secs(1)),
};
