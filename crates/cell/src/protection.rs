//! Protection options (CMU-CS-97-118, Table 7) by their names in `cell.toml` and on the command line.
//!
//! Each name stands for the option and for those without which it has no meaning. Names are joined by
//! `+`: `privacy-data+privacy-args`.

use nasd_types::Protection;

const INTEGRITY_DATA: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

/// Stronger ones behind those that they contain.
const NAMES: [(&str, Protection); 6] = [
    ("none", Protection::NONE),
    ("integrity-args", Protection::INTEGRITY_ARGS),
    ("integrity-data", INTEGRITY_DATA),
    ("privacy-data", INTEGRITY_DATA.union(Protection::PRIVACY_DATA)),
    ("privacy-args", Protection::INTEGRITY_ARGS.union(Protection::PRIVACY_ARGS)),
    ("privacy-capability", Protection::INTEGRITY_ARGS.union(Protection::PRIVACY_CAPABILITY)),
];

/// The options of those names, if this version understands them.
pub fn protection_named(names: &str) -> Option<Protection> {
    let mut options = Protection::NONE;
    for name in names.split('+') {
        options |= NAMES.iter().find(|(known, _)| *known == name)?.1;
    }
    // To ask for none of something else is a mistake.
    let is_clear = names == "none" || names.split('+').all(|name| name != "none");
    (is_clear && options.is_understood()).then_some(options)
}

/// The shortest names of those options; of options without a meaning, the names of each.
pub fn protection_name_of(options: Protection) -> String {
    let mut names: Vec<(&str, Protection)> = Vec::new();
    for (name, known) in NAMES {
        if options.contains(known) {
            names.retain(|(_, weaker)| !known.contains(*weaker));
            names.push((name, known));
        }
    }
    let named = names.iter().fold(Protection::NONE, |all, (_, known)| all | *known);
    if named == options {
        return names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("+");
    }
    let each = options.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-"));
    each.collect::<Vec<_>>().join("+")
}

/// For the command line: the names as they were given, if they say something.
///
/// # Errors
///
/// Which names there are.
pub fn parse_protection(names: &str) -> Result<String, String> {
    if protection_named(names).is_some() {
        return Ok(names.to_owned());
    }
    let known = NAMES.iter().map(|(name, _)| *name);
    let known: Vec<&str> = known.filter(|name| protection_named(name).is_some()).collect();
    Err(format!("expected one of {}, or several of them joined by `+`", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_that_is_understood_has_a_name_and_is_found_by_it() {
        for options in Protection::all_understood() {
            let name = protection_name_of(options);
            assert_eq!(protection_named(&name), Some(options), "{name}");
            assert_eq!(parse_protection(&name), Ok(name));
        }
    }

    #[test]
    fn names_bring_what_they_rest_on() {
        let (args, data) = (Protection::INTEGRITY_ARGS, Protection::INTEGRITY_DATA);
        let private = args | data | Protection::PRIVACY_DATA;
        for (name, options) in [
            ("none", Protection::NONE),
            ("integrity-args", args),
            ("integrity-data", args | data),
            ("privacy-data", private),
            ("integrity-args+privacy-data", private),
            ("privacy-args", args | Protection::PRIVACY_ARGS),
            ("privacy-data+privacy-args", private | Protection::PRIVACY_ARGS),
            ("privacy-args+integrity-data", args | data | Protection::PRIVACY_ARGS),
        ] {
            assert_eq!(protection_named(name), Some(options), "{name}");
        }
        assert_eq!(protection_name_of(private), "privacy-data");
        for wrong in ["", "+", "none+none", "none+privacy-data", "privacy", "integrity-data+"] {
            assert_eq!(protection_named(wrong), None, "{wrong}");
            assert!(parse_protection(wrong).unwrap_err().contains("integrity-data"));
        }
    }
}
