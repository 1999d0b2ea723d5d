//! The cluster's DNS server: answers UDP queries from the zone.

use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::Store;
use simple_dns::rdata::{A, PTR, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use tokio::net::UdpSocket;

use crate::zone::Zone;

/// Shorter than anything a test waits for.
const TTL: u32 = 1;

/// Answers queries for as long as it is polled.
pub(crate) async fn serve(socket: UdpSocket, services: Store<Service>, slices: Store<EndpointSlice>) {
    let socket = Arc::new(socket);
    let mut buffer = [0; 1500];
    loop {
        // Errors concern one datagram only, such as a client that closed its port.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        let zone = Zone { services: services.state(), slices: slices.state() };
        if let Some(answer) = answer(&buffer[..length], &zone) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// Returns the reply to a message; none if it is not a query.
fn answer(message: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let query = Packet::parse(message).ok()?;
    let question = query.questions.first()?;
    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE | PacketFlag::AUTHORITATIVE_ANSWER);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let name = question.qname.to_string();
    let mut push = |data| {
        let record = ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL, data);
        reply.answers.push(record);
    };
    let known = if let Some(address) = parse_reverse_name(&name) {
        let pointer = zone.name(address);
        if let Some(pointer) = pointer.as_deref()
            && question.qtype == QTYPE::TYPE(TYPE::PTR)
        {
            push(RData::PTR(PTR(Name::new(pointer).ok()?.into_owned())));
        }
        pointer.is_some()
    } else {
        let addresses = zone.addresses(&name);
        // A name without IPv6 addresses still exists: no NXDOMAIN.
        if question.qtype == QTYPE::TYPE(TYPE::A) {
            for address in addresses.iter().flatten() {
                push(RData::A(A { address: (*address).into() }));
            }
        }
        addresses.is_some()
    };
    if !known {
        *reply.rcode_mut() = RCODE::NameError;
    }
    reply.questions.push(question.clone());
    reply.build_bytes_vec_compressed().ok()
}

/// Parses the address in a name such as `1.0.2.10.in-addr.arpa`.
fn parse_reverse_name(name: &str) -> Option<Ipv4Addr> {
    let digits = name.strip_suffix(".in-addr.arpa")?;
    let forward: Vec<&str> = digits.split('.').rev().collect();
    forward.join(".").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use simple_dns::{QCLASS, Question};

    fn ask(name: &str, kind: TYPE) -> (RCODE, Vec<String>) {
        let service = json!({ "metadata": { "name": "web", "namespace": "ns" }, "spec": { "clusterIP": "10.96.1.1" } });
        let zone = Zone { services: vec![Arc::new(serde_json::from_value(service).unwrap())], slices: vec![] };
        let mut query = Packet::new_query(7);
        let question = Question::new(Name::new_unchecked(name), QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false);
        query.questions.push(question);
        let bytes = answer(&query.build_bytes_vec().unwrap(), &zone).unwrap();
        let reply = Packet::parse(&bytes).unwrap();
        let texts = reply.answers.iter().map(|record| match &record.rdata {
            RData::A(a) => Ipv4Addr::from(a.address).to_string(),
            RData::PTR(name) => name.0.to_string(),
            other => format!("{other:?}"),
        });
        (reply.rcode(), texts.collect())
    }

    #[test]
    fn queries_are_answered() {
        let texts = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        for (name, kind, code, answers) in [
            ("web.ns.svc.cluster.local", TYPE::A, RCODE::NoError, texts(&["10.96.1.1"])),
            ("web.ns.svc.cluster.local", TYPE::AAAA, RCODE::NoError, texts(&[])),
            ("other.ns.svc.cluster.local", TYPE::A, RCODE::NameError, texts(&[])),
            ("1.1.96.10.in-addr.arpa", TYPE::PTR, RCODE::NoError, texts(&["web.ns.svc.cluster.local"])),
            ("9.9.96.10.in-addr.arpa", TYPE::PTR, RCODE::NameError, texts(&[])),
        ] {
            assert_eq!(ask(name, kind), (code, answers), "{name} {kind:?}");
        }
    }
}
