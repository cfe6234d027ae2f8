//! What becomes of connections and requests when the service stops.

use super::*;

#[tokio::test]
async fn stopping_finishes_the_request_under_way_and_takes_no_more() {
    let server = Server::start(Limits::default(), None).await;
    let mut busy = server.plain().await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    in_time(server.slow.begun.notified()).await;
    let mut idle = server.plain().await;
    ask(&mut idle, GET, "from 127.0.0.1").await;

    server.stop.send(()).unwrap();
    assert_eq!(rest(&mut idle).await, "");
    assert!(TcpStream::connect(server.address).await.is_err());
    assert!(!server.task.is_finished());
    server.slow.go_on.notify_one();
    let text = rest(&mut busy).await;
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("slow"),
        "{text}"
    );
    in_time(server.task).await.unwrap();
}

#[tokio::test]
async fn a_request_that_was_on_its_way_when_the_service_stopped_is_answered_as_the_last_of_its_connection() {
    let server = Server::start(Limits::default(), None).await;
    let (mut kept, mut new) = (server.plain().await, server.plain().await);
    let first = ask(&mut kept, GET, "from 127.0.0.1").await;
    assert!(!first.contains("connection: close"), "{first}");
    server.stop.send(()).unwrap();
    in_time(async { while TcpStream::connect(server.address).await.is_ok() {} }).await;
    for peer in [&mut kept, &mut new] {
        let last = ask(peer, GET, "from 127.0.0.1").await;
        assert!(last.contains("connection: close\r\n"), "{last}");
        assert_eq!(rest(peer).await, "");
    }
    in_time(server.task).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_waits_in_the_queue_when_the_service_stops_is_served() {
    let limits = Limits {
        max_connections: 2,
        max_connections_per_address: usize::MAX,
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    let mut first = server.plain().await;
    ask(&mut first, GET, "from 127.0.0.1").await;
    let listener = server.address;
    // On one thread the service does not run between the two.
    let waiting = std::net::TcpStream::connect(listener).unwrap();
    server.stop.send(()).unwrap();
    waiting.set_nonblocking(true).unwrap();
    let mut waiting = TcpStream::from_std(waiting).unwrap();
    let last = ask(&mut waiting, GET, "from 127.0.0.1").await;
    assert!(last.starts_with("HTTP/1.1 200 OK\r\n"), "{last}");
    in_time(server.task).await.unwrap();
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_handshake_or_for_a_request_without_end() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let limits = Limits {
        drain_timeout: SHORT,
        idle_timeout: SHORT * 5,
        ..Limits::default()
    };
    let server = Server::start(limits, Some(acceptor)).await;
    let _silent = server.plain().await;
    let _unfinished = secured(&server, &certificate, &[HTTP_2]).await.unwrap();
    let mut endless = secured(&server, &certificate, &[HTTP_1_1]).await.unwrap();
    endless
        .write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    in_time(server.slow.begun.notified()).await;
    server.stop.send(()).unwrap();
    in_time(server.task).await.unwrap();
    assert_eq!(rest(&mut endless).await, "");
}
