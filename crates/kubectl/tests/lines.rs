//! Command lines, and what they ask for.

use stead_kubectl::{Action, Cascade, KubectlCommand, PatchType, RolloutAction, TaintChange};

fn action(line: &str) -> Action {
    KubectlCommand::parse(line).unwrap_or_else(|error| panic!("{line}: {error}")).action
}

fn error(line: &str) -> String {
    KubectlCommand::parse(line).map(|command| panic!("{line}: {command:?}")).unwrap_or_else(|error| error.to_string())
}

/// The objects of a command, as `kind/name`.
fn objects(line: &str) -> Vec<String> {
    let action = action(line);
    let targets = action.targets().unwrap_or_else(|| panic!("{line}: {action:?}"));
    let name =
        |object: &stead_kubectl::TargetName| format!("{}/{}", object.kind.kind, object.name.as_deref().unwrap_or("*"));
    targets.objects.iter().map(name).collect()
}

#[test]
fn objects_are_named_as_kubectl_names_them() {
    for (line, expected) in [
        ("kubectl delete pod web-0 web-1", &["Pod/web-0", "Pod/web-1"][..]),
        ("kubectl delete po/web-0 sts/web", &["Pod/web-0", "StatefulSet/web"]),
        ("kubectl delete pods,pvc -l app=web", &["Pod/*", "PersistentVolumeClaim/*"]),
        ("kubectl scale --replicas=3 deploy web", &["Deployment/web"]),
        ("kubectl -n shop scale sts/web --replicas 0", &["StatefulSet/web"]),
        ("kubectl label nodes a b zone=zoneA disk-", &["Node/a", "Node/b"]),
        ("kubectl taint node a k=v:NoExecute", &["Node/a"]),
        ("kubectl cordon a b", &["Node/a", "Node/b"]),
        ("kubectl uncordon node/a", &["Node/a"]),
        ("kubectl drain node a --ignore-daemonsets", &["Node/a"]),
        ("oc adm drain -l zone=zoneA --ignore-daemonsets", &["Node/*"]),
        ("kubectl set image deploy/web web=nginx:2 *=busybox", &["Deployment/web"]),
        ("kubectl rollout restart sts web", &["StatefulSet/web"]),
    ] {
        assert_eq!(objects(line), expected, "{line}");
    }
}

#[test]
fn a_deletion_has_kubectls_grace_periods() {
    for (flags, expected) in [
        ("", (None, false)),
        ("--grace-period=5", (Some(5), false)),
        ("--grace-period=-1", (None, false)),
        ("--grace-period=0", (Some(1), false)),
        ("--now", (Some(1), false)),
        ("--force", (Some(0), true)),
        ("--force --grace-period=0", (Some(0), true)),
    ] {
        match action(&format!("kubectl delete pod web-0 {flags}")) {
            Action::Delete { grace, force, .. } => assert_eq!((grace, force), expected, "{flags}"),
            other => panic!("{other:?}"),
        }
    }
    for (flags, expected) in [
        ("", Cascade::Background),
        ("--cascade=foreground", Cascade::Foreground),
        ("--cascade=orphan", Cascade::Orphan),
    ] {
        match action(&format!("kubectl delete deploy web {flags}")) {
            Action::Delete { cascade, .. } => assert_eq!(cascade, expected, "{flags}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn changes_are_read() {
    let set = |key: &str, value: Option<&str>, effect: &str| TaintChange::Set {
        key: key.into(),
        value: value.map(Into::into),
        effect: effect.into(),
    };
    match action("kubectl taint nodes a k=v:NoExecute empty=:NoSchedule plain:NoSchedule old- gone:NoExecute-") {
        Action::Taint { changes, .. } => assert_eq!(
            changes,
            [
                set("k", Some("v"), "NoExecute"),
                set("empty", Some(""), "NoSchedule"),
                set("plain", None, "NoSchedule"),
                TaintChange::Remove { key: "old".into(), effect: None },
                TaintChange::Remove { key: "gone".into(), effect: Some("NoExecute".into()) },
            ]
        ),
        other => panic!("{other:?}"),
    }
    match action(r#"kubectl patch deploy web --type=json -p '[{"op":"remove","path":"/spec/paused"}]'"#) {
        Action::Patch { patch, patch_type, .. } => {
            assert_eq!((patch[0]["op"].as_str(), patch_type), (Some("remove"), PatchType::Json));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        action("kubectl rollout undo deploy/web --to-revision=2"),
        Action::Rollout { action: RolloutAction::Undo(2), .. }
    ));
    match action("oc adm drain a --timeout=1m30s --delete-emptydir-data --grace-period=10") {
        Action::Drain { options, .. } => {
            assert_eq!((options.timeout.map(|limit| limit.as_secs()), options.grace), (Some(90), Some(10)));
            assert!(options.delete_emptydir_data && !options.ignore_daemonsets);
        }
        other => panic!("{other:?}"),
    }
    let command = KubectlCommand::parse("kubectl --context east -n shop apply -f a.yaml -f b.yaml --dry-run=server");
    let command = command.expect("it is well formed");
    assert_eq!(
        (command.context.as_deref(), command.namespace.as_deref(), command.dry_run),
        (Some("east"), Some("shop"), true)
    );
    assert_eq!(command.action, Action::Apply { files: vec!["a.yaml".into(), "b.yaml".into()], server_side: false });
}

#[test]
fn errors_say_what_is_wrong() {
    for (line, expected) in [
        ("helm install x", r#"the command must begin with kubectl or oc, not "helm""#),
        ("kubectl get pods", "kubectl get changes nothing: only commands that change the cluster are run"),
        ("kubectl delete podz web", r#"there is no resource type "podz" that Stead knows"#),
        ("kubectl delete pods", "kubectl delete pods: resource(s) were provided, but no name was specified"),
        ("kubectl delete pod a -l x=y", "kubectl delete: name cannot be provided when a selector is specified"),
        (
            "kubectl scale deploy web",
            "kubectl: the following required arguments were not provided: --replicas <REPLICAS>",
        ),
        ("kubectl scale deploy web --replicas=-1", "--replicas=-1: must not be negative"),
        (
            "kubectl taint nodes a k=v:Never",
            r#"taint "k=v:Never": the effect must be NoSchedule, PreferNoSchedule or NoExecute"#,
        ),
        ("kubectl label pod a", "kubectl label: at least one label update is required"),
        ("kubectl drain a --nonsense", "kubectl: unexpected argument '--nonsense' found"),
        (
            "kubectl patch pod a -p '{'",
            "kubectl patch: --patch is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        ("kubectl drain a --timeout=soon", r#""soon" is not a duration such as 90s, 5m or 2h"#),
        ("kubectl delete deploy web | cat", "'|' is not supported: a line is one command, without a shell"),
    ] {
        assert_eq!(error(line), expected, "{line}");
    }
}
