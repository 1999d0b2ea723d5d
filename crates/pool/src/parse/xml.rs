//! `peer status` and `pool list`, as `gluster --mode=script --xml` prints them.

use roxmltree::{Document, Node, ParsingOptions};

use super::{MAX_LENGTH, ParseError};
use crate::{HostName, Peer, PeerId, PeerState};

/// The pool as one glusterd lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolList {
    /// The UUID of the queried glusterd.
    pub own: Option<PeerId>,
    /// The other peers.
    pub peers: Vec<Peer>,
}

/// Parses the output of `gluster peer status`: the other peers.
pub fn peer_status(text: &str) -> Result<Vec<Peer>, ParseError> {
    Ok(peers("peer status", text)?.into_iter().map(|(_, peer)| peer).collect())
}

/// Parses the output of `gluster pool list`: the other peers and the queried one.
pub fn pool_list(text: &str) -> Result<PoolList, ParseError> {
    let (own, others): (Vec<_>, Vec<_>) = peers("pool list", text)?.into_iter().partition(|(local, _)| *local);
    Ok(PoolList {
        own: own.into_iter().next().and_then(|(_, peer)| peer.uuid),
        peers: others.into_iter().map(|(_, peer)| peer).collect(),
    })
}

/// Returns every peer, and whether it is the queried one, which is listed as `localhost`.
fn peers(what: &'static str, text: &str) -> Result<Vec<(bool, Peer)>, ParseError> {
    read(what, text, |root| {
        let mut found = Vec::new();
        for status in elements(root, "peerStatus") {
            for peer in elements(status, "peer") {
                let uuid = required(what, peer, "uuid")?;
                let mut hosts: Vec<HostName> = Vec::new();
                let named =
                    elements(peer, "hostname").chain(elements(peer, "hostnames").flat_map(|h| elements(h, "hostname")));
                // An invalid name cannot be used: the peer is listed without it.
                for host in named.filter_map(|h| h.text()).filter_map(|h| h.trim().parse().ok()) {
                    if !hosts.contains(&host) {
                        hosts.push(host);
                    }
                }
                let local = hosts.first().is_some_and(|h| *h == "localhost");
                // A peer that is being probed has the UUID zero.
                let uuid = uuid.parse().ok();
                let state = child(peer, "state").and_then(|s| s.parse().ok()).map_or(PeerState::Unknown, PeerState::of);
                let connected = child(peer, "connected") == Some("1");
                found.push((local, Peer { uuid, hosts, state, connected }));
            }
        }
        Ok(found)
    })
}

/// Parses a document and fails if its command failed.
pub(super) fn read<T>(
    what: &'static str,
    text: &str,
    then: impl FnOnce(Node<'_, '_>) -> Result<T, ParseError>,
) -> Result<T, ParseError> {
    if text.len() > MAX_LENGTH {
        return Err(ParseError::new(what, format!("{} bytes exceed the limit", text.len())));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: 1_000_000, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|e| ParseError::new(what, e.to_string()))?;
    let root = document.root_element();
    if root.tag_name().name() != "cliOutput" {
        return Err(ParseError::new(what, format!("cliOutput expected, {} found", root.tag_name().name())));
    }
    let failed = child(root, "opRet").is_some_and(|code| code != "0");
    if failed {
        return Err(ParseError::new(what, child(root, "opErrstr").unwrap_or("the command failed")));
    }
    then(root)
}

/// Returns the child elements of this name.
pub(super) fn elements<'a, 'i>(
    node: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> + use<'a, 'i> {
    node.children().filter(move |n| n.is_element() && n.tag_name().name() == name)
}

/// Returns the text of the first child element of this name.
pub(super) fn child<'a>(node: Node<'a, '_>, name: &'static str) -> Option<&'a str> {
    elements(node, name).next().and_then(|n| n.text()).map(str::trim).filter(|t| !t.is_empty())
}

/// Like `child`, but fails if there is none.
pub(super) fn required<'a>(what: &'static str, node: Node<'a, '_>, name: &'static str) -> Result<&'a str, ParseError> {
    let parent = node.tag_name().name().to_owned();
    child(node, name).ok_or_else(|| ParseError::new(what, format!("a {parent} without {name}")))
}
