//! Templates from the objects of an installation. Options are set to placeholders, which then become expressions of Helm.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_manifests::{Manifest, Options, Part, manifests};

/// Placeholders for what is set when the chart is installed. YAML prints them without quotes.
const NAMESPACE: &str = "PLACEHOLDER-NAMESPACE";
const EACH: &str = "PLACEHOLDER-EACH";
const IMAGE: &str = "PLACEHOLDER-IMAGE";
const GLANCE_IMAGE: &str = "PLACEHOLDER-GLANCE-IMAGE";
const DOMAIN: &str = "PLACEHOLDER-DOMAIN";
const REPLICAS: u32 = 777_777;

/// What each placeholder becomes, within a line.
const EXPRESSIONS: &[(&str, &str)] = &[
    (NAMESPACE, "{{ $.Release.Namespace | quote }}"),
    (EACH, "{{ . | quote }}"),
    (IMAGE, "{{ include \"stead.image\" . | quote }}"),
    ("777777", "{{ .Values.replicas }}"),
    ("app.kubernetes.io/managed-by: stead", "app.kubernetes.io/managed-by: {{ $.Release.Service }}"),
    ("imagePullPolicy: IfNotPresent", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
    ("PLACEHOLDER-RESOURCES", "{{ toJson .Values.resources }}"),
];

/// Lines that depend on a value: what the line contains, and the lines that replace it. `@` is its indentation.
const CONDITIONAL_LINES: &[(&str, &[&str])] = &[
    ("--default-anti-affinity=", &["@- --default-anti-affinity={{ .Values.defaultAntiAffinity }}"]),
    (
        "--namespaces=",
        &["{{- with .Values.namespaces }}", "@- {{ printf \"--namespaces=%s\" (join \",\" .) | quote }}", "{{- end }}"],
    ),
    (
        GLANCE_IMAGE,
        &["{{- with .Values.glanceImage }}", "@- {{ printf \"--glance-image=%s\" . | quote }}", "{{- end }}"],
    ),
    (DOMAIN, &["{{- with .Values.clusterDomain }}", "@- {{ printf \"--cluster-domain=%s\" . | quote }}", "{{- end }}"]),
    (
        "PLACEHOLDER-PULL-SECRETS",
        &["{{- with .Values.imagePullSecrets }}", "@imagePullSecrets: {{ toJson . }}", "{{- end }}"],
    ),
    ("PLACEHOLDER-NODE-SELECTOR", &["{{- with .Values.nodeSelector }}", "@nodeSelector: {{ toJson . }}", "{{- end }}"]),
    ("PLACEHOLDER-TOLERATIONS", &["{{- with .Values.tolerations }}", "@tolerations: {{ toJson . }}", "{{- end }}"]),
];

/// The first line of each template.
const HEADER: &str = "{{- /* Generated from crates/manifests by `cargo xtask chart`. Do not edit. */ -}}\n";

/// Whether the cluster has the final form of ValidatingAdmissionPolicy (Kubernetes 1.30).
const HAS_POLICIES: &str = "(include \"stead.hasPolicies\" $)";

/// All generated templates: paths below the chart's folder, and contents.
pub(super) fn all() -> Result<Vec<(String, String)>> {
    let in_all = manifests(&options(&[]));
    let mut files = Vec::new();
    for definition in in_all.iter().filter(|manifest| manifest.is_definition()) {
        files.push((format!("templates/crds/{}.yaml", definition.name()), definition_template(definition)?));
    }
    for policy in in_all.iter().filter(|manifest| manifest.kind() == "ValidatingAdmissionPolicy") {
        let about = policy.about.as_deref().context("a policy is about a CRD")?;
        let name = format!("templates/policies/{about}.yaml");
        files.push((name, policy_template(about, &in_all)?));
    }
    files.push(("templates/rbac.yaml".to_owned(), rbac_template(&in_all)?));
    // The Deployment has every argument only if namespaces are named.
    let in_each = manifests(&options(&[EACH]));
    for (file, kind) in [("service", "Service"), ("pdb", "PodDisruptionBudget"), ("deployment", "Deployment")] {
        let manifest = find(&in_each, |manifest| manifest.kind() == kind)?;
        files.push((format!("templates/{file}.yaml"), format!("{HEADER}{}", template(manifest)?)));
    }
    check_complete(&in_all, &files)?;
    Ok(files)
}

fn options(namespaces: &[&str]) -> Options {
    Options {
        namespace: NAMESPACE.to_owned(),
        namespaces: namespaces.iter().map(ToString::to_string).collect(),
        image: IMAGE.to_owned(),
        replicas: REPLICAS,
        glance_image: GLANCE_IMAGE.to_owned(),
        cluster_domain: DOMAIN.to_owned(),
        ..Options::default()
    }
}

fn find(manifests: &[Manifest], matches: impl Fn(&Manifest) -> bool) -> Result<&Manifest> {
    manifests.iter().find(|manifest| matches(manifest)).context("an object of the installation is missing")
}

/// Every object is in a template. The namespace is not: it exists before Helm installs anything into it.
fn check_complete(manifests: &[Manifest], files: &[(String, String)]) -> Result<()> {
    for manifest in manifests.iter().filter(|manifest| manifest.kind() != "Namespace") {
        let (kind, name) = (format!("kind: {}\n", manifest.kind()), format!("  name: {}\n", manifest.name()));
        let found = files.iter().any(|(_, content)| content.contains(&kind) && content.contains(&name));
        ensure!(found, "{manifest} is in no template");
    }
    Ok(())
}

/// A CRD: rendered unless somebody else's exists, and kept when the release is uninstalled.
fn definition_template(definition: &Manifest) -> Result<String> {
    let mut definition = definition.clone();
    definition.object["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep".into();
    let name = definition.name().to_owned();
    Ok(format!(
        "{HEADER}{{{{- if include \"stead.managesDefinition\" (list $ \"{name}\") }}}}\n{}{{{{- end }}}}\n",
        template(&definition)?
    ))
}

/// The policy about a CRD, and its binding.
fn policy_template(about: &str, manifests: &[Manifest]) -> Result<String> {
    let mut objects = String::new();
    let is_about = |manifest: &&Manifest| {
        manifest.part == Part::Definitions && !manifest.is_definition() && manifest.about.as_deref() == Some(about)
    };
    for manifest in manifests.iter().filter(is_about) {
        objects.push_str("---\n");
        objects.push_str(&template(manifest)?);
    }
    Ok(format!(
        "{HEADER}{{{{- if and {HAS_POLICIES} (include \"stead.managesDefinition\" (list $ \"{about}\")) }}}}\n{objects}{{{{- \
         end }}}}\n"
    ))
}

/// The permissions: in all namespaces, or Roles in those that the values name.
fn rbac_template(in_all: &[Manifest]) -> Result<String> {
    let in_each = manifests(&options(&[EACH]));
    let in_own = manifests(&options(&[NAMESPACE]));
    let mut text = HEADER.to_owned();
    let always =
        |manifest: &&Manifest| is_permission(manifest) && in_each.contains(manifest) && manifest.name() != "stead-edit";
    for manifest in in_all.iter().filter(always) {
        text.push_str(&document(&template(manifest)?));
    }
    text.push_str("{{- if .Values.namespaces }}\n");
    for manifest in in_each.iter().filter(|manifest| is_permission(manifest) && !in_all.contains(manifest)) {
        text.push_str(&match (manifest.namespace(), manifest.name()) {
            (Some(EACH), "stead-edit") => ranged("", &document(&template(manifest)?)),
            (Some(EACH), _) => ranged("ne . $.Release.Namespace", &document(&template(manifest)?)),
            _ => document(&template(manifest)?),
        });
    }
    text.push_str("{{- else }}\n");
    for manifest in in_all.iter().filter(|manifest| is_permission(manifest) && !in_each.contains(manifest)) {
        text.push_str(&document(&template(manifest)?));
    }
    text.push_str("{{- end }}\n");
    own_role(&text, in_all, &in_own)
}

/// The operator's Role in its own namespace also has the rules of a namespace that it works in, if it is one of them.
fn own_role(text: &str, in_all: &[Manifest], in_own: &[Manifest]) -> Result<String> {
    let is_own = |manifest: &Manifest| {
        manifest.kind() == "Role" && manifest.namespace() == Some(NAMESPACE) && manifest.name() != "stead-edit"
    };
    let (small, large) = (find(in_all, is_own)?, find(in_own, is_own)?);
    let rules = |manifest: &Manifest| manifest.object["rules"].as_array().cloned().unwrap_or_default();
    let (few, many) = (rules(small), rules(large));
    ensure!(many.starts_with(&few) && many.len() > few.len(), "the own Role has to begin with the rules for its Lease");
    let more = fill_in(&serde_saphyr::to_string(&json!(many[few.len()..]))?)?;
    let before = document(&template(small)?);
    ensure!(text.matches(&before).count() == 1, "the own Role has to be in the template once");
    let after = format!("{before}{{{{- if has .Release.Namespace .Values.namespaces }}}}\n{more}{{{{- end }}}}\n");
    Ok(text.replace(&before, &after))
}

fn is_permission(manifest: &Manifest) -> bool {
    ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"].contains(&manifest.kind())
}

fn document(text: &str) -> String {
    format!("---\n{text}")
}

/// A document for each namespace of the values, or for those that meet a condition.
fn ranged(condition: &str, document: &str) -> String {
    if condition.is_empty() {
        return format!("{{{{- range .Values.namespaces }}}}\n{document}{{{{- end }}}}\n");
    }
    format!(
        "{{{{- range .Values.namespaces }}}}\n{{{{- if {condition} }}}}\n{document}{{{{- end }}}}\n{{{{- end }}}}\n"
    )
}

/// The template of one object.
fn template(manifest: &Manifest) -> Result<String> {
    let mut object = manifest.object.clone();
    if manifest.kind() == "Deployment" {
        let pod = &mut object["spec"]["template"]["spec"];
        pod["containers"][0]["resources"] = "PLACEHOLDER-RESOURCES".into();
        for (field, placeholder) in [
            ("imagePullSecrets", "PLACEHOLDER-PULL-SECRETS"),
            ("nodeSelector", "PLACEHOLDER-NODE-SELECTOR"),
            ("tolerations", "PLACEHOLDER-TOLERATIONS"),
        ] {
            pod[field] = placeholder.into();
        }
    }
    object["metadata"]["labels"]["helm.sh/chart"] = "PLACEHOLDER-CHART".into();
    fill_in(&text(&object)?)
}

fn text(object: &Value) -> Result<String> {
    let mut text = serde_saphyr::to_string(object)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    ensure!(!text.contains("{{"), "{} has braces that Helm would interpret", object["metadata"]["name"]);
    Ok(text)
}

/// Replaces the placeholders.
fn fill_in(text: &str) -> Result<String> {
    let mut filled = String::new();
    for line in text.lines() {
        let indentation = &line[..line.len() - line.trim_start().len()];
        match CONDITIONAL_LINES.iter().find(|(part, _)| line.contains(part)) {
            Some((_, lines)) => {
                for line in *lines {
                    filled.push_str(&line.replacen('@', indentation, 1));
                    filled.push('\n');
                }
            }
            None => {
                let line = EXPRESSIONS.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
                filled.push_str(&line.replace("PLACEHOLDER-CHART", "{{ include \"stead.chart\" $ }}"));
                filled.push('\n');
            }
        }
    }
    ensure!(!filled.contains("PLACEHOLDER"), "a placeholder was not replaced:\n{filled}");
    Ok(filled)
}
