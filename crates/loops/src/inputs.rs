//! What the spec of a Glance and that of a GlanceAPI have in common: the image, and the names of Secrets and services.

use stead_model::{GlanceApiSpec, GlanceSpec, PasswordSelectors};

use crate::optional::{non_empty, text};

/// The names in a spec; empty where the spec has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inputs<'a> {
    /// The image of the containers.
    pub(crate) image: &'a str,
    /// The Secret with the passwords.
    pub(crate) secret: &'a str,
    /// The key of the password of Glance's user in Keystone.
    pub(crate) service_password: &'a str,
    /// The key of the database password.
    pub(crate) database_password: &'a str,
    /// The account that the database is used with.
    pub(crate) database_account: &'a str,
    /// The cache of tokens.
    pub(crate) memcached: &'a str,
}

impl<'a> Inputs<'a> {
    /// The names in the spec of a Glance.
    pub(crate) fn of_glance(spec: &'a GlanceSpec) -> Inputs<'a> {
        let (service_password, database_password) = keys(&spec.password_selectors);
        Inputs {
            image: text(&spec.container_image),
            secret: text(&spec.secret),
            service_password,
            database_password,
            database_account: text(&spec.database_account),
            memcached: text(&spec.memcached_instance),
        }
    }

    /// The names in the spec of a GlanceAPI.
    pub(crate) fn of_api(spec: &'a GlanceApiSpec) -> Inputs<'a> {
        let (service_password, database_password) = keys(&spec.password_selectors);
        Inputs {
            image: text(&spec.container_image),
            secret: text(&spec.secret),
            service_password,
            database_password,
            database_account: text(&spec.database_account),
            memcached: text(&spec.memcached_instance),
        }
    }
}

/// The keys of the passwords in the Secret: of the service, and of the database.
fn keys(selectors: &Option<PasswordSelectors>) -> (&str, &str) {
    let Some(selectors) = selectors else { return ("", DATABASE_PASSWORD) };
    (text(&selectors.service), non_empty(&selectors.database).unwrap_or(DATABASE_PASSWORD))
}

const DATABASE_PASSWORD: &str = "GlanceDatabasePassword";
