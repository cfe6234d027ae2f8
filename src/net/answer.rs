//! An answer on its way: whether the peer takes it, and how long it is.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::activity::Untaken;

/// How much of an answer is handed over at once where the peer decides how much it takes: so much is out of sight.
const PIECE: usize = 4096;

/// The body of an answer. On HTTP/2 it is asked for the next piece when the peer has made room for the one before (RFC 9113
/// section 5.2), and dropped when that is so of the last one; the connection knows for how long nothing of that has
/// happened.
pub struct Answered {
    body: Full<Bytes>,
    /// What is left of the body, once a part of it has gone.
    rest: Bytes,
    untaken: Option<Untaken>,
}

impl Answered {
    fn new(body: Full<Bytes>, untaken: Option<Untaken>) -> Self {
        let rest = Bytes::new();
        Self { body, rest, untaken }
    }
}

impl Body for Answered {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            let Some(Ok(frame)) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            self.rest = frame.into_data().unwrap_or_default();
        }
        let most = match &self.untaken {
            Some(untaken) => {
                untaken.count_anew();
                PIECE
            }
            None => usize::MAX,
        };
        let length = self.rest.len().min(most);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.body.size_hint().lower();
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        SizeHint::with_exact(left.saturating_add(rest))
    }
}

/// Says how long the body is, and takes it away where only the header was asked for: HEAD is told what GET would be
/// (RFC 9110 section 9.3.2). hyper takes it away on HTTP/1 alone, and says nothing of the length of an empty one on HTTP/2.
/// What is left of it waits for the peer, where `untaken` counts that.
pub fn frame(
    response: Response<Full<Bytes>>,
    is_head: bool,
    untaken: impl FnOnce() -> Option<Untaken>,
) -> Response<Answered> {
    let (mut head, mut body) = response.into_parts();
    let has_length = !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(length) = body.size_hint().exact().filter(|_| has_length) {
        head.headers.insert(CONTENT_LENGTH, length.into());
    }
    if is_head {
        body = Full::default();
    }
    let untaken = if body.is_end_stream() { None } else { untaken() };
    Response::from_parts(head, Answered::new(body, untaken))
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::net::activity::{Activity, Overdue, Timeouts};

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_hours(1);

    fn waiting(idle: Duration, untaken: Duration) -> Timeouts {
        Timeouts {
            reading: LONG,
            idle,
            untaken,
        }
    }

    fn next(body: &mut Answered) -> Option<Bytes> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(body).poll_frame(&mut context) {
            Poll::Ready(frame) => frame.map(|frame| frame.unwrap().into_data().unwrap()),
            Poll::Pending => panic!("a body in memory is there"),
        }
    }

    fn body(content: &Bytes, untaken: Option<Untaken>) -> Answered {
        let response = Response::new(Full::new(content.clone()));
        frame(response, false, || untaken).into_body()
    }

    #[tokio::test]
    async fn an_answer_waits_for_its_peer_until_it_is_dropped() {
        let content: Bytes = (0..=u8::MAX).cycle().take(2 * PIECE + 1).collect();
        let activity = Activity::new();
        drop(activity.serving());
        let mut one = body(&content, Some(activity.answered()));
        let mut taken = Vec::new();
        for left in [content.len(), PIECE + 1, 1, 0] {
            assert_eq!(one.size_hint().exact(), Some(left as u64));
            assert_eq!(one.is_end_stream(), left == 0);
            assert_eq!(activity.overdue(waiting(LONG, SHORT)).await, Overdue::Untaken);
            taken.extend(next(&mut one).unwrap_or_default());
        }
        assert_eq!(taken, content);
        drop(one);
        assert_eq!(activity.overdue(waiting(SHORT, SHORT)).await, Overdue::Idle);
    }

    #[tokio::test]
    async fn each_piece_counts_anew_and_an_answer_that_is_given_up_waits_for_nobody() {
        let activity = Activity::new();
        drop(activity.serving());
        let content = Bytes::from(vec![7; 3 * PIECE]);
        let (mut one, other) = (
            body(&content, Some(activity.answered())),
            body(&content, Some(activity.answered())),
        );
        drop(other);
        assert_eq!(activity.overdue(waiting(LONG, SHORT)).await, Overdue::Untaken);
        next(&mut one);
        let overdue = activity.overdue(waiting(LONG, LONG));
        assert!(tokio::time::timeout(SHORT, overdue).await.is_err());
    }

    #[test]
    fn on_http_1_an_answer_goes_as_a_whole() {
        let content = Bytes::from(vec![7; 3 * PIECE]);
        let mut one = body(&content, None);
        assert_eq!(next(&mut one), Some(content));
        assert!(one.is_end_stream() && next(&mut one).is_none());
    }

    #[test]
    fn what_has_no_body_waits_for_nobody() {
        let counted = || -> Option<Untaken> { panic!("there is nothing to take") };
        let empty = frame(Response::new(Full::default()), false, counted);
        assert!(empty.body().is_end_stream());
        let head = frame(Response::new(Full::from("abc")), true, counted);
        assert_eq!(head.headers()[CONTENT_LENGTH], "3");
        assert!(head.body().is_end_stream());
    }
}
