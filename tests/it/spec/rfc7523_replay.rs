//! RFC 7523 section 3: how long it is remembered that a provider's token was exchanged.

use idsvc::federation::id_token::TokenProblem;
use idsvc::federation::provider::Provider;
use idsvc::flow::token::jwt_bearer::REPLAYED;
use idsvc::store::tables::USED_ASSERTIONS;
use serde_json::json;

use super::rfc7523_exchange::{Scene, of_problem, scene_with};
use crate::harness::START;
use crate::harness::reply::line_of;
use crate::harness::sweep_all;

const DAY: u64 = 24 * 3600;

async fn scene() -> Scene {
    scene_with(|fields| fields.max_age = Some(Provider::LONGEST_AGE)).await
}

fn remembered(scene: &Scene) -> usize {
    let store = &scene.server.app.core.store;
    let rows = store.read_blocking(|snapshot| USED_ASSERTIONS.scan(snapshot, .., 10));
    rows.unwrap().len()
}

/// A provider chooses `exp`, and not how long this service keeps what it says.
#[tokio::test]
async fn a_use_is_remembered_for_as_long_as_the_token_may_be_exchanged() {
    for exp in [START.seconds() + 400 * DAY, 1_000_000_000_000_000_000] {
        let scene = scene().await;
        let token = scene.token(&json!({"jti": "once", "exp": exp}));
        scene.exchange(&token).await.tokens();
        scene.server.advance(7 * DAY + 30);
        sweep_all(&scene.server).await;
        assert_eq!(
            scene.exchange(&token).await.refusal(),
            line_of(&REPLAYED),
            "{exp}"
        );
        assert_eq!(remembered(&scene), 1);
        scene.server.advance(1);
        assert_eq!(
            scene.exchange(&token).await.refusal(),
            of_problem(TokenProblem::TooOld)
        );
        scene.server.advance(DAY);
        sweep_all(&scene.server).await;
        assert_eq!(remembered(&scene), 0, "{exp}");
    }
}
