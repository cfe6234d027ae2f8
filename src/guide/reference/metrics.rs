//! All metrics.

use super::{code, codes, meanings, table};
use crate::observe::metrics::{RefusalReason, descriptions};

const INTRODUCTION: &str = "\
`metrics.listen` serves these metrics at `/metrics`, as text for Prometheus. [Watch it](../watch-it.md) says how to collect them and when to raise an alert.

A metric whose value is not known is left out, unless its text names another value. No metric takes longer in a larger database.

";

const REASONS: &str = "\
## Reasons of `idsvc_refusals_total`

The number is the status of the answer.

";

pub(super) fn text() -> String {
    let rows = descriptions().map(|metric| {
        [
            code(&metric.exposed_name()),
            metric.kind.as_str().to_owned(),
            codes(metric.labels.iter().copied()),
            metric.help.to_owned(),
        ]
    });
    let reasons = RefusalReason::ALL.map(|reason| (reason.as_str(), reason.meaning()));
    [
        INTRODUCTION,
        &table(["metric", "type", "labels", "meaning"], rows),
        REASONS,
        &meanings(["reason", "meaning"], reasons),
    ]
    .concat()
}
