//! Follows the objects of a list.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use stead_model::ModelError;

use crate::client::Client;
use crate::error::Error;
use crate::path::ApiPath;

/// Which objects are watched, and for how long one request lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchOptions {
    /// The label selector; empty for all objects.
    pub labels: String,
    /// The field selector; empty for all objects.
    pub fields: String,
    /// How long one request lasts before the next takes over. A connection that is dead is noticed a little later.
    pub timeout: Duration,
}

impl WatchOptions {
    /// All objects.
    pub fn all(timeout: Duration) -> WatchOptions {
        WatchOptions { labels: String::new(), fields: String::new(), timeout }
    }

    /// The object of this name.
    pub fn named(name: &str, timeout: Duration) -> WatchOptions {
        WatchOptions { fields: format!("metadata.name={name}"), ..WatchOptions::all(timeout) }
    }

    /// The objects that a label selector matches.
    pub fn labelled(labels: &str, timeout: Duration) -> WatchOptions {
        WatchOptions { labels: labels.to_owned(), ..WatchOptions::all(timeout) }
    }

    fn config(&self) -> watcher::Config {
        let some = |selector: &String| Some(selector.clone()).filter(|selector| !selector.is_empty());
        // An hour is the server's own limit.
        let seconds = u32::try_from(self.timeout.as_secs().clamp(1, 3600)).unwrap_or(290);
        watcher::Config {
            label_selector: some(&self.labels),
            field_selector: some(&self.fields),
            timeout: Some(seconds),
            ..watcher::Config::default()
        }
    }
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent<T> {
    /// These are all objects: at the beginning, and whenever events may have been missed.
    Listed(Vec<T>),
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted, or is not selected any more.
    Deleted(T),
    /// A request failed. It is repeated after a pause.
    Failed {
        /// Why.
        error: Error,
        /// Whether the request before failed too.
        again: bool,
    },
}

/// A watch. It goes on for as long as it is polled.
pub struct Watch<T> {
    events: BoxStream<'static, Result<watcher::Event<T>, Error>>,
    listed: Vec<T>,
    /// Whether an object of the list could not be read.
    incomplete: bool,
    failing: bool,
}

impl Client {
    /// Watches objects of a Kubernetes type in a namespace, and reports what `read` returns for each of them: what is not
    /// needed is dropped before the rest of the list is read. A list with an object that cannot be read is not
    /// reported, because it would look as if the object did not exist.
    pub fn watch<K, T>(
        &self,
        namespace: &str,
        options: &WatchOptions,
        read: impl Fn(&Value) -> Result<T, ModelError> + Send + 'static,
    ) -> Watch<T>
    where
        K: k8s_openapi::Resource<Scope = NamespaceResourceScope>,
        T: Send + 'static,
    {
        let events = self.json_events(K::KIND, ApiPath::of::<K>(), Some(namespace), options);
        Watch::of(events, move |object| read(&object).map_err(|error| Error::unreadable(&error)))
    }

    /// Watches objects of a kind as JSON, in a namespace or in the whole cluster.
    pub fn watch_json<T: Send + 'static>(
        &self,
        kind: &str,
        path: ApiPath<'_>,
        namespace: Option<&str>,
        options: &WatchOptions,
        read: impl Fn(Value) -> T + Send + 'static,
    ) -> Watch<T> {
        Watch::of(self.json_events(kind, path, namespace, options), move |object| Ok(read(object)))
    }

    /// Events of objects as JSON. This is not generic, so that kube's watcher is compiled once.
    fn json_events(
        &self,
        kind: &str,
        path: ApiPath<'_>,
        namespace: Option<&str>,
        options: &WatchOptions,
    ) -> BoxStream<'static, Result<watcher::Event<Value>, Error>> {
        let (group, version) = path.api_version.rsplit_once('/').unwrap_or(("", path.api_version));
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), path.plural);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.http.clone(), namespace, &resource),
            None => Api::all_with(self.http.clone(), &resource),
        };
        let (api_version, kind) = (path.api_version.to_owned(), kind.to_owned());
        // Objects of a list do not have `apiVersion` and `kind`.
        let complete = move |object: DynamicObject| {
            let mut object = serde_json::to_value(object).expect("the keys of Kubernetes objects are strings");
            object["apiVersion"] = api_version.as_str().into();
            object["kind"] = kind.as_str().into();
            object
        };
        let events = watcher(api, options.config()).default_backoff();
        events.map(move |event| map_event(event?, |object| Ok(complete(object)))).boxed()
    }
}

fn map_event<A, B>(event: watcher::Event<A>, read: impl Fn(A) -> Result<B, Error>) -> Result<watcher::Event<B>, Error> {
    Ok(match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(object) => watcher::Event::InitApply(read(object)?),
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::Apply(object) => watcher::Event::Apply(read(object)?),
        watcher::Event::Delete(object) => watcher::Event::Delete(read(object)?),
    })
}

impl<T: Send + 'static> Watch<T> {
    fn of(
        events: impl Stream<Item = Result<watcher::Event<Value>, Error>> + Send + 'static,
        read: impl Fn(Value) -> Result<T, Error> + Send + 'static,
    ) -> Watch<T> {
        let events = events.map(move |event| map_event(event?, &read)).boxed();
        Watch { events, listed: Vec::new(), incomplete: false, failing: false }
    }

    /// What happens next.
    pub async fn next(&mut self) -> WatchEvent<T> {
        loop {
            let event = match self.events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    let again = std::mem::replace(&mut self.failing, true);
                    self.incomplete = true;
                    return WatchEvent::Failed { error, again };
                }
                // kube's watcher never ends; if it did, there would be nothing more to report.
                None => std::future::pending().await,
            };
            let told = match event {
                watcher::Event::Init => {
                    self.listed.clear();
                    self.incomplete = false;
                    continue;
                }
                watcher::Event::InitApply(object) => {
                    self.listed.push(object);
                    continue;
                }
                watcher::Event::InitDone if self.incomplete => continue,
                watcher::Event::InitDone => WatchEvent::Listed(std::mem::take(&mut self.listed)),
                watcher::Event::Apply(object) => WatchEvent::Applied(object),
                watcher::Event::Delete(object) => WatchEvent::Deleted(object),
            };
            self.failing = false;
            return told;
        }
    }
}

impl From<watcher::Error> for Error {
    fn from(error: watcher::Error) -> Error {
        match error {
            watcher::Error::InitialListFailed(cause)
            | watcher::Error::WatchStartFailed(cause)
            | watcher::Error::WatchFailed(cause) => cause.into(),
            watcher::Error::WatchError(status) => Error::Api((*status).into()),
            watcher::Error::NoResourceVersion => Error::Malformed("the list has no resourceVersion".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A watch whose server is in the same process: it answers with these codes and bodies, then never again. The second
    /// value has the requests.
    fn watch(answers: &[(u16, &str)]) -> (Watch<String>, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answers: VecDeque<_> = answers.iter().map(|(code, body)| (*code, (*body).to_owned())).collect();
        let (log, answers) = (asked.clone(), Arc::new(Mutex::new(answers)));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            log.lock().expect("no panic before").push(request.uri().to_string());
            let answer = answers.lock().expect("no panic before").pop_front();
            async move {
                match answer {
                    Some((code, body)) => http::Response::builder().status(code).body(Body::from(body.into_bytes())),
                    None => std::future::pending().await,
                }
            }
        });
        let client = Client { http: kube::Client::new(service, "default"), request_timeout: Duration::from_secs(60) };
        (client.watch::<ConfigMap, _>("n", &WatchOptions::named("c", Duration::from_secs(290)), value), asked)
    }

    fn map(value: &str) -> String {
        json!({"metadata": {"name": "c", "resourceVersion": "8"}, "data": {"value": value}}).to_string()
    }

    fn list(items: &str) -> String {
        format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#)
    }

    fn value(map: &Value) -> Result<String, ModelError> {
        let map: ConfigMap = stead_model::parse("configmap n/c", map)?;
        Ok(map.data.and_then(|data| data.get("value").cloned()).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_watch_whose_revision_expired_lists_again() {
        let expired =
            r#"{"type":"ERROR","object":{"kind":"Status","reason":"Expired","message":"too old","code":410}}"#;
        let events = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n{expired}\n", map("second"));
        let (mut watch, asked) = watch(&[(200, &list(&map("first"))), (200, &events), (200, &list(""))]);
        assert_eq!(watch.next().await, WatchEvent::Listed(vec!["first".to_owned()]));
        assert_eq!(watch.next().await, WatchEvent::Applied("second".to_owned()));
        match watch.next().await {
            WatchEvent::Failed { error, again: false } => assert!(error.is_gone(), "{error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(watch.next().await, WatchEvent::Listed(Vec::new()));
        let asked = asked.lock().expect("no panic before").clone();
        assert!(asked.iter().all(|uri| uri.starts_with("/api/v1/namespaces/n/configmaps?")), "{asked:?}");
        assert!(asked.iter().all(|uri| uri.contains("fieldSelector=metadata.name%3Dc")), "{asked:?}");
        let watches: Vec<bool> = asked.iter().map(|uri| uri.contains("watch=true")).collect();
        assert_eq!(watches, [false, true, false], "{asked:?}");
    }

    #[tokio::test]
    async fn a_list_with_an_unreadable_object_is_not_reported() {
        let unreadable = r#"{"metadata":{"name":"c","resourceVersion":"8"},"data":5}"#;
        let expired =
            r#"{"type":"ERROR","object":{"kind":"Status","reason":"Expired","message":"too old","code":410}}"#;
        let (mut watch, _) = watch(&[(200, &list(unreadable)), (200, expired), (200, &list(&map("first")))]);
        match watch.next().await {
            WatchEvent::Failed { error, again: false } => assert!(error.to_string().contains("data"), "{error}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(watch.next().await, WatchEvent::Failed { again: true, .. }));
        assert_eq!(watch.next().await, WatchEvent::Listed(vec!["first".to_owned()]));
    }

    #[tokio::test]
    async fn a_failing_watch_goes_on_and_says_whether_it_failed_before() {
        let forbidden = r#"{"kind":"Status","reason":"Forbidden","message":"configmaps is forbidden","code":403}"#;
        let (mut watch, _) =
            watch(&[(403, forbidden), (403, forbidden), (200, &list(&map("first"))), (403, forbidden)]);
        for expected in [false, true] {
            match watch.next().await {
                WatchEvent::Failed { error, again } => assert!(error.is_forbidden() && again == expected, "{error}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(watch.next().await, WatchEvent::Listed(vec!["first".to_owned()]));
        assert!(matches!(watch.next().await, WatchEvent::Failed { again: false, .. }));
    }
}
