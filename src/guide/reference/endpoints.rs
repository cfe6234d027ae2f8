//! All endpoints and pages of the service.

use super::{code, codes, table};
use crate::route::{Caller, Cors, DISCOVERED, Route};

const INTRODUCTION: &str = "\
The paths are below `base_url`. Any other path is answered with 404, and any other method with 405. `/metrics` is at `metrics.listen`, along with `/healthz` and `/readyz`.

";

pub(super) fn text() -> String {
    let rows = Route::all().into_iter().map(|route| {
        let member = DISCOVERED.iter().find(|(_, known)| *known == route);
        [
            code(&route.path()),
            route
                .methods()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            route.purpose().to_owned(),
            route.caller().as_str().to_owned(),
            route.cors().as_str().to_owned(),
            codes(member.map(|(member, _)| *member)),
        ]
    });
    let head = [
        "path",
        "methods",
        "what for",
        "who authenticates",
        "CORS",
        "in the discovery document",
    ];
    let callers = Caller::ALL.map(|caller| [caller.as_str(), caller.meaning()].map(str::to_owned));
    let cors = Cors::ALL.map(|cors| [cors.as_str(), cors.meaning()].map(str::to_owned));
    [
        INTRODUCTION,
        &table(head, rows),
        "## Who authenticates\n\n",
        &table(["word", "meaning"], callers),
        "## CORS\n\nNo answer lets scripts of other origins send cookies.\n\n",
        &table(["word", "who may read the answer"], cors),
    ]
    .concat()
}
