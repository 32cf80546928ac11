use std::collections::HashMap;
use std::fmt::Write as _;

use md5::{Digest, Md5};

use crate::config::Login;

/// The name by which every server of ZooKeeper goes, whatever its host.
const SERVICE: &str = "zookeeper/zk-sasl-md5";

/// What to say to a challenge of DIGEST-MD5 (RFC 2831), as ZooKeeper's servers speak it; `None` once the
/// server has proved itself, and there is nothing more to say.
///
/// It is an old mechanism, and only as safe as the connection: use it over TLS.
pub(crate) fn respond(login: &Login, challenge: &[u8]) -> Option<Vec<u8>> {
    let challenge = String::from_utf8_lossy(challenge).into_owned();
    let fields = fields(&challenge);
    if fields.contains_key("rspauth") || challenge.is_empty() {
        return None;
    }
    let nonce = fields.get("nonce").map_or("", String::as_str);
    let realm = fields.get("realm").map_or("", String::as_str);
    let own = uuid::Uuid::new_v4().simple().to_string();
    let proof = proof(login, realm, nonce, &own, SERVICE);
    Some(
        format!(
            "charset=utf-8,username=\"{}\",realm=\"{realm}\",nonce=\"{nonce}\",nc=00000001,cnonce=\"{own}\",digest-uri=\"{SERVICE}\",maxbuf=65536,response={proof},qop=auth",
            login.user.replace('\\', "\\\\").replace('"', "\\\"")
        )
        .into_bytes(),
    )
}

fn proof(login: &Login, realm: &str, nonce: &str, own: &str, service: &str) -> String {
    let secret = Md5::digest(format!("{}:{realm}:{}", login.user, login.password));
    let first = Md5::new().chain_update(secret).chain_update(format!(":{nonce}:{own}")).finalize();
    let second = Md5::digest(format!("AUTHENTICATE:{service}"));
    hex(&Md5::digest(format!("{}:{nonce}:00000001:{own}:auth:{}", hex(&first), hex(&second))))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `name=value` and `name="value"`, with commas in between.
fn fields(text: &str) -> HashMap<String, String> {
    let mut fields = HashMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => match after.find(',') {
                Some(end) => after.split_at(end),
                None => (after, ""),
            },
        };
        fields.insert(name.trim().to_owned(), value.to_owned());
        rest = next.trim_start_matches([',', ' ']);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_the_one_of_the_standard() {
        // The example of RFC 2831, section 4.
        let login = Login { user: "chris".into(), password: "secret".into() };
        let proof = proof(
            &login,
            "elwood.innosoft.com",
            "OA6MG9tEQGm2hh",
            "OA6MHXh6VqTrRk",
            "imap/elwood.innosoft.com",
        );
        assert_eq!(proof, "d388dad90d4bbd760a152321f2143af7");
    }

    #[test]
    fn challenges_are_read() {
        let fields = fields("realm=\"zk-sasl-md5\",nonce=\"a,b=\",charset=utf-8,algorithm=md5-sess");
        assert_eq!((fields["nonce"].as_str(), fields["algorithm"].as_str()), ("a,b=", "md5-sess"));
        let login = Login::default();
        assert!(respond(&login, b"rspauth=00").is_none() && respond(&login, b"nonce=\"x\"").is_some());
    }
}
