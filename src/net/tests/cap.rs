//! What happens at the limit of all connections.

use tokio::net::TcpSocket;

use super::*;

/// A connection from 127.0.0.`host`.
async fn from_host(server: &Server, host: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, host), 0).into()).unwrap();
    socket.connect(server.address).await.unwrap()
}

/// No timeout of the server ends a connection.
fn patient(max_connections: usize) -> Limits {
    Limits {
        max_connections,
        handshake_timeout: Duration::from_hours(1),
        header_timeout: Duration::from_hours(1),
        idle_timeout: Duration::from_hours(1),
        ..Limits::default()
    }
}

#[tokio::test]
async fn idle_connections_from_many_addresses_keep_nobody_out() {
    const ADDRESSES: u8 = 40;
    const EACH: usize = 10;
    let server = Server::start(patient(usize::from(ADDRESSES) * EACH), None).await;
    let mut idle = Vec::new();
    for host in 2..2 + ADDRESSES {
        for number in 0..EACH {
            let mut peer = from_host(&server, host).await;
            // Some have been answered, the others are silent from the beginning.
            if number % 2 == 0 {
                ask(&mut peer, GET, &format!("from 127.0.0.{host}")).await;
            }
            idle.push(peer);
        }
    }
    for _ in 0..EACH {
        let honest = async { ask(&mut server.plain().await, GET, "from 127.0.0.1").await };
        let answered = tokio::time::timeout(Duration::from_secs(1), honest).await;
        assert!(answered.is_ok());
    }
}

#[tokio::test]
async fn the_cap_closes_the_idle_connection_of_the_largest_holder_and_no_request_in_progress() {
    let server = Server::start(patient(4), None).await;
    let mut small = from_host(&server, 2).await;
    ask(&mut small, GET, "from 127.0.0.2").await;
    let mut busy = from_host(&server, 3).await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    in_time(server.slow.begun.notified()).await;
    let mut idle = from_host(&server, 3).await;
    ask(&mut idle, GET, "from 127.0.0.3").await;
    let mut half = from_host(&server, 4).await;
    half.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let mut newcomer = server.plain().await;
    ask(&mut newcomer, GET, "from 127.0.0.1").await;
    assert_eq!(rest(&mut idle).await, "");
    ask(&mut half, b"host: a\r\n\r\n", "from 127.0.0.4").await;
    server.slow.go_on.notify_one();
    ask(&mut busy, b"", "slow").await;
    ask(&mut small, GET, "from 127.0.0.2").await;
}

#[tokio::test]
async fn if_nothing_is_idle_a_connection_waits_for_another_to_end() {
    let server = Server::start(patient(1), None).await;
    let mut first = from_host(&server, 2).await;
    first.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    tokio::time::sleep(SHORT).await;
    let mut second = server.plain().await;
    second.write_all(GET).await.unwrap();
    assert!(tokio::time::timeout(SHORT, second.read_u8()).await.is_err());
    drop(first);
    assert_eq!(in_time(second.read_u8()).await.unwrap(), b'H');
}

#[tokio::test]
async fn a_handshake_that_makes_progress_is_not_ended_for_another() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let server = Server::start(patient(2), Some(acceptor)).await;
    let mut silent = from_host(&server, 2).await;
    let mut begun = from_host(&server, 3).await;
    // The first bytes of a handshake record (RFC 8446 section 5.1).
    begun.write_all(&[22, 3, 1]).await.unwrap();
    let mut peer = secured(&server, &certificate, &[]).await.unwrap();
    ask(&mut peer, GET, "from 127.0.0.1").await;
    assert_eq!(rest(&mut silent).await, "");
    begun.write_all(&[0]).await.unwrap();
    assert!(tokio::time::timeout(SHORT, begun.read_u8()).await.is_err());
}
