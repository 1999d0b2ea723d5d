//! Tables that `oc get` prints. Older openstack-must-gathers have some instead of YAML.
//!
//! A column begins where its title begins. All but the last are cut at the next column; empty cells are spaces.

use serde_json::{Value, json};

/// A table: titles with the place where each begins, and the lines below.
struct TextTable<'a> {
    columns: Vec<(&'a str, usize)>,
    lines: Vec<&'a str>,
}

impl<'a> TextTable<'a> {
    /// The tables of a text; `oc get all` prints one for each kind, with an empty line between them.
    fn all(text: &'a str) -> Vec<TextTable<'a>> {
        let mut tables: Vec<TextTable<'a>> = Vec::new();
        let mut is_open = false;
        for line in text.lines() {
            if line.trim().is_empty() {
                is_open = false;
            } else if is_open && let Some(table) = tables.last_mut() {
                table.lines.push(line);
            } else {
                tables.push(TextTable { columns: titles(line), lines: Vec::new() });
                is_open = true;
            }
        }
        tables
    }

    /// The cells of one column; none if there is no such column.
    fn cell(&self, line: &'a str, title: &str) -> Option<&'a str> {
        let index = self.columns.iter().position(|(name, _)| *name == title)?;
        let start = self.columns[index].1;
        let end = self.columns.get(index + 1).map_or(line.len(), |(_, next)| *next).min(line.len());
        line.get(start..end).map(str::trim).filter(|cell| !cell.is_empty() && *cell != "<unset>")
    }
}

/// Titles are separated by more than one space: `ACCESS MODES` is one.
fn titles(line: &str) -> Vec<(&str, usize)> {
    let mut out = Vec::new();
    let mut start = 0;
    for part in line.split("  ") {
        let title = part.trim();
        if !title.is_empty() {
            out.push((title, start + part.len() - part.trim_start().len()));
        }
        start += part.len() + 2;
    }
    out
}

/// Claims from the output of `oc get pvc`.
pub(crate) fn claims(text: &str, namespace: &str) -> Vec<Value> {
    let mut out = Vec::new();
    for table in TextTable::all(text) {
        for line in &table.lines {
            let (Some(name), Some(status)) = (table.cell(line, "NAME"), table.cell(line, "STATUS")) else { continue };
            let modes: Vec<&str> =
                table.cell(line, "ACCESS MODES").unwrap_or_default().split(',').filter_map(access_mode).collect();
            let mut claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": name, "namespace": namespace },
                "spec": { "accessModes": modes },
                "status": { "phase": status },
            });
            for (field, title) in [("volumeName", "VOLUME"), ("storageClassName", "STORAGECLASS")] {
                if let Some(cell) = table.cell(line, title) {
                    claim["spec"][field] = cell.into();
                }
            }
            if let Some(capacity) = table.cell(line, "CAPACITY") {
                claim["status"]["capacity"] = json!({ "storage": capacity });
            }
            out.push(claim);
        }
    }
    out
}

fn access_mode(short: &str) -> Option<&'static str> {
    Some(match short.trim() {
        "RWO" => "ReadWriteOnce",
        "ROX" => "ReadOnlyMany",
        "RWX" => "ReadWriteMany",
        "RWOP" => "ReadWriteOncePod",
        _ => return None,
    })
}

/// The names and states of pods in the output of `oc get all`.
pub(crate) fn pods(text: &str) -> Vec<(&str, &str)> {
    let mut out = Vec::new();
    for table in &TextTable::all(text) {
        for line in &table.lines {
            let name = table.cell(line, "NAME").and_then(|name| name.strip_prefix("pod/"));
            out.extend(name.zip(table.cell(line, "STATUS")));
        }
    }
    out
}

/// The pods that the output of `oc get events` is about, with reason and message, the oldest first.
pub(crate) fn pod_events(text: &str) -> Vec<(&str, String)> {
    let mut out = Vec::new();
    for table in &TextTable::all(text) {
        for line in &table.lines {
            let cell = |title| table.cell(line, title);
            if let (Some(pod), Some(reason), Some(message)) =
                (cell("OBJECT").and_then(|object| object.strip_prefix("pod/")), cell("REASON"), cell("MESSAGE"))
            {
                out.push((pod, format!("{reason}: {message}")));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_have_what_the_table_has() {
        let text = "\
NAME        STATUS    VOLUME   CAPACITY   ACCESS MODES   STORAGECLASS   VOLUMEATTRIBUTESCLASS   AGE
data-db-0   Bound     pvc-1    10G        RWO,RWX        lvms           <unset>                 3d
data-db-1   Pending                                      lvms           <unset>                 3d
data-db-2   Pending                                                     <unset>                 3d
";
        let claim = |name: &str, spec: Value, status: Value| {
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": name, "namespace": "shop" }, "spec": spec, "status": status })
        };
        assert_eq!(
            claims(text, "shop"),
            [
                claim(
                    "data-db-0",
                    json!({ "accessModes": ["ReadWriteOnce", "ReadWriteMany"], "volumeName": "pvc-1", "storageClassName": "lvms" }),
                    json!({ "phase": "Bound", "capacity": { "storage": "10G" } }),
                ),
                claim(
                    "data-db-1",
                    json!({ "accessModes": [], "storageClassName": "lvms" }),
                    json!({ "phase": "Pending" })
                ),
                claim("data-db-2", json!({ "accessModes": [] }), json!({ "phase": "Pending" })),
            ]
        );
        assert_eq!(claims("No resources found in shop namespace.\n", "shop"), [] as [Value; 0]);
    }

    #[test]
    fn pods_are_found_among_other_kinds() {
        let text = "\
NAME        READY   STATUS    RESTARTS   AGE
pod/web-0   1/1     Running   0          3d
pod/web-1   0/1     Pending   0          5m

NAME          TYPE        CLUSTER-IP   EXTERNAL-IP   PORT(S)   AGE
service/web   ClusterIP   192.0.2.1    <none>        80/TCP    3d
";
        assert_eq!(pods(text), [("web-0", "Running"), ("web-1", "Pending")]);
        assert_eq!(pods(""), []);
    }

    #[test]
    fn events_keep_the_whole_message() {
        let text = "\
LAST SEEN   TYPE      REASON             OBJECT            MESSAGE
5m          Warning   FailedScheduling   pod/web-1         0/2 nodes are available:  2 node(s) were unschedulable.
2m          Normal    SuccessfulCreate   statefulset/web   create Pod web-1 in StatefulSet web successful
";
        let message = "FailedScheduling: 0/2 nodes are available:  2 node(s) were unschedulable.";
        assert_eq!(pod_events(text), [("web-1", message.to_owned())]);
    }
}
