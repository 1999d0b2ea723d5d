fn main() {
    println!(
        "{}",
        serde_json::json!({"apiVersion":"v1","kind":"List","items": stead_manifests::definitions().into_iter().chain(stead_manifests::pols()).collect::<Vec<_>>()})
    );
}
