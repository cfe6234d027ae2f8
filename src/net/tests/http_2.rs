//! HTTP/2: frames, idle connections and answers that nobody takes.

use super::*;

/// No setting is another than usual (RFC 9113 section 6.5).
const USUAL: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// An HTTP/2 connection that has sent its preface, these settings and `GET path` on stream 1.
async fn http_2(
    server: &Server,
    certificate: &CertificateDer<'static>,
    settings: &[u8],
    path: &str,
) -> TlsStream<TcpStream> {
    let mut peer = secured(server, certificate, &[HTTP_2]).await.unwrap();
    let bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings, &get_on(1, path)].concat();
    peer.write_all(&bytes).await.unwrap();
    peer
}

/// `GET path` on that stream.
fn get_on(stream: u8, path: &str) -> Vec<u8> {
    // HPACK (RFC 7541 appendix A): GET, https, a literal path (name 4) and a literal authority (name 1).
    let mut block = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x01\x09localhost");
    let length = u8::try_from(block.len()).unwrap();
    [&[0, 0, length, HEADERS, 0x05, 0, 0, 0, stream], block.as_slice()].concat()
}

#[tokio::test]
async fn http_2_requests_are_answered_and_an_idle_connection_is_told_to_go_away() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let limits = Limits {
        idle_timeout: Duration::from_secs(3),
        ..Limits::default()
    };
    let server = Server::start(limits, Some(acceptor)).await;
    let mut peer = http_2(&server, &certificate, USUAL, "/").await;
    assert_eq!(frame_of(&mut peer, DATA).await, b"tls=true from 127.0.0.1");
    frame_of(&mut peer, GOAWAY).await;
    rest(&mut peer).await;
}

/// Answers that a peer leaves no window for, however often it asks (RFC 9113 section 6.9).
#[tokio::test]
async fn who_asks_on_and_leaves_no_window_for_the_answers_is_cut_off() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let limits = Limits {
        idle_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let server = Server::start(limits, Some(acceptor)).await;
    let no_window = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
    let peer = http_2(&server, &certificate, no_window, "/").await;
    let (mut reader, mut writer) = tokio::io::split(peer);
    let asking = async {
        let mut times = tokio::time::interval(Duration::from_millis(100));
        for stream in (3..=63).step_by(2) {
            times.tick().await;
            let _ = writer.write_all(&get_on(stream, "/")).await;
            let _ = writer.flush().await;
        }
    };
    tokio::select! {
        _ = rest(&mut reader) => {}
        () = asking => panic!("as many answers as may wait do wait"),
    }
}

#[tokio::test]
async fn a_panic_on_http_2_ends_one_stream() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let server = Server::start(Limits::default(), Some(acceptor)).await;
    let mut peer = http_2(&server, &certificate, USUAL, "/panic").await;
    let headers = frame_of(&mut peer, HEADERS).await;
    // An indexed field (RFC 7541 section 6.1): entry 14 of the static table is `:status 500`.
    assert_eq!(headers[0], 0x8e);
}

#[tokio::test]
async fn stopping_finishes_an_http_2_request_under_way() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let limits = Limits {
        idle_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::start(limits, Some(acceptor)).await;
    let mut peer = http_2(&server, &certificate, USUAL, "/slow").await;
    in_time(server.slow.begun.notified()).await;
    server.stop.send(()).unwrap();
    frame_of(&mut peer, GOAWAY).await;
    server.slow.go_on.notify_one();
    assert_eq!(frame_of(&mut peer, DATA).await, b"slow");
    in_time(server.task).await.unwrap();
}
