//! A node that can no longer ask its database.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::fault_proxy::{Fault, FaultProxy};
use crate::harness::kiosk::{ALL_GRANTS, Kiosk, is_ready};
use crate::harness::nodes::{serve, set_up, until};
use crate::harness::postgres::Cluster;

const BODY: &str = "grant_type=client_credentials&scope=notes.read";

/// A token request without the end of its body.
fn half_asked(port: u16, kiosk: &Kiosk) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let head = format!(
        "POST /oauth2/token HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
        kiosk.authorization(),
        BODY.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&BODY.as_bytes()[..9]).unwrap();
    stream
}

fn ask_the_rest(mut stream: TcpStream) -> String {
    stream.write_all(&BODY.as_bytes()[9..]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The token needs nothing of the database, and another node may have disabled the client.
#[test]
fn a_node_that_is_cut_off_answers_no_request_whose_body_comes_late() {
    let cluster = Cluster::shared();
    let database = cluster.database("silence");
    let proxy = FaultProxy::start(cluster.port());
    let url = database.url_at(&proxy.address()) + "?sslmode=disable";
    let nodes = set_up(&[&url], &[]);
    let kiosk = Kiosk::register_as(&nodes[0], "kiosk", ALL_GRANTS);
    let running = serve(&nodes);
    let ask = || half_asked(nodes[0].port, &kiosk);
    let answer = ask_the_rest(ask());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let half = ask();
    proxy.set(Fault::DropAnswers);
    until(|| !is_ready(&running[0]));
    let answer = ask_the_rest(half);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.to_lowercase().contains("retry-after"), "{answer}");
}
