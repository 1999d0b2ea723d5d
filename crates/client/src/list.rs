//! Lists, page by page.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde_json::Value;

use crate::client::Client;
use crate::error::Error;
use crate::request::ApiRequest;

/// How many objects are asked for at a time, as client-go does.
const PAGE: &str = "500";

/// How often a list is started again because its pages expired.
const RESTARTS: usize = 3;

/// All objects of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct List {
    /// The objects. Objects of a list do not have `apiVersion` and `kind`.
    pub items: Vec<Value>,
    /// The revision of the cluster that they are of.
    pub revision: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListPage {
    /// Its objects.
    pub items: Vec<Value>,
    /// Its revision, and where the next page begins.
    pub metadata: ListMeta,
}

impl ListPage {
    /// Reads the answer to the request for a page.
    ///
    /// # Errors
    /// If it is not a list.
    pub fn parse(mut answer: Value) -> Result<ListPage, Error> {
        let items = match answer.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            // Go writes an empty list as null.
            None | Some(Value::Null) => Vec::new(),
            Some(_) => return Err(Error::Malformed("cannot parse the answer: items: not a list".to_owned())),
        };
        let metadata = answer.get("metadata").map(ListMeta::deserialize).transpose();
        let metadata = metadata.map_err(|error| Error::unreadable(&error))?.unwrap_or_default();
        Ok(ListPage { items, metadata })
    }

    /// The request for the first page of a list.
    pub fn first(list: ApiRequest) -> ApiRequest {
        list.with("limit", PAGE)
    }

    /// The request for the page after this one, which `request` has asked for; none after the last.
    pub fn next(&self, request: &ApiRequest) -> Option<ApiRequest> {
        let token = self.metadata.continue_.as_deref().filter(|token| !token.is_empty())?;
        // A continue token carries the revision, and the server accepts no second one.
        Some(latest(request.clone()).with("continue", token))
    }
}

fn latest(list: ApiRequest) -> ApiRequest {
    list.without(&["resourceVersion", "resourceVersionMatch"])
}

impl Client {
    /// Reads a list in pages. If a page has expired, or the server does not have the revision that was asked for, the
    /// list is started again and is of the latest revision.
    ///
    /// # Errors
    /// Like [`Client::send`], for any of its pages.
    pub async fn list(&self, mut list: ApiRequest) -> Result<List, Error> {
        let mut restarts = RESTARTS;
        loop {
            // A kind may be kept in a store of its own, which has never had this revision: 400, or 504 after waiting.
            let revision = list.query.iter().any(|(name, _)| *name == "resourceVersion");
            match self.pages(&list).await {
                Err(Error::Api(status))
                    if restarts > 0 && (status.code == 410 || (revision && matches!(status.code, 400 | 504))) =>
                {
                    restarts -= 1;
                    list = latest(list);
                }
                answer => return answer,
            }
        }
    }

    async fn pages(&self, list: &ApiRequest) -> Result<List, Error> {
        let mut items = Vec::new();
        let mut request = ListPage::first(list.clone());
        loop {
            let page = ListPage::parse(self.send_json(request.clone()).await?)?;
            let next = page.next(&request);
            items.extend(page.items);
            match next {
                Some(next) => request = next,
                None => return Ok(List { items, revision: page.metadata.resource_version }),
            }
        }
    }
}
