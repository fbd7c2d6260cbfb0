//! The store that a URL belongs to, with the settings of the environment, and the path within it.

use crate::connection::Connector;
use crate::failure;
use ferroflow_core::{Result, ensure, status};
use object_store::aws::AmazonS3Builder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time for which a request that fails is sent again.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// A place in a store.
pub(crate) struct Location {
    /// The scheme and the bucket or host; stores are kept by it.
    pub(crate) root: String,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) path: Path,
}

/// Returns whether a name is a URL of this crate.
pub fn is_remote(name: &str) -> bool {
    ["s3://", "gs://", "http://", "https://"].iter().any(|scheme| name.starts_with(scheme))
}

pub(crate) fn is_read_only(url: &str) -> bool {
    url.starts_with("http")
}

/// Refuses URLs of files that can only be read.
pub fn check_writable(url: &str) -> Result<()> {
    ensure!(
        !is_read_only(url),
        Unimplemented,
        "files behind http:// and https:// can only be read (file: '{url}'); write to s3://, gs:// or a local path"
    );
    Ok(())
}

/// The stores that were opened, by root: they keep connections and credentials.
static STORES: Mutex<Option<HashMap<String, Arc<dyn ObjectStore>>>> = Mutex::new(None);

impl Location {
    pub(crate) fn parse(url: &str) -> Result<Location> {
        let malformed =
            || status!(InvalidArgument, "'{url}' is not a URL of a file, such as s3://bucket/name");
        let (scheme, rest) = url.split_once("://").ok_or_else(malformed)?;
        let (host, key) = rest.split_once('/').unwrap_or((rest, ""));
        ensure!(
            !host.is_empty(),
            InvalidArgument,
            "'{url}' names no {}",
            if is_read_only(url) { "host" } else { "bucket" }
        );
        let root = format!("{scheme}://{host}");
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        let stores = stores.get_or_insert_default();
        let store = match stores.get(&root) {
            Some(store) => store.clone(),
            None => {
                let store = open(scheme, host, &root)?;
                stores.insert(root.clone(), store.clone());
                store
            }
        };
        let path = Path::parse(key.trim_matches('/')).unwrap_or_else(|_| Path::from(key));
        Ok(Location { root, store, path })
    }
}

fn open(scheme: &str, host: &str, root: &str) -> Result<Arc<dyn ObjectStore>> {
    let refused = |error: object_store::Error| failure::of(root, &error);
    let retry = RetryConfig { retry_timeout: RETRY_FOR, ..RetryConfig::default() };
    Ok(match scheme {
        "s3" => {
            // Programs written for stock name their servers by the second variable.
            let endpoint = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "S3_ENDPOINT"].into_iter();
            let endpoint = endpoint.filter_map(|name| std::env::var(name).ok()).find(|text| !text.is_empty());
            let mut builder = AmazonS3Builder::from_env()
                .with_bucket_name(host)
                .with_retry(retry)
                .with_http_connector(Connector);
            if let Some(endpoint) = endpoint {
                let secure = std::env::var("S3_USE_HTTPS").map_or(true, |value| value != "0");
                let endpoint = if endpoint.contains("://") {
                    endpoint
                } else {
                    format!("{}://{endpoint}", if secure { "https" } else { "http" })
                };
                builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
            }
            Arc::new(builder.build().map_err(refused)?)
        }
        "gs" => {
            let builder = match std::env::var("STORAGE_EMULATOR_HOST") {
                Ok(emulator) => emulated(&emulator),
                Err(_) => GoogleCloudStorageBuilder::from_env(),
            };
            let builder = builder.with_bucket_name(host).with_retry(retry).with_http_connector(Connector);
            Arc::new(builder.build().map_err(refused)?)
        }
        _ => {
            let options = ClientOptions::new().with_allow_http(scheme == "http");
            let builder = HttpBuilder::new().with_url(root).with_client_options(options);
            Arc::new(builder.with_retry(retry).with_http_connector(Connector).build().map_err(refused)?)
        }
    })
}

/// A server that stands for Google's and asks nobody for credentials, neither to read nor to write.
fn emulated(host: &str) -> GoogleCloudStorageBuilder {
    let url = if host.contains("://") { host.to_owned() } else { format!("http://{host}") };
    let plain = ClientOptions::new().with_allow_http(url.starts_with("http://"));
    let keys = r#""client_email": "", "private_key": "", "private_key_id": """#;
    let account = format!(r#"{{"gcs_base_url": "{url}", "disable_oauth": true, {keys}}}"#);
    GoogleCloudStorageBuilder::new().with_service_account_key(account).with_client_options(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;

    #[test]
    fn urls_have_a_root_and_a_path() {
        let location = Location::parse("http://127.0.0.1:9/a%20b/c.txt").unwrap();
        assert_eq!(location.root, "http://127.0.0.1:9");
        assert_eq!(location.path.filename(), Some("c.txt"));
        let refused = Location::parse("s3:///key").map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(is_remote("gs://bucket/key") && !is_remote("/tmp/s3://x") && !is_remote("hdfs://host/x"));
    }

    #[test]
    fn plain_urls_are_only_read() {
        assert_eq!(check_writable("https://host/file").unwrap_err().code(), Code::Unimplemented);
        assert!(check_writable("s3://bucket/file").is_ok());
    }
}
