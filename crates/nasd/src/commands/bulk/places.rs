//! Names of places, as the user types them.

use crate::shared_file::is_url_argument;
use nasd_cell::CellPath;
use std::path::PathBuf;

/// What the URL of a server begins with, and that of one where nothing is proved.
const SECURE: &str = "bulk://";
const INSECURE: &str = "bulk+insecure://";

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a volume of the cell.
    Cell(CellPath),
    /// At a bulk server.
    Desk(DeskPlace),
    /// What a capability is for: a URL, or where one is. It may be a secret.
    Url(String),
    /// The standard input or output.
    Standard,
    /// On this machine.
    Local(PathBuf),
}

/// A path at a bulk server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeskPlace {
    /// HOST:PORT.
    pub address: String,
    /// Which machine of the cell must serve it; nothing: any.
    pub host: Option<String>,
    /// Whether its certificate is demanded.
    pub is_secure: bool,
    /// From the directory that is served, without slashes around it; empty for that itself.
    pub path: Vec<u8>,
}

impl Place {
    /// From the command line.
    ///
    /// # Errors
    /// A URL that is none.
    pub fn parse(text: &str) -> Result<Place, String> {
        if text == "-" {
            return Ok(Place::Standard);
        }
        for (scheme, is_secure) in [(SECURE, true), (INSECURE, false)] {
            if let Some(rest) = text.strip_prefix(scheme) {
                let desk = DeskPlace::parse(rest, is_secure);
                return desk.map(Place::Desk).map_err(|why| {
                    format!(
                        "`{text}` is no place at a bulk server: {why}; write {scheme}HOST:PORT/path"
                    )
                });
            }
        }
        if is_url_argument(text) {
            return Ok(Place::Url(text.to_owned()));
        }
        if text.is_empty() {
            return Err("the name of a place is empty".to_owned());
        }
        if let Some((scheme, _)) = text.split_once("://")
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
        {
            return Err(format!(
                "`{scheme}://` is nothing that this command knows: it takes {SECURE}, {INSECURE} and nasd://; write \
                 ./{scheme}: for a file of this machine"
            ));
        }
        let path = CellPath::parse(text);
        Ok(path.map_or_else(|| Place::Local(PathBuf::from(text)), Place::Cell))
    }

    /// Whether it is on this machine.
    pub fn is_here(&self) -> bool {
        matches!(self, Place::Local(_) | Place::Standard)
    }
}

impl DeskPlace {
    fn parse(rest: &str, is_secure: bool) -> Result<DeskPlace, String> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, address) = match authority.split_once('@') {
            Some(("", _)) => return Err("there is nothing before the @".to_owned()),
            Some((host, address)) => (Some(host.to_owned()), address),
            None => (None, authority),
        };
        if host.is_some() && !is_secure {
            return Err(
                "a machine of the cell can't be demanded where nothing is proved".to_owned()
            );
        }
        let (name, port) = address.rsplit_once(':').ok_or("the port is missing")?;
        if name.is_empty() || name.contains(':') && !name.starts_with('[') {
            return Err("the host is missing".to_owned());
        }
        if port.parse::<u16>().ok().is_none_or(|port| port == 0) {
            return Err(format!("`{port}` is no port"));
        }
        let mut names = Vec::new();
        for name in path.split('/').map(unescaped) {
            match &*name? {
                b"" | b"." => {}
                b".." => return Err("`..` leads out of what is named".to_owned()),
                name if name.contains(&b'/') || name.contains(&0) => {
                    return Err("a name has a slash or a zero byte in it".to_owned());
                }
                name => names.push(name.to_vec()),
            }
        }
        Ok(DeskPlace { address: address.to_owned(), host, is_secure, path: names.join(&b'/') })
    }
}

/// A name without `%XX` in it.
fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("two hexadecimal digits follow a %, which itself is %25")?);
        rest = &rest[2..];
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk(text: &str) -> DeskPlace {
        match Place::parse(text) {
            Ok(Place::Desk(desk)) => desk,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn every_kind_of_place() {
        assert_eq!(Place::parse("-"), Ok(Place::Standard));
        let cell = CellPath::parse("main:/a/b").unwrap();
        assert_eq!(Place::parse("main:/a/b"), Ok(Place::Cell(cell)));
        for local in ["a", "./bulk:x", "/a/b", "a b", "main:x", "./x://y"] {
            assert_eq!(Place::parse(local), Ok(Place::Local(local.into())), "{local}");
        }
        for url in ["nasd://h:1/x#nasdcap1.A", "@file", "env:URL"] {
            assert_eq!(Place::parse(url), Ok(Place::Url(url.to_owned())), "{url}");
        }
    }

    #[test]
    fn servers() {
        let plain = desk("bulk://h:7788//a/./b%20c%25/");
        assert_eq!((&*plain.address, &*plain.path), ("h:7788", &b"a/b c%"[..]));
        assert!(plain.is_secure && plain.host.is_none());
        let named = desk("bulk://tower@[::1]:7788");
        assert_eq!((named.host.as_deref(), &*named.address), (Some("tower"), "[::1]:7788"));
        assert!(named.path.is_empty());
        assert!(!desk("bulk+insecure://10.0.0.1:80/x").is_secure);
    }

    #[test]
    fn what_is_no_place_is_refused_with_a_reason() {
        for (text, why) in [
            ("bulk://h/x", "port is missing"),
            ("bulk://h:x/x", "no port"),
            ("bulk://h:0/x", "no port"),
            ("bulk://h:99999/x", "no port"),
            ("bulk://:1/x", "host is missing"),
            ("bulk://::1:1/x", "host is missing"),
            ("bulk:///x", "port is missing"),
            ("bulk://@h:1/x", "before the @"),
            ("bulk+insecure://a@h:1/x", "nothing is proved"),
            ("bulk://h:1/../x", "leads out"),
            ("bulk://h:1/a/%2e%2e/x", "leads out"),
            ("bulk://h:1/a%2fb", "slash"),
            ("bulk://h:1/a%00", "zero byte"),
            ("bulk://h:1/a%2", "hexadecimal"),
            ("bulk://h:1/a%+1", "hexadecimal"),
            ("http://h:1/a", "http://"),
            ("", "empty"),
        ] {
            let told = Place::parse(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
