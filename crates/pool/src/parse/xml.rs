//! `peer status` and `pool list`, as `gluster --mode=script --xml` prints them.

use roxmltree::{Document, Node, ParsingOptions};

use super::{LONGEST, ParseError};
use crate::{HostName, Peer, PeerId, PeerState};

/// All of the pool, as one glusterd lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolList {
    /// Its own identity.
    pub own: Option<PeerId>,
    /// The others.
    pub peers: Vec<Peer>,
}

/// The others, from `gluster peer status`.
pub fn peer_status(text: &str) -> Result<Vec<Peer>, ParseError> {
    Ok(peers("peer status", text)?.into_iter().map(|(_, peer)| peer).collect())
}

/// The others and the one who was asked, from `gluster pool list`.
pub fn pool_list(text: &str) -> Result<PoolList, ParseError> {
    let (own, others): (Vec<_>, Vec<_>) = peers("pool list", text)?.into_iter().partition(|(local, _)| *local);
    Ok(PoolList {
        own: own.into_iter().next().and_then(|(_, peer)| peer.uuid),
        peers: others.into_iter().map(|(_, peer)| peer).collect(),
    })
}

/// Every peer with whether it is the one who was asked, which calls itself `localhost`.
fn peers(what: &'static str, text: &str) -> Result<Vec<(bool, Peer)>, ParseError> {
    read(what, text, |root| {
        let mut found = Vec::new();
        for status in elements(root, "peerStatus") {
            for peer in elements(status, "peer") {
                let uuid = required(what, peer, "uuid")?;
                let mut hosts: Vec<HostName> = Vec::new();
                let named =
                    elements(peer, "hostname").chain(elements(peer, "hostnames").flat_map(|h| elements(h, "hostname")));
                // A name that is none cannot be used: the peer is listed without it.
                for host in named.filter_map(|h| h.text()).filter_map(|h| h.trim().parse().ok()) {
                    if !hosts.contains(&host) {
                        hosts.push(host);
                    }
                }
                let local = hosts.first().is_some_and(|h| *h == "localhost");
                // A peer that is being probed has no identity yet: all zeros.
                let uuid = uuid.parse().ok();
                let state = child(peer, "state").and_then(|s| s.parse().ok()).map_or(PeerState::Unknown, PeerState::of);
                let connected = child(peer, "connected") == Some("1");
                found.push((local, Peer { uuid, hosts, state, connected }));
            }
        }
        Ok(found)
    })
}

/// Reads a document whose command succeeded.
pub(super) fn read<T>(
    what: &'static str,
    text: &str,
    then: impl FnOnce(Node<'_, '_>) -> Result<T, ParseError>,
) -> Result<T, ParseError> {
    if text.len() > LONGEST {
        return Err(ParseError::new(what, format!("{} bytes are too many", text.len())));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: 1_000_000, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|e| ParseError::new(what, e.to_string()))?;
    let root = document.root_element();
    if root.tag_name().name() != "cliOutput" {
        return Err(ParseError::new(what, format!("cliOutput expected, {} found", root.tag_name().name())));
    }
    let failed = child(root, "opRet").is_some_and(|code| code != "0");
    if failed {
        return Err(ParseError::new(what, child(root, "opErrstr").unwrap_or("gluster says that it failed")));
    }
    then(root)
}

/// The children of this name.
pub(super) fn elements<'a, 'i>(
    node: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> + use<'a, 'i> {
    node.children().filter(move |n| n.is_element() && n.tag_name().name() == name)
}

/// The text of the first child of this name.
pub(super) fn child<'a>(node: Node<'a, '_>, name: &'static str) -> Option<&'a str> {
    elements(node, name).next().and_then(|n| n.text()).map(str::trim).filter(|t| !t.is_empty())
}

/// The same, where it has to be there.
pub(super) fn required<'a>(what: &'static str, node: Node<'a, '_>, name: &'static str) -> Result<&'a str, ParseError> {
    let parent = node.tag_name().name().to_owned();
    child(node, name).ok_or_else(|| ParseError::new(what, format!("a {parent} without {name}")))
}
