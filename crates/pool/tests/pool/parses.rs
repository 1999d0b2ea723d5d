//! Parsing of glusterd's output and files.

use crate::names::name;
use proptest::prelude::*;
use stead_pool::{Brick, GlusterVolume, Identity, PeerFile, PeerState, parse};

const A: &str = "c9668ddf-8ca7-4885-8209-fb05e95d6fda";
const B: &str = "a2f60ced-35fb-425c-8e1a-a82be04b724c";

#[test]
fn the_pool_list_separates_the_queried_peer() {
    let peer = |uuid: &str, host: &str, state: u32, connected: u32| {
        format!(
            "<peer><uuid>{uuid}</uuid><hostname>{host}</hostname><hostnames/><connected>{connected}</connected>\
             <state>{state}</state><stateStr>Peer in Cluster</stateStr></peer>"
        )
    };
    let peers = peer(B, "pool-1.pool", 6, 1) + &peer(A, "localhost", 3, 1);
    let text = format!("<cliOutput><opRet>0</opRet><opErrstr/><peerStatus>{peers}</peerStatus></cliOutput>");
    let list = parse::pool_list(&text).unwrap();
    assert_eq!(list.own, Some(name(A)));
    let found: Vec<_> = list.peers.iter().map(|p| (p.uuid, p.state, p.connected)).collect();
    assert_eq!(found, [(Some(name(B)), PeerState::Rejected, true)]);
    assert_eq!(list.peers[0].hosts, ["pool-1.pool"]);
}

#[test]
fn a_failed_command_is_an_error_with_its_message() {
    let text = "<cliOutput><opRet>-1</opRet><opErrstr>Another transaction is in progress.</opErrstr></cliOutput>";
    assert_eq!(parse::peer_status(text).unwrap_err().to_string(), "peer status: Another transaction is in progress.");
    assert!(parse::peer_status("Connection failed. Please check if gluster daemon is operational.").is_err());
}

#[test]
fn volumes_and_heals() {
    let brick = format!("<brick uuid=\"{A}\">h:/b<name>h:/b</name><hostUuid>{A}</hostUuid></brick>");
    let volume = format!("<volume><name>v</name><status>1</status><bricks>{brick}</bricks></volume>");
    let text = format!(
        "<cliOutput><opRet>0</opRet><volInfo><volumes>{volume}<count>1</count></volumes></volInfo></cliOutput>"
    );
    let bricks = vec![Brick { host: name("h"), uuid: Some(name(A)), path: name("/b") }];
    let expected = GlusterVolume { name: name("v"), version: None, checksum: None, started: true, bricks };
    assert_eq!(parse::volume_info(&text).unwrap(), [expected]);

    let brick = |entries: &str| {
        format!(
            "<brick hostUuid=\"{A}\"><name>h:/b</name><totalNumberOfEntries>{entries}</totalNumberOfEntries></brick>"
        )
    };
    let text = format!("<cliOutput><healInfo><bricks>{}{}</bricks></healInfo></cliOutput>", brick("3"), brick("-"));
    let entries: Vec<_> = parse::heal_summary(&text).unwrap().into_iter().map(|h| h.entries).collect();
    assert_eq!(entries, [Some(3), None]);
}

proptest! {
    #[test]
    fn no_input_causes_a_panic(text in "\\PC{0,200}", markup in "(<|>|/|=|\n|peer|uuid|cliOutput|brick|[a-z0-9:-]){0,80}") {
        for text in [text.as_str(), markup.as_str(), &format!("<cliOutput>{markup}</cliOutput>")] {
            let _ = (parse::peer_status(text), parse::pool_list(text), parse::volume_info(text), parse::heal_summary(text));
            let _ = (parse::glusterd_info(text), parse::peer_file(text));
            let _ = parse::volume_files("v", text, Some(text), [text]);
        }
    }

    #[test]
    fn written_files_can_be_parsed(state in 0u32..11, version in 1u32..200_000, hosts in prop::collection::vec("[a-z0-9]{1,20}([.-][a-z0-9]{1,20}){0,2}", 1..4)) {
        let file = PeerFile { uuid: name(B), state, hosts: hosts.iter().map(name).collect() };
        prop_assert_eq!(parse::peer_file(&parse::write_peer_file(&file)), Ok(file.clone()));
        let identity = Identity { uuid: name(A), operating_version: version, peers: vec![file] };
        prop_assert_eq!(parse::glusterd_info(&parse::write_glusterd_info(&identity)), (Some(name(A)), Some(version)));
    }
}
