//! The eviction of a pod (`pkg/registry/core/pod/storage/eviction.go`).

use super::{ApiServer, Request};
use crate::error::ApiError;
use crate::object::SimKey;
use crate::step::DeleteOptions;
use crate::store::Change;

impl ApiServer {
    pub(super) fn evict(
        &mut self,
        request: &Request<'_>,
        key: &SimKey,
        options: DeleteOptions,
    ) -> Result<Vec<Change>, ApiError> {
        self.delete(request, key, &options).map(Vec::from_iter)
    }
}
