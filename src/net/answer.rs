//! The body of a response: its length, and whether the peer takes it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::activity::Sending;

/// The bytes that are handed to hyper at once on HTTP/2. This module does not see whether the peer has taken them.
const PIECE: usize = 4096;

/// The body of a response. On HTTP/2, hyper asks for the next piece when the peer has made room for the one before (RFC
/// 9113 section 5.2), and drops the body after the last one. [`Sending`] measures how long the peer takes for a piece.
pub struct ResponseBody {
    body: Full<Bytes>,
    /// The rest of the body, after its first piece was sent.
    rest: Bytes,
    sending: Option<Sending>,
}

impl Body for ResponseBody {
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
        let max = match &self.sending {
            Some(sending) => {
                sending.restart_timer();
                PIECE
            }
            None => usize::MAX,
        };
        let length = self.rest.len().min(max);
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

/// Sets `Content-Length`, and removes the body from the response to HEAD (RFC 9110 section 9.3.2). hyper removes it on
/// HTTP/1 only, and sets no length for an empty body on HTTP/2. `sending` is called if there is a body to send.
pub fn prepare(
    response: Response<Full<Bytes>>,
    is_head: bool,
    sending: impl FnOnce() -> Option<Sending>,
) -> Response<ResponseBody> {
    let (mut head, mut body) = response.into_parts();
    let has_length = !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let Some(length) = body.size_hint().exact()
        && has_length
    {
        head.headers.insert(CONTENT_LENGTH, length.into());
    }
    if is_head {
        body = Full::default();
    }
    let sending = if body.is_end_stream() { None } else { sending() };
    let rest = Bytes::new();
    Response::from_parts(head, ResponseBody { body, rest, sending })
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::net::activity::{Activity, Overdue, Timeouts};

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_hours(1);

    fn waiting(idle: Duration, sending: Duration) -> Timeouts {
        Timeouts {
            reading: LONG,
            idle,
            sending,
        }
    }

    fn next(body: &mut ResponseBody) -> Option<Bytes> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(body).poll_frame(&mut context) {
            Poll::Ready(frame) => frame.map(|frame| frame.unwrap().into_data().unwrap()),
            Poll::Pending => panic!("a body in memory is there"),
        }
    }

    fn body(content: &Bytes, sending: Option<Sending>) -> ResponseBody {
        let response = Response::new(Full::new(content.clone()));
        prepare(response, false, || sending).into_body()
    }

    #[tokio::test]
    async fn an_answer_waits_for_its_peer_until_it_is_dropped() {
        let content: Bytes = (0..=u8::MAX).cycle().take(2 * PIECE + 1).collect();
        let activity = Activity::new();
        drop(activity.serving());
        let mut one = body(&content, Some(activity.sending()));
        let mut taken = Vec::new();
        for left in [content.len(), PIECE + 1, 1, 0] {
            assert_eq!(one.size_hint().exact(), Some(left as u64));
            assert_eq!(one.is_end_stream(), left == 0);
            assert_eq!(activity.overdue(waiting(LONG, SHORT)).await, Overdue::Sending);
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
            body(&content, Some(activity.sending())),
            body(&content, Some(activity.sending())),
        );
        drop(other);
        assert_eq!(activity.overdue(waiting(LONG, SHORT)).await, Overdue::Sending);
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
        let counted = || -> Option<Sending> { panic!("there is nothing to send") };
        let empty = prepare(Response::new(Full::default()), false, counted);
        assert!(empty.body().is_end_stream());
        let head = prepare(Response::new(Full::from("abc")), true, counted);
        assert_eq!(head.headers()[CONTENT_LENGTH], "3");
        assert!(head.body().is_end_stream());
    }
}
