//! A machine whose kernel has no IPv6.

use super::harness::port::free_port;
use super::harness::process::Service;
use super::shim::{Fault, Faults};

#[test]
fn a_service_on_all_addresses_answers_ipv4_where_there_is_no_ipv6() {
    let faults = Faults::none();
    faults.set(Fault::NoIpv6, 1);
    for others in ["", "0.0.0.0", "127.0.0.1"] {
        let service = Service::new();
        let port = service.port;
        let mut listen = format!("[::]:{port}");
        if !others.is_empty() {
            listen = format!("{listen},{others}:{port}");
        }
        let service = faults
            .over(service)
            .with("IDSVC_LISTEN", &listen)
            .with("IDSVC_METRICS_LISTEN", &format!("[::]:{}", free_port()))
            .with("IDSVC_TRUSTED_PROXIES", "192.0.2.1/32");
        let _running = service.serve();
        let log = service.log();
        assert!(log.contains("this machine has no IPv6"), "{listen}: {log}");
        let asked = service.run(&["health"]);
        assert!(asked.status.success(), "{listen}: {asked:?}");
    }
}

#[test]
fn one_address_of_ipv6_is_refused_where_there_is_no_ipv6() {
    let faults = Faults::none();
    faults.set(Fault::NoIpv6, 1);
    let service = Service::new();
    let listen = format!("[::1]:{}", service.port);
    let service = faults.over(service).with("IDSVC_LISTEN", &listen);
    super::refused_in_one_sentence(&service, &["serve"], &listen);
}
