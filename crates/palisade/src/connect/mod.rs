#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redlock")]
mod redlock;
#[cfg(any(
    feature = "redis",
    feature = "etcd",
    feature = "zookeeper",
    feature = "postgres",
    feature = "mysql"
))]
mod secret;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql_mode;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod sql_tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use palisade_core::memory::MemoryStore;
use palisade_core::{Engine, Error, ErrorKind, Name, Profile, Result, Ttl};

use crate::client::{Client, ClientBuilder};
use crate::url::{EngineUrl, invalid, quoted};

/// Connects to the engine at `url` with default settings.
///
/// | URL | engine |
/// |---|---|
/// | `file:/absolute/folder`, `file:relative` | embedded: all processes of this host, no server |
/// | `memory:`, `memory:shared-name` | memory: this process |
/// | `redis://host`, `rediss://…`, `redis+sentinel://a,b,c/service`, `redis+cluster://a,b` | Redis (feature `redis`) |
/// | `etcd://host`, `etcd://a,b,c`, `etcds://…` | etcd (feature `etcd`) |
/// | `zk://host`, `zk://a,b,c/chroot`, `zks://…` | ZooKeeper (feature `zookeeper`) |
/// | `postgres://user@host/database` | PostgreSQL (feature `postgres`) |
/// | `mysql://user@host/database`, `mariadb://…` | MySQL, MariaDB (feature `mysql`) |
/// | `redlock:redis://a,redis://b,redis://c` | a quorum over any engines (feature `redlock`) |
///
/// Every URL takes the options `namespace`, `ttl` and `call-timeout`: `file:/x?namespace=jobs&ttl=5s`.
/// A namespace that contradicts [`ClientBuilder::namespace`] is an error.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a URL that is none, listing the engines there are;
/// [`ErrorKind::Unsupported`] for an engine that this build leaves out, saying how to get it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// let client = palisade::connect("memory:").await?;
/// assert!(palisade::connect("carrier-pigeon:").await.is_err());
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
pub async fn connect(url: &str) -> Result<Client> {
    ClientBuilder::default().connect(url).await
}

/// The embedded engine in the user's state folder: what `palisade` uses unless told otherwise.
///
/// `$XDG_STATE_HOME/palisade`, or `$HOME/.local/state/palisade`. As the XDG rules say, a relative
/// path counts as not set: it would name another folder in every working directory.
///
/// # Errors
/// [`ErrorKind::Invalid`] if neither `XDG_STATE_HOME` nor `HOME` is set.
pub fn default_url() -> Result<String> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            invalid("no engine was named, and neither XDG_STATE_HOME nor HOME is set to an absolute path; name one, such as file:/var/lib/palisade")
        })?;
    let folder = state.join("palisade");
    let folder =
        folder.to_str().ok_or_else(|| invalid("the state folder's path is not UTF-8; name an engine"))?;
    Ok(format!("file:{}", folder.replace('%', "%25").replace('?', "%3F")))
}

/// One engine, as [`engines`] lists it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineInfo {
    /// Its name.
    pub name: &'static str,
    /// How its URLs look.
    pub url: &'static str,
    /// What it promises; `None` if this build leaves it out.
    pub profile: Option<Profile>,
    /// The feature that brings it.
    pub feature: Option<&'static str>,
}

/// All engines Palisade knows, with what each promises.
pub fn engines() -> Vec<EngineInfo> {
    ROWS.iter()
        .map(|row| EngineInfo {
            name: row.name,
            url: row.example,
            profile: row.opener.as_ref().map(|opener| (opener.profile)()),
            feature: row.feature,
        })
        .collect()
}

/// The statements that make the schema called `name` in a PostgreSQL database, for whoever runs them with the rights to.
#[cfg(feature = "postgres")]
pub fn postgres_schema(name: &str) -> String {
    palisade_sql::schema(name)
}

/// The statements that make the schema in the current database of a MySQL or MariaDB server, for whoever runs them with
/// the rights to, in the programs `mysql` or `mariadb`.
#[cfg(feature = "mysql")]
pub fn mysql_schema() -> String {
    palisade_sql::mysql_schema()
}

/// What the options common to all engines came to.
pub(crate) struct Opened {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) call_timeout: Option<Duration>,
}

/// Opens the engine that `url` names, in `namespace` or the URL's own.
pub(crate) async fn open(url: &str, namespace: Option<&str>) -> Result<Opened> {
    let has_scheme = url.contains(':');
    // Which engines there are helps only whoever named none.
    let parsed = EngineUrl::parse(url).map_err(|error| if has_scheme { error } else { with_engines(&error) });
    let mut url = parsed?;
    let row = row(&url.scheme)?;
    let Some(opener) = &row.opener else {
        let feature = row.feature.unwrap_or(row.name);
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("this build leaves out the {} engine; build palisade with feature {feature:?}", row.name),
        ));
    };
    let ttl = url.take_duration("ttl")?;
    // Now: whether there is an engine to ask has nothing to do with it.
    ttl.map(Ttl::new).transpose()?;
    let call_timeout = url.take_limit("call-timeout")?;
    let namespace = the_namespace(&mut url, namespace)?;
    let engine = (opener.open)(&mut url, &namespace, call_timeout).await?;
    Ok(Opened { engine, ttl, call_timeout })
}

/// The namespace that the URL names, or `asked`, where an empty one is none. Two that differ are an error:
/// whichever were taken, somebody would hold locks that those who should be kept out do not see.
fn the_namespace(url: &mut EngineUrl, asked: Option<&str>) -> Result<String> {
    let named = url.take("namespace").unwrap_or_default();
    let asked = asked.unwrap_or_default();
    if !named.is_empty() && !asked.is_empty() && named != asked {
        return Err(invalid(format!(
            "the URL names namespace {named:?}, but {asked:?} was asked for (--namespace, PALISADE_NAMESPACE or the builder); name one of them"
        )));
    }
    let namespace = if named.is_empty() { asked.to_owned() } else { named };
    if !namespace.is_empty() {
        Name::new(&namespace).map_err(|problem| invalid(format!("bad namespace: {problem}")))?;
    }
    Ok(namespace)
}

/// The engine whose URLs begin with `scheme`.
fn row(scheme: &str) -> Result<&'static Row> {
    ROWS.iter().find(|row| row.schemes.contains(&scheme)).ok_or_else(|| {
        with_engines(&invalid(format!("there is no engine for {} URLs", quoted(&format!("{scheme}:")))))
    })
}

/// One engine of the table. Adding an engine is adding a row.
struct Row {
    name: &'static str,
    schemes: &'static [&'static str],
    example: &'static str,
    feature: Option<&'static str>,
    /// `None` if this build leaves the engine out.
    opener: Option<Opener>,
}

/// Takes the engine's own options from the URL; namespace and call limit are parsed already.
type Open =
    for<'a> fn(&'a mut EngineUrl, &'a str, Option<Duration>) -> BoxFuture<'a, Result<Arc<dyn Engine>>>;

struct Opener {
    profile: fn() -> Profile,
    open: Open,
}

const ROWS: &[Row] = &[
    Row {
        name: "embedded",
        schemes: &["file"],
        example: "file:/absolute/folder",
        feature: Some("embedded"),
        #[cfg(feature = "embedded")]
        opener: Some(Opener {
            profile: palisade_embedded::profile,
            open: |url, namespace, limit| open_embedded(url, namespace, limit).boxed(),
        }),
        #[cfg(not(feature = "embedded"))]
        opener: None,
    },
    Row {
        name: "memory",
        schemes: &["memory"],
        example: "memory:shared-name",
        feature: None,
        opener: Some(Opener {
            profile: palisade_core::memory::profile,
            open: |url, namespace, _| future::ready(open_memory(url, namespace)).boxed(),
        }),
    },
    Row {
        name: "redis",
        schemes: &["redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"],
        example: "redis://host:6379",
        feature: Some("redis"),
        #[cfg(feature = "redis")]
        opener: Some(Opener {
            profile: palisade_redis::profile,
            open: |url, namespace, limit| redis::open(url, namespace, limit).boxed(),
        }),
        #[cfg(not(feature = "redis"))]
        opener: None,
    },
    Row {
        name: "etcd",
        schemes: &["etcd", "etcds"],
        example: "etcd://host:2379",
        feature: Some("etcd"),
        #[cfg(feature = "etcd")]
        opener: Some(Opener {
            profile: palisade_etcd::profile,
            open: |url, namespace, limit| etcd::open(url, namespace, limit).boxed(),
        }),
        #[cfg(not(feature = "etcd"))]
        opener: None,
    },
    Row {
        name: "zookeeper",
        schemes: &["zk", "zks"],
        example: "zk://host:2181",
        feature: Some("zookeeper"),
        #[cfg(feature = "zookeeper")]
        opener: Some(Opener {
            profile: palisade_zookeeper::profile,
            open: |url, namespace, limit| zookeeper::open(url, namespace, limit).boxed(),
        }),
        #[cfg(not(feature = "zookeeper"))]
        opener: None,
    },
    Row {
        name: "postgres",
        schemes: &["postgres", "postgresql"],
        example: "postgres://user@host:5432/database",
        feature: Some("postgres"),
        #[cfg(feature = "postgres")]
        opener: Some(Opener {
            profile: palisade_sql::profile,
            open: |url, namespace, limit| postgres::open(url, namespace, limit).boxed(),
        }),
        #[cfg(not(feature = "postgres"))]
        opener: None,
    },
    Row {
        name: "mysql",
        schemes: &["mysql", "mariadb"],
        example: "mysql://user@host:3306/database",
        feature: Some("mysql"),
        #[cfg(feature = "mysql")]
        opener: Some(Opener {
            profile: palisade_sql::mysql_profile,
            open: |url, namespace, limit| mysql::open(url, namespace, limit).boxed(),
        }),
        #[cfg(not(feature = "mysql"))]
        opener: None,
    },
    Row {
        name: "redlock",
        schemes: &["redlock"],
        example: "redlock:redis://a,redis://b,redis://c",
        feature: Some("redlock"),
        #[cfg(feature = "redlock")]
        opener: Some(Opener {
            profile: palisade_quorum::profile,
            open: |url, namespace, _| redlock::open(url, namespace).boxed(),
        }),
        #[cfg(not(feature = "redlock"))]
        opener: None,
    },
];

/// The options every URL takes.
const COMMON: &str = "namespace, ttl, call-timeout";

/// The files with whom to trust, and who we are: CA, certificate and key. They are for `scheme` alone.
#[cfg(any(feature = "redis", feature = "etcd", feature = "zookeeper"))]
fn tls_files(url: &mut EngineUrl, encrypted: bool, scheme: &str) -> Result<[Option<PathBuf>; 3]> {
    let mut files = [None, None, None];
    for (file, option) in files.iter_mut().zip(["tls-ca", "tls-cert", "tls-key"]) {
        *file = url.take(option).map(PathBuf::from);
        if file.is_some() && !encrypted {
            return Err(invalid(format!("option {option} needs an encrypted connection: write {scheme}:")));
        }
    }
    Ok(files)
}

fn with_engines(error: &Error) -> Error {
    let known: Vec<String> = ROWS
        .iter()
        .map(|row| match row.opener {
            Some(_) => format!("{} ({})", row.example, row.name),
            None => format!("{} ({}, not in this build)", row.example, row.name),
        })
        .collect();
    Error::new(error.kind(), format!("{}; there are {}", error.message(), known.join(", ")))
}

#[cfg(feature = "embedded")]
async fn open_embedded(
    url: &mut EngineUrl,
    namespace: &str,
    call_timeout: Option<Duration>,
) -> Result<Arc<dyn Engine>> {
    use palisade_embedded::{EmbeddedConfig, EmbeddedEngine, Sync};
    // `file:///folder` is the same folder to most people; `file://host/…` is none of ours.
    let folder = match url.rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(invalid("a file: URL names no host; write file:/folder or file:relative")),
        None => &url.rest,
    };
    if folder.starts_with('~') {
        return Err(invalid(
            "a ~ in a file: URL is not expanded; write $HOME, or ./~ for a folder of that name",
        ));
    }
    if folder.is_empty() {
        return Err(invalid("a file: URL names a folder, such as file:/var/lib/palisade"));
    }
    let mut config = EmbeddedConfig::new(folder).namespace(namespace);
    if let Some(limit) = call_timeout {
        config = config.call_timeout(limit);
    }
    config = match url.take("sync").as_deref() {
        None | Some("normal") => config.sync(Sync::Normal),
        Some("full") => config.sync(Sync::Full),
        Some(other) => return Err(invalid(format!("option sync is `normal` or `full`, not {other:?}"))),
    };
    url.finish(&format!("sync, {COMMON}"))?;
    Ok(Arc::new(EmbeddedEngine::open(config).await?))
}

fn open_memory(url: &mut EngineUrl, namespace: &str) -> Result<Arc<dyn Engine>> {
    url.finish(COMMON)?;
    let store = if url.rest.is_empty() { MemoryStore::default() } else { MemoryStore::named(&url.rest) };
    Ok(Arc::new(store.connect(namespace)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(url: &str) -> String {
        // Every one of these is refused before anything is waited for.
        match open(url, None).now_or_never().expect("no wait") {
            Ok(_) => panic!("{url} was opened"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn unknown_engines_list_the_known_ones() {
        let message = problem("redos://localhost");
        assert!(
            message.contains("redos:") && message.contains("memory:") && message.contains("file:"),
            "{message}"
        );
    }

    #[test]
    fn every_option_is_checked() {
        assert!(problem("memory:?nonsense=1").contains("\"nonsense\""));
        assert!(problem("memory:?ttl=fast").contains("ttl"));
        assert!(problem("memory:?namespace=a%0Ab").contains("namespace"));
        assert!(problem("memory:?ttl=0s").contains("TTL"));
        assert!(problem("memory:?call-timeout=0s").contains("above zero"));
        let twice = problem("memory:?ttl=5s&ttl=6s");
        assert!(twice.contains("twice") && !twice.contains("file:"), "{twice}");
    }

    #[test]
    fn two_namespaces_contradict_each_other() {
        let open = |url: &str, asked| open(url, asked).now_or_never().expect("no wait").map(drop);
        let message = open("memory:?namespace=jobs", Some("shop")).unwrap_err().to_string();
        assert!(message.contains("\"jobs\"") && message.contains("\"shop\""), "{message}");
        for (url, asked) in [
            ("memory:?namespace=jobs", Some("jobs")),
            ("memory:?namespace=jobs", Some("")),
            ("memory:?namespace=", Some("jobs")),
            ("memory:?namespace=jobs", None),
        ] {
            open(url, asked).unwrap_or_else(|error| panic!("{url} {asked:?}: {error}"));
        }
    }

    #[cfg(feature = "redlock")]
    #[test]
    fn a_node_is_in_the_namespace_of_its_quorum() {
        let message = problem("redlock:memory:a%3Fnamespace=x,memory:b,memory:c?namespace=y");
        assert!(message.contains("\"x\"") && message.contains("\"y\""), "{message}");
    }

    #[cfg(feature = "embedded")]
    #[test]
    fn a_file_url_names_a_folder_of_this_host() {
        assert!(problem("file:").contains("folder"));
        assert!(problem("file://host/x").contains("host"));
        assert!(problem("file:~/x").contains("$HOME"));
        assert!(problem("file:/tmp/x?sync=maybe").contains("full"));
    }

    #[cfg(not(feature = "embedded"))]
    #[test]
    fn an_engine_that_was_left_out_says_how_to_get_it() {
        assert!(problem("file:/tmp/x").contains("feature \"embedded\""));
    }
}
