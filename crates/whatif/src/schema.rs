//! The JSON Schema of the format. Tests compare it with the types.

use serde_json::{Value, json};

use crate::example::EXAMPLES;
use crate::rehearsal::API_VERSION;

/// The JSON Schema (2020-12) of a rehearsal.
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rehearsal",
        "description": "A cluster, and what is done, what fails and what is expected in it (stead rehearse).",
        "type": "object",
        "additionalProperties": false,
        "required": ["apiVersion", "kind", "metadata", "cluster", "steps"],
        "properties": {
            "apiVersion": { "const": API_VERSION },
            "kind": { "const": "Rehearsal" },
            "metadata": object(&["name"], json!({ "name": text("The name.") })),
            "description": text("What it shows, in a sentence."),
            "kubernetes": text("The Kubernetes version, such as \"1.31\"; that of the nodes if none is given."),
            "namespace": text("The namespace of commands without -n, and of expectations that name none [default: default]."),
            "cluster": cluster(),
            "workloads": list("How long containers take to start, to become ready and to stop.", reference("timing")),
            "steps": {
                "description": "What happens, one after the other.",
                "type": "array", "minItems": 1, "items": reference("step"),
            },
        },
        "$defs": {
            "duration": {
                "description": "A duration, such as 90s, 1m30s or 2d19h.",
                "type": "string", "pattern": "^\\s*([0-9]+\\s*(d|h|m|s|ms)\\s*)+$",
            },
            "timing": timing(),
            "step": step(),
            "failure": failure(true),
            "repair": failure(false),
            "expectation": expectation(),
        },
    })
}

fn text(description: &str) -> Value {
    json!({ "description": description, "type": "string" })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// A definition with another description.
fn described(name: &str, description: &str) -> Value {
    json!({ "description": description, "$ref": format!("#/$defs/{name}") })
}

fn list(description: &str, items: Value) -> Value {
    json!({ "description": description, "type": "array", "items": items })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
}

/// An object with exactly one of these fields.
fn one_of(names: &[&str], mut object: Value) -> Value {
    object["oneOf"] = names.iter().map(|name| json!({ "required": [name] })).collect();
    object
}

fn objects(description: &str) -> Value {
    let item = json!({ "type": "object", "required": ["apiVersion", "kind", "metadata"] });
    list(description, item)
}

fn cluster() -> Value {
    let names: Vec<&str> = EXAMPLES.iter().map(|example| example.name).collect();
    let mut cluster = object(
        &[],
        json!({
            "example": { "description": "A cluster that is part of Stead.", "enum": names },
            "from": text("A dump: a file or a directory, relative to the rehearsal."),
            "objects": objects("Objects. Those with a UID are taken as they are; the others are created at the beginning, \
                                and a Node that is created gets a healthy machine."),
            "live": { "description": "The cluster of the kubeconfig, as it is now. It is only read.", "const": true },
        }),
    );
    cluster["description"] = "Where the cluster comes from: exactly one of these.".into();
    one_of(&["example", "from", "objects", "live"], cluster)
}

fn timing() -> Value {
    object(
        &[],
        json!({
            "of": text("The workload, such as sts/web; all workloads if none is given."),
            "start": described("duration", "From available volumes to running containers."),
            "ready": described("duration", "From running to ready containers."),
            "stop": described("duration", "From the deletion of a pod to the end of its containers."),
        }),
    )
}

fn step() -> Value {
    let mut step = object(
        &[],
        json!({
            "name": text("The heading of this step and of those after it that have none."),
            "run": text("A command that begins with kubectl or oc."),
            "objects": objects("The objects that -f - of the command reads."),
            "prints": text("The lines that the command prints; * matches any text."),
            "error": text("The error with which the command fails; * matches any text."),
            "fail": described("failure", "Something fails."),
            "heal": described("repair", "Something that failed is repaired."),
            "skip": described("duration", "Time passes."),
            "wait": wait(),
            "expect": described("expectation", "Something has to be so now."),
        }),
    );
    step["dependentRequired"] = json!({ "objects": ["run"], "prints": ["run"], "error": ["run"] });
    one_of(&["run", "fail", "heal", "skip", "wait", "expect"], step)
}

fn wait() -> Value {
    let until = json!({
        "description": "An expectation; or rest, until nothing happens any more; or ready KIND/NAME, gone KIND/NAME.",
        "anyOf": [
            { "type": "string", "pattern": "^\\s*(rest|(ready|gone)\\s+\\S+/\\S+)\\s*$" },
            reference("expectation"),
        ],
    });
    let mut wait =
        object(&["for", "within"], json!({ "for": until, "within": described("duration", "How long at most.") }));
    wait["description"] = "Time passes until something is so.".into();
    wait
}

fn failure(fails: bool) -> Value {
    let mut properties = json!({
        "node": text("A node."),
        "zone": text("All nodes of a zone."),
        "driver": text("A storage driver: it attaches, detaches and creates no volumes."),
    });
    if fails {
        properties["how"] = json!({
            "description": "How a node fails: crash: it stops at once. suspend: it is paused, and everything on it goes on \
                            later. shutdown: it is shut down. partition: it runs, but does not reach the API server. \
                            kubelet: its kubelet stops, containers go on.",
            "enum": ["crash", "suspend", "shutdown", "partition", "kubelet"],
        });
        properties["message"] = text("What the driver reports.");
    }
    let mut failure = one_of(&["node", "zone", "driver"], object(&[], properties));
    if fails {
        failure["dependentRequired"] = json!({ "node": ["how"], "zone": ["how"], "message": ["driver"] });
    }
    failure
}

fn expectation() -> Value {
    let about = "The object, such as pod/web-0; * matches any text.";
    let kind_name = "The object: KIND/NAME or KIND/NAMESPACE/NAME.";
    let any = "* matches any text.";
    let mut expectation = object(
        &[],
        json!({
            "namespace": text("The namespace; that of the rehearsal if none is given."),
            "selector": text("Only pods with these labels: a label selector."),
            "names": text("Only pods with such a name: * matches any text, | separates several."),
            "on": list("Only pods on these nodes, or in these zones.", text("A node, or zone:NAME.")),
            "pods": text("The pods, as kubectl get pods -o wide prints them, with any of its columns. Every pod has to match \
                          one row. In a cell, * matches any text, | separates several texts, and zone:NAME is any node of \
                          a zone."),
            "nodes": text("The nodes, as kubectl get nodes prints them, with any of its columns. Every node has to match \
                           one row."),
            "event": object(&["about", "reason"], json!({
                "about": text(about), "reason": text("The reason."), "message": text(&format!("The message; {any}")),
            })),
            "condition": object(&["of", "type", "status"], json!({
                "of": text(kind_name), "type": text("The type of the condition."),
                "status": text("Its status: True, False or Unknown."),
                "reason": text(&format!("Its reason; {any}")), "message": text(&format!("Its message; {any}")),
            })),
            "field": object(&["of", "path", "is"], json!({
                "of": text(kind_name), "path": text("The path, such as status.readyReplicas."),
                "is": { "description": "The value; null for a field that is missing." },
            })),
            "serving": object(&["service", "endpoints"], json!({
                "service": text("The name of the service."),
                "endpoints": { "description": "How many of its endpoints are ready.", "type": "integer", "minimum": 0 },
            })),
            "writers": object(&["claim", "pods"], json!({
                "claim": text("The claim."),
                "pods": list("The pods that can write to its volume.", text(&format!("The name of a pod; {any}"))),
            })),
            "volume": object(&["claim"], json!({
                "claim": text("The claim."),
                "usableOn": list("The nodes that can use its volume, by its node affinity.", text("A node, or zone:NAME.")),
                "attachedTo": list("The nodes that the storage has attached it to.", text("A node.")),
            })),
            "exec": object(&["pod"], json!({
                "pod": text("The pod."),
                "error": text(&format!("The error of kubectl exec; {any} None if the command runs.")),
            })),
            "absent": text("An object that does not exist, such as pod/web-0."),
        }),
    );
    expectation["dependentRequired"] = json!({ "selector": ["pods"], "names": ["pods"], "on": ["pods"] });
    let questions = ["pods", "nodes", "event", "condition", "field", "serving", "writers", "volume", "exec", "absent"];
    expectation["anyOf"] = questions.iter().map(|name| json!({ "required": [name] })).collect();
    expectation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::*;

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// Whoever adds a field to a type has to name it here.
    #[test]
    fn the_schema_has_the_fields_of_the_types() {
        let some = || Some("x".to_owned());
        let event = EventExpectation { about: "x".into(), reason: "x".into(), message: some() };
        let condition = ConditionExpectation {
            of: "x".into(),
            condition_type: "x".into(),
            status: "x".into(),
            reason: some(),
            message: some(),
        };
        let field = FieldExpectation { of: "x".into(), path: "x".into(), is: json!(1) };
        let serving = ServingExpectation { service: "x".into(), endpoints: 1 };
        let writers = WritersExpectation { claim: "x".into(), pods: vec!["x".into()] };
        let list = || Some(vec!["x".to_owned()]);
        let volume = VolumeExpectation { claim: "x".into(), usable_on: list(), attached_to: list() };
        let exec = ExecExpectation { pod: "x".into(), error: some() };
        let expectation = Expectation {
            namespace: some(),
            selector: some(),
            names: some(),
            on: vec!["x".into()],
            pods: some(),
            nodes: some(),
            event: Some(event),
            condition: Some(condition),
            field: Some(field),
            serving: Some(serving),
            writers: Some(writers),
            volume: Some(volume),
            exec: Some(exec),
            absent: some(),
        };
        let seconds = HumanDuration(jiff::SignedDuration::from_secs(1));
        let target = FailureTarget {
            node: some(),
            zone: some(),
            driver: some(),
            how: Some(FailureKind::Crash),
            message: some(),
        };
        let until = WaitFor::Expectation(Box::new(expectation.clone()));
        let step = RehearsalStep {
            name: some(),
            run: some(),
            objects: vec![json!({})],
            prints: some(),
            error: some(),
            fail: Some(target.clone()),
            heal: Some(target),
            skip: Some(seconds),
            wait: Some(WaitStep { until, within: seconds }),
            expect: Some(expectation),
        };
        let cluster = ClusterSource { example: some(), from: some(), objects: Some(vec![json!({})]), live: true };
        let timing = WorkloadTiming { of: some(), start: Some(seconds), ready: Some(seconds), stop: Some(seconds) };
        let rehearsal = Rehearsal {
            api_version: API_VERSION.into(),
            kind: "Rehearsal".into(),
            metadata: RehearsalMetadata { name: "x".into() },
            description: some(),
            kubernetes: some(),
            namespace: some(),
            cluster,
            workloads: vec![timing],
            steps: vec![step],
        };
        let value = serde_json::to_value(&rehearsal).expect("JSON");
        let schema = schema();
        let defs = &schema["$defs"];
        let (step, expectation) = (&value["steps"][0], &value["steps"][0]["expect"]);
        let properties = |schema: &Value| schema["properties"].clone();
        for (value, schema) in [
            (&value, &schema),
            (&value["metadata"], &schema["properties"]["metadata"]),
            (&value["cluster"], &schema["properties"]["cluster"]),
            (&value["workloads"][0], &defs["timing"]),
            (step, &defs["step"]),
            (&step["fail"], &defs["failure"]),
            (&step["wait"], &defs["step"]["properties"]["wait"]),
            (expectation, &defs["expectation"]),
        ] {
            assert_eq!(keys(value), keys(&properties(schema)), "{schema}");
        }
        for name in ["event", "condition", "field", "serving", "writers", "volume", "exec"] {
            let schema = &defs["expectation"]["properties"][name];
            assert_eq!(keys(&expectation[name]), keys(&properties(schema)), "{name}");
        }
        let kinds = [
            FailureKind::Crash,
            FailureKind::Suspend,
            FailureKind::Shutdown,
            FailureKind::Partition,
            FailureKind::Kubelet,
        ];
        assert_eq!(defs["failure"]["properties"]["how"]["enum"], json!(kinds));
    }
}
