//! API objects that a pod uses: ConfigMaps, Secrets, and a token of its service account.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};

/// Reads the objects of a namespace, like a kubelet.
#[derive(Clone)]
pub(crate) struct Objects {
    client: Client,
    namespace: String,
}

/// Values by key.
pub(crate) type Values = BTreeMap<String, Vec<u8>>;

impl Objects {
    pub(crate) fn new(client: Client, namespace: String) -> Objects {
        Objects { client, namespace }
    }

    /// Returns the values of a ConfigMap; none if it is optional and missing.
    pub(crate) async fn config_map(&self, name: &str, optional: bool) -> Result<Values> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(map) = api.get_opt(name).await.with_context(|| format!("configmap {name}"))? else {
            return if optional { Ok(Values::new()) } else { bail!("configmap \"{name}\" not found") };
        };
        let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        Ok(text.chain(binary).collect())
    }

    /// Returns the values of a Secret; none if it is optional and missing.
    pub(crate) async fn secret(&self, name: &str, optional: bool) -> Result<Values> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(secret) = api.get_opt(name).await.with_context(|| format!("secret {name}"))? else {
            return if optional { Ok(Values::new()) } else { bail!("secret \"{name}\" not found") };
        };
        Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
    }

    /// Requests a token of the pod's service account, bound to the pod.
    pub(crate) async fn token(&self, pod: &Pod, audience: Option<&str>, seconds: Option<i64>) -> Result<String> {
        let account = pod.spec.as_ref().and_then(|s| s.service_account_name.as_deref()).unwrap_or("default");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name_any()),
            uid: pod.uid(),
        };
        let spec = TokenRequestSpec {
            audiences: audience.map(|a| vec![a.to_owned()]),
            bound_object_ref: Some(bound),
            // The token is never renewed, so it has to last for the whole test.
            expiration_seconds: Some(seconds.unwrap_or_default().max(24 * 3600)),
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("a token of service account {account}"))?;
        answer.status.and_then(|status| status.token).context("a token request without a token")
    }
}
