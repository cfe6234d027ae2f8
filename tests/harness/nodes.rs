//! Several nodes of the executable on one PostgreSQL database.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, Instant};

use super::port::free_port;
use super::process::{Running, Service, said};

/// A node for each of these addresses of one empty database, which is set up. All have the same settings and master
/// key.
pub(crate) fn set_up(urls: &[&str], settings: &[(&'static str, &str)]) -> Vec<Service> {
    let mut nodes: Vec<Service> = Vec::new();
    for url in urls {
        let mut node = Service::empty();
        // A node that was killed gets its port back.
        node.port = free_port();
        let base_url = nodes.first().map_or_else(|| node.issuer(), Service::issuer);
        node = node
            .with("IDSVC_BASE_URL", &base_url)
            .with("IDSVC_STORE_URL", url);
        nodes.push(
            settings
                .iter()
                .fold(node, |node, (name, value)| node.with(name, value)),
        );
    }
    for words in [["init"], ["migrate"]] {
        let done = nodes[0].run(&words);
        assert!(done.status.success(), "{}", said(&done));
    }
    let key = nodes[0].folder.path().join("data/master.key");
    for node in &nodes[1..] {
        let data = node.data();
        DirBuilder::new().mode(0o700).create(&data).unwrap();
        fs::copy(&key, data.join("master.key")).unwrap();
    }
    nodes
}

/// Starts all nodes and waits until they answer.
pub(crate) fn serve(nodes: &[Service]) -> Vec<Running<'_>> {
    let launched: Vec<_> = nodes.iter().map(Service::launch).collect();
    launched.into_iter().map(Running::answering).collect()
}

/// Waits until something is so, at most a minute. It is asked again without a pause.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "it never was");
        std::thread::yield_now();
    }
}
