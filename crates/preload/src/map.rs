//! `NASD_BULK_MAP`: which files are those of a server of a directory.
//!
//! ```text
//! /prefix=HOST:PORT,/other=insecure:HOST:PORT
//! ```

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use thiserror::Error;

/// What says that a desk is asked without TLS.
const INSECURE: &[u8] = b"insecure:";

/// Files below a directory are those of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Absolute, without `.`, `..` or a slash at the end; empty for the root.
    pub(crate) prefix: Vec<u8>,
    /// HOST:PORT.
    pub(crate) address: String,
    /// Whether its desk is asked without TLS.
    pub(crate) is_insecure: bool,
}

/// Why a text is no map.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum MapError {
    #[error("`{0}` is not /PREFIX=HOST:PORT or /PREFIX=insecure:HOST:PORT")]
    Form(String),
    #[error("`{0}` is no absolute path")]
    Relative(String),
    #[error("`{0}` is no HOST:PORT")]
    Address(String),
    #[error("`{0}` is there twice")]
    Twice(String),
}

/// The rules of a text, the longest prefix first. Nothing is none.
pub(crate) fn parse(text: &OsStr) -> Result<Vec<Rule>, MapError> {
    let mut rules = Vec::new();
    for part in text.as_bytes().split(|byte| *byte == b',').filter(|part| !part.is_empty()) {
        let rule = rule(part)?;
        if rules.iter().any(|other: &Rule| other.prefix == rule.prefix) {
            return Err(MapError::Twice(shown(part)));
        }
        rules.push(rule);
    }
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.prefix.len()));
    Ok(rules)
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn rule(part: &[u8]) -> Result<Rule, MapError> {
    // A path may have such a sign too, an address may not.
    let at = part.iter().rposition(|byte| *byte == b'=');
    let (prefix, address) =
        at.map(|at| (&part[..at], &part[at + 1..])).ok_or_else(|| MapError::Form(shown(part)))?;
    let (address, is_insecure) = match address.strip_prefix(INSECURE) {
        Some(address) => (address, true),
        None => (address, false),
    };
    let is_address = |address: &str| {
        let (host, port) = address.rsplit_once(':')?;
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        (is_port && !host.is_empty()).then_some(())
    };
    let told = std::str::from_utf8(address).ok().filter(|address| is_address(address).is_some());
    let address = told.ok_or_else(|| MapError::Address(shown(address)))?.to_owned();
    let prefix = normal(prefix).ok_or_else(|| MapError::Relative(shown(prefix)))?;
    Ok(Rule { prefix, address, is_insecure })
}

/// An absolute path without `.`, `..` and needless slashes, by its text alone: links are not looked at.
pub(crate) fn normal(path: &[u8]) -> Option<Vec<u8>> {
    let path = path.strip_prefix(b"/")?;
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.into_iter().flat_map(|part| [b"/", part].concat()).collect())
}

/// The rule for a path that is absolute and normal, and the path from the prefix.
pub(crate) fn find<'r, 'p>(rules: &'r [Rule], path: &'p [u8]) -> Option<(&'r Rule, &'p [u8])> {
    rules.iter().find_map(|rule| {
        let below = path.strip_prefix(&rule.prefix[..])?.strip_prefix(b"/")?;
        (!below.is_empty()).then_some((rule, below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Rule>, MapError> {
        parse(OsStr::new(text))
    }

    fn rule(prefix: &str, address: &str, is_insecure: bool) -> Rule {
        Rule { prefix: prefix.into(), address: address.to_owned(), is_insecure }
    }

    #[test]
    fn maps_are_prefixes_and_addresses() {
        assert_eq!(parsed(""), Ok(vec![]));
        assert_eq!(parsed("/a=h:1,"), Ok(vec![rule("/a", "h:1", false)]));
        let told = parsed("/a=h:1,/a/b//=insecure:[::1]:2,/x=y/../c=127.0.0.1:65535").unwrap();
        let expected = [
            rule("/a/b", "[::1]:2", true),
            rule("/a", "h:1", false),
            rule("/c", "127.0.0.1:65535", false),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        for text in ["/a", "a=h:1", "=h:1", "/a=h", "/a=:1", "/a=h:0", "/a=h:x", "/a=h:1,/a/.=h:2"]
        {
            assert!(parsed(text).is_err(), "{text}");
        }
        let told = parsed("/a=secure").unwrap_err();
        assert_eq!(told.to_string(), "`secure` is no HOST:PORT");
    }

    #[test]
    fn paths_are_made_normal_by_their_text() {
        let told =
            |path: &str| normal(path.as_bytes()).map(|path| String::from_utf8(path).unwrap());
        for (path, expected) in [
            ("/", ""),
            ("/a/./b//c/", "/a/b/c"),
            ("/a/../b", "/b"),
            ("/../../a", "/a"),
            ("/a/..", ""),
            ("/a/...", "/a/..."),
        ] {
            assert_eq!(told(path).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(told("a/b"), None);
        assert_eq!(told(""), None);
    }

    #[test]
    fn the_longest_prefix_is_the_rule() {
        let rules = parsed("/a=h:1,/a/b=h:2").unwrap();
        let found = |path: &str| {
            let (rule, below) = find(&rules, path.as_bytes())?;
            Some((rule.address.clone(), String::from_utf8(below.to_vec()).unwrap()))
        };
        assert_eq!(found("/a/b/c/d"), Some(("h:2".to_owned(), "c/d".to_owned())));
        assert_eq!(found("/a/bc"), Some(("h:1".to_owned(), "bc".to_owned())));
        for path in ["/a", "/a/", "/ab/c", "/b", ""] {
            assert_eq!(found(path), None, "{path}");
        }
        let root = parsed("/=h:1").unwrap();
        assert_eq!(find(&root, b"/x").unwrap().1, b"x");
    }
}
